package registry

import (
	"context"
	"errors"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/waybill-mq/waybill/internal/document"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// executionKey is followed by the id of a closed execution.
const executionKey = "execution."

// executionDoc is the record of a closed execution.
type executionDoc struct {
	document.Head
	protocol.Execution
	// Forgotten: it is gone, and no ledger knows anything of it any more.
	Forgotten bool `json:"forgotten,omitempty"`

	revision uint64 // in the bucket; 0: not there
}

func readExecution(entry jetstream.KeyValueEntry) (*executionDoc, error) {
	d := &executionDoc{revision: entry.Revision()}
	return d, document.Unmarshal(entry.Value(), d)
}

// execution reads an execution's record; nil if it is not closed.
func (s *store) execution(ctx context.Context, id string) (*executionDoc, error) {
	entry, err := s.kv.Get(ctx, executionKey+id)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, nil //nolint:nilnil // no record is no error
	}
	if err != nil {
		return nil, unavailable(err)
	}
	return readExecution(entry)
}

// putExecution writes an execution's record over the revision it was read at,
// and sets the new one. It is errMoved if that has changed.
func (s *store) putExecution(ctx context.Context, d *executionDoc) error {
	data, err := document.Marshal(d)
	if err != nil {
		return err
	}
	revision, err := s.write(ctx, executionKey+d.Execution.Execution, data, d.revision)
	if errors.Is(err, jetstream.ErrKeyExists) || errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
		return errMoved
	}
	if err != nil {
		return unavailable(err)
	}
	d.revision = revision
	return nil
}

// dropExecution removes an execution's record: a marker tells every registry,
// and is removed too.
func (s *store) dropExecution(ctx context.Context, id string) error {
	if err := s.kv.Delete(ctx, executionKey+id); err != nil {
		return unavailable(err)
	}
	return unavailable(s.stream.Purge(ctx, jetstream.WithPurgeSubject("$KV."+Bucket+"."+executionKey+id)))
}

// dropPolicies removes the policies of an execution's queues.
func (s *store) dropPolicies(ctx context.Context, id string) error {
	return unavailable(s.stream.Purge(ctx, jetstream.WithPurgeSubject("$KV."+Bucket+"."+policyKey+id+".>")))
}

// rest takes the subscriptions of an execution that is gone out of what workers
// have, and lays them by: they are theirs again if it is reopened before they
// declare anew.
func (s *Service) rest(ctx context.Context, execution string) error {
	return s.rewrite(ctx, func(doc *workerDoc) bool {
		return move(&doc.Subscriptions, &doc.Resting, execution)
	})
}

// rise undoes rest.
func (s *Service) rise(ctx context.Context, execution string) error {
	return s.rewrite(ctx, func(doc *workerDoc) bool {
		return move(&doc.Resting, &doc.Subscriptions, execution)
	})
}

// move moves the subscriptions of an execution, if there are any.
func move(from, to *[]protocol.Subscription, execution string) bool {
	var stay, leave []protocol.Subscription
	for _, sub := range *from {
		if sub.Execution == execution {
			leave = append(leave, sub)
			continue
		}
		stay = append(stay, sub)
	}
	*from, *to = stay, append(slices.Clip(*to), leave...)
	return len(leave) > 0
}

// rewrite changes the records of workers where change says that it did.
func (s *Service) rewrite(ctx context.Context, change func(doc *workerDoc) bool) error {
	for _, doc := range s.known.all() {
		for doc != nil && !doc.Gone {
			next := *doc
			if !change(&next) {
				break
			}
			err := s.store.put(ctx, &next)
			if err == nil {
				s.announce(&next)
				break
			}
			if !errors.Is(err, errMoved) {
				return err
			}
			if doc, err = s.store.worker(ctx, doc.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// worked are the executions that workers have subscriptions of.
func (d *directory) worked() map[string]bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	worked := map[string]bool{}
	for _, doc := range d.workers {
		for i := range doc.Subscriptions {
			worked[doc.Subscriptions[i].Execution] = true
		}
	}
	return worked
}
