package registry

import (
	"context"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/waybill-mq/waybill/internal/mesh"
)

// watchExecutions keeps the closed executions in line with the bucket.
func (s *Service) watchExecutions(ctx context.Context) {
	var missing map[string]uint64
	f := mesh.Follower{
		KV: s.store.kv, Keys: executionKey + ">",
		Begin: func() {
			missing = map[string]uint64{}
			for _, doc := range s.closed.all() {
				missing[doc.Execution.Execution] = doc.revision
			}
		},
		See: func(_ context.Context, entry jetstream.KeyValueEntry, _ bool) {
			delete(missing, strings.TrimPrefix(entry.Key(), executionKey))
			s.seeExecution(entry)
		},
		Read: func() {
			for id, revision := range missing {
				s.closed.see(id, revision, nil)
			}
		},
		Failed: func(err error) { s.log.Debug("closed executions cannot be watched; trying again", "error", err) },
	}
	f.Run(ctx)
}

func (s *Service) seeExecution(entry jetstream.KeyValueEntry) {
	id := strings.TrimPrefix(entry.Key(), executionKey)
	if entry.Operation() != jetstream.KeyValuePut {
		s.closed.see(id, entry.Revision(), nil)
		return
	}
	doc, err := readExecution(entry)
	if err != nil {
		s.log.Warn("the record of an execution cannot be used", "execution", id, "error", err)
		return
	}
	s.closed.see(id, doc.revision, doc)
}
