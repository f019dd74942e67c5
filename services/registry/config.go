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

// configTime bounds an edit of the configuration.
const configTime = 8 * time.Second

// configEdit is a change of the configuration.
type configEdit struct {
	by     string
	expect *uint64 // the revision it is for; nil: whichever
	check  bool    // change nothing
	purge  bool    // queues that are removed lose their jobs
	// change makes the document what it is to be.
	change   func(set config.Document) (config.Document, error)
	restores uint64
}

// configState is the configuration at one revision.
type configState struct {
	doc    *configDoc
	result *config.Result
}

func complete(doc *configDoc) *configState {
	return &configState{doc: doc, result: config.Check(doc.set)}
}

// config is what holds.
func (c *configState) config() *protocol.Config { return &c.result.Config }

// revision is the state for people.
func (c *configState) revision() protocol.ConfigRevision {
	return protocol.ConfigRevision{Revision: c.doc.revision, At: c.doc.At, By: c.doc.By, Restores: c.doc.Restores}
}

// readConfig answers with the configuration, read anew.
func (s *Service) readConfig(ctx context.Context, q protocol.ConfigRequest) (protocol.StoredConfig, error) {
	doc, err := s.configAt(ctx, q.Revision)
	if err != nil {
		return protocol.StoredConfig{}, err
	}
	state := complete(doc)
	return protocol.StoredConfig{ConfigRevision: state.revision(), Config: *state.config(), Set: doc.set.JSON()}, nil
}

// configAt reads a revision, the newest for 0.
func (s *Service) configAt(ctx context.Context, revision uint64) (*configDoc, error) {
	if revision == 0 {
		return s.store.config(ctx)
	}
	all, err := s.store.configHistory(ctx)
	for _, doc := range all {
		if doc.revision == revision {
			return doc, err
		}
	}
	if err == nil {
		err = protocol.Errorf(protocol.CodeNotFound, "the configuration has no revision %d among the last %d that are kept", revision, history)
	}
	return nil, err
}

// history of the configuration, newest first.
func (s *Service) configHistory(ctx context.Context, q protocol.ConfigHistoryRequest) (protocol.ConfigHistory, error) {
	h := protocol.ConfigHistory{Revisions: []protocol.ConfigRevision{}}
	all, err := s.store.configHistory(ctx)
	for i := len(all) - 1; i >= 0 && (q.Limit <= 0 || len(h.Revisions) < q.Limit); i-- {
		revision := complete(all[i]).revision()
		if i > 0 {
			revision.Differences = config.Diff(all[i-1].set, all[i].set)
		} else if len(all) < history {
			revision.Differences = config.Diff(nil, all[i].set)
		}
		h.Revisions = append(h.Revisions, revision)
	}
	return h, err
}

// changeConfig answers a ConfigEdit.
func (s *Service) changeConfig(ctx context.Context, q protocol.ConfigEdit) (protocol.ConfigEdited, error) {
	e := configEdit{by: q.By, expect: q.Expect, check: q.Check, purge: q.Purge, restores: q.Restore}
	if len(q.By) > protocol.MaxConfigBy {
		return protocol.ConfigEdited{}, protocol.Errorf(protocol.CodeInvalidArgs, "by has %d bytes: it is who changes the configuration, at most %d", len(q.By), protocol.MaxConfigBy)
	}
	switch {
	case q.Restore != 0 && q.Change != nil:
		return protocol.ConfigEdited{}, protocol.Errorf(protocol.CodeInvalidArgs, "both change and restore are there: an edit has one of them")
	case q.Restore != 0:
		doc, err := s.configAt(ctx, q.Restore)
		if err != nil {
			return protocol.ConfigEdited{}, err
		}
		e.change = func(config.Document) (config.Document, error) { return doc.set, nil }
	default:
		change, err := config.ParseDocument(q.Change)
		if err != nil {
			return protocol.ConfigEdited{}, err
		}
		e.change = merging(change, q.Replace)
	}
	return s.editConfig(ctx, e)
}

