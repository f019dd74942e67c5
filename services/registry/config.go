package registry

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/waybill-mq/waybill/internal/config"
	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// configEdit is a change of the configuration.
type configEdit struct {
	by       string
	restores uint64   // the revision that is to be again
	expect   *uint64  // the revision it is for; nil: whichever
	check    bool     // change nothing
	purge    bool     // queues that are removed lose their jobs
	abandon  []string // names of brokers that may be retired with what they hold
	left     []string // ids of brokers that are retired, and empty
	// change makes what was set what is to be, in a tree of its own.
	change func(now *configState) (config.Document, error)
}

// configEdited is what became of it.
type configEdited struct {
	before, after *configState // the same if nothing was to change
	differences   []protocol.ConfigDifference
	discarded     int64    // jobs of queues that are gone
	warnings      []string // for what of queues has no effect on their brokers
}

// configState is the configuration at one revision.
type configState struct {
	doc    *configDoc
	result *config.Result
	places []protocol.PlacedBroker // the brokers outside of the mesh
}

func complete(doc *configDoc) *configState {
	c := &configState{doc: doc, result: config.Check(doc.set)}
	c.places = config.Places(c.config(), doc.Brokers)
	return c
}

// config is what holds.
func (c *configState) config() *protocol.Config { return &c.result.Config }

// revision is the state for people.
func (c *configState) revision() protocol.ConfigRevision {
	return protocol.ConfigRevision{Revision: c.doc.revision, At: c.doc.At, By: c.doc.By, Restores: c.doc.Restores}
}

// editConfig changes the configuration. The change is looked at as a whole, and
// by whoever has to agree; stored over the revision it was made for; and over
// when every lane works so. What cannot be changes nothing.
//
// Another edit at the same time is no matter, unless it is of the same keys: that
// is CONFLICT.
func (s *Service) editConfig(ctx context.Context, e configEdit) (configEdited, error) {
	var first *configState // as it was when the edit began
	for {
		edit, err := s.prepared(ctx, e, first)
		if err != nil || e.check {
			return edit, err
		}
		if first == nil {
			first = edit.before
		}
		if edit.after != edit.before {
			if err := s.store.putConfig(ctx, edit.after.doc); errors.Is(err, errMoved) {
				continue
			} else if err != nil {
				return edit, err
			}
			s.configuration.see(edit.after)
			s.tellConfig(edit.after)
		}
		if s.o.Alone {
			return edit, nil
		}
		err = s.confirmConfig(ctx, &edit, e.purge)
		return edit, err
	}
}

// prepared is an edit that can be made.
func (s *Service) prepared(ctx context.Context, e configEdit, first *configState) (configEdited, error) {
	doc, err := s.store.config(ctx)
	if err != nil {
		return configEdited{}, err
	}
	if e.expect != nil && *e.expect != doc.revision {
		return configEdited{}, conflict(doc, "the edit is for revision %d", *e.expect)
	}
	edit := configEdited{before: complete(doc)}
	set, err := e.change(edit.before)
	if err != nil {
		return edit, err
	}
	if first != nil && first.doc.revision != doc.revision {
		if wanted, err := e.change(first); err == nil && config.Overlap(config.Diff(first.doc.set, wanted), config.Diff(first.doc.set, doc.set)) {
			return edit, conflict(doc, "that changed the same, at the same time")
		}
	}
	edit.differences = config.Diff(doc.set, set)
	by := e.by
	if by == "" {
		by = "unknown"
	}
	edit.after = complete(&configDoc{Head: doc.Head, By: by, At: time.Now().UTC(), Restores: e.restores, Seeded: true, set: set, revision: doc.revision})
	edit.after.placedAfter(edit.before, append(edit.before.idsOf(e.abandon), e.left...))
	if len(edit.differences) == 0 && !moves(edit.before, edit.after) {
		edit.after = edit.before
		return edit, nil
	}
	if err := edit.after.result.Err(edit.before.result.Unknown()...); err != nil {
		return edit, err
	}
	if err := s.checkStore(ctx, edit.before, edit.after); err != nil {
		return edit, err
	}
	if s.o.Alone {
		err := s.checkAlone(ctx, &edit, e.abandon)
		return edit, err
	}
	if len(e.left) == 0 {
		if err := s.checkBrokers(ctx, edit.before, edit.after, e.abandon); err != nil {
			return edit, err
		}
	}
	err = s.checkDefinitions(ctx, &edit, e.purge)
	return edit, err
}

// checkAlone refuses what cannot be done while no other service runs.
func (s *Service) checkAlone(ctx context.Context, edit *configEdited, abandon []string) error {
	if queues := edit.queues(); len(queues) > 0 {
		return protocol.Errorf(protocol.CodeUnavailable, "the queue %s cannot be defined, changed or removed while the mesh is stopped: leave queue_configs out, and do that when it runs", queues[0])
	}
	return s.checkRetired(ctx, edit.before, edit.after, abandon)
}

func conflict(doc *configDoc, format string, args ...any) error {
	by := doc.By
	if by == "" {
		by = "an earlier version"
	}
	return protocol.Errorf(protocol.CodeConflict, "the configuration is at revision %d, made by %s at %s: "+format+"; read it, and change that",
		append([]any{doc.revision, by, doc.At.Format(time.RFC3339)}, args...)...)
}

// checkStore refuses what cannot be changed while messages are kept as they are.
func (s *Service) checkStore(ctx context.Context, before, after *configState) error {
	was, now := config.BuiltinOf(before.config().Adapter), config.BuiltinOf(after.config().Adapter)
	if was.InMemory() || !now.InMemory() {
		return nil
	}
	stream, err := s.store.js.Stream(ctx, ledger.StreamOf("router"))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil {
		return unavailable(err)
	}
	if stream.CachedInfo().Config.Storage == jetstream.MemoryStorage {
		return nil
	}
	return protocol.Errorf(protocol.CodeConflict, "adapter.config.store_method: the messages of this mesh are on disk since its first start, and would be left behind: start another mesh with %s, on an empty data directory", config.StoreMemory)
}
