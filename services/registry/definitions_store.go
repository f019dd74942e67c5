package registry

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/waybill-mq/waybill/internal/document"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// definitionsKey is the record of the named queues.
const definitionsKey = "queues"

// definitionsDoc is that record.
type definitionsDoc struct {
	document.Head
	Queues map[string]protocol.QueueDefinition `json:"queues"`

	revision uint64
}

// definitions reads the record; an empty one if there is none.
func (s *store) definitions(ctx context.Context) (*definitionsDoc, error) {
	entry, err := s.kv.Get(ctx, definitionsKey)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return &definitionsDoc{}, nil
	}
	if err != nil {
		return nil, unavailable(err)
	}
	return readDefinitions(entry)
}

func readDefinitions(entry jetstream.KeyValueEntry) (*definitionsDoc, error) {
	doc := &definitionsDoc{revision: entry.Revision()}
	return doc, document.Unmarshal(entry.Value(), doc)
}

// putDefinitions writes the record over the revision it was read at, and sets
// the new one. It is errMoved if that has changed.
func (s *store) putDefinitions(ctx context.Context, doc *definitionsDoc) error {
	data, err := document.Marshal(doc)
	if err != nil {
		return err
	}
	revision, err := s.write(ctx, definitionsKey, data, doc.revision)
	if errors.Is(err, jetstream.ErrKeyExists) || errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
		return errMoved
	}
	if err != nil {
		return unavailable(err)
	}
	doc.revision = revision
	return nil
}

// tellConfig tells everybody, who read it too by themselves.
func (s *Service) tellConfig(revision uint64) {
	body, err := json.Marshal(protocol.ConfigChanged{Revision: revision})
	if err == nil {
		err = s.nc.Publish(protocol.SubjectConfigChanged, body)
	}
	if err != nil {
		s.log.Warn("a change of the configuration could not be announced", "error", err)
	}
}