// merging is a change by a merge patch.
func merging(change config.Document, replace bool) func(config.Document) (config.Document, error) {
	return func(set config.Document) (config.Document, error) {
		if replace {
			set = nil
		}
		return set.Merge(change), nil
	}
}

// editConfig changes the configuration: it is looked at as a whole, by the lanes
// of queues that change too, stored over the revision it was made for, and
// answered once all lanes work so. What cannot be changes nothing.
//
// Another edit at the same time is no matter, unless it is of the same keys: that
// is CONFLICT.
func (s *Service) editConfig(ctx context.Context, e configEdit) (protocol.ConfigEdited, error) {
	ctx, cancel := context.WithTimeout(ctx, configTime)
	defer cancel()
	var first *configDoc // as it was when the edit began
	for {
		before, after, err := s.edited(ctx, e, first)
		if err != nil {
			return protocol.ConfigEdited{}, err
		}
		if first == nil {
			first = before.doc
		}
		answer := protocol.ConfigEdited{
			ConfigRevision: before.revision(), Warnings: after.result.WarningTexts(),
		}
		answer.Differences = config.Diff(before.doc.set, after.doc.set)
		if e.check {
			return answer, nil
		}
		if len(answer.Differences) == 0 {
			return answer, s.confirmConfig(ctx, before)
		}
		if err := s.store.putConfig(ctx, after.doc); errors.Is(err, errMoved) {
			continue
		} else if err != nil {
			return answer, err
		}
		differences := answer.Differences
		answer.ConfigRevision = after.revision()
		answer.Differences = differences
		s.configuration.see(after)
		s.tellConfig(after)
		return answer, s.confirmConfig(ctx, after)
	}
}

// edited is the configuration before and after an edit that can be made.
func (s *Service) edited(ctx context.Context, e configEdit, first *configDoc) (before, after *configState, err error) {
	doc, err := s.store.config(ctx)
	if err != nil {
		return nil, nil, err
	}
	if e.expect != nil && *e.expect != doc.revision {
		return nil, nil, conflict(doc, "the edit is for revision %d", *e.expect)
	}
	set, err := e.change(doc.set)
	if err != nil {
		return nil, nil, err
	}
	if first != nil {
		wanted, err := e.change(first.set)
		if err == nil && config.Overlap(config.Diff(first.set, wanted), config.Diff(first.set, doc.set)) {
			return nil, nil, conflict(doc, "what the edit changes was changed by that")
		}
	}
	now := &configDoc{Head: doc.Head, By: e.by, At: time.Now().UTC(), Restores: e.restores, set: set, revision: doc.revision}
	if now.By == "" {
		now.By = "unknown"
	}
	before, after = complete(doc), complete(now)
	if err := after.result.Err(before.result.Unknown()...); err != nil {
		return nil, nil, err
	}
	return before, after, s.checkStore(ctx, before, after)
}

func conflict(doc *configDoc, format string, args ...any) error {
	return protocol.Errorf(protocol.CodeConflict, "the configuration is at revision %d, of %s by %s: "+format+"; read it, and edit that",
		append([]any{doc.revision, doc.At.Format(time.RFC3339), orUnknown(doc.By)}, args...)...)
}

func orUnknown(by string) string {
	if by == "" {
		return "an earlier version"
	}
	return by
}

// checkStore refuses what cannot be changed while messages are kept as they are.
func (s *Service) checkStore(ctx context.Context, before, after *configState) error {
	was, now := config.BuiltinOf(before.config().Adapter), config.BuiltinOf(after.config().Adapter)
	if was.StoreMethod == now.StoreMethod || now.StoreMethod != config.StoreMemory {
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
	return protocol.Errorf(protocol.CodeConflict, "adapter.config.store_method: messages of this mesh are on disk since its first start, and would be left behind: start another mesh with %s on an empty data directory", config.StoreMemory)
}
