package registry

import (
	"context"
	"slices"

	"github.com/waybill-mq/waybill/internal/config"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// readConfig answers with the configuration, read anew.
func (s *Service) readConfig(ctx context.Context, q protocol.ConfigRequest) (protocol.StoredConfig, error) {
	doc, err := s.configAt(ctx, q.Revision)
	if err != nil {
		return protocol.StoredConfig{}, err
	}
	state := complete(doc)
	return protocol.StoredConfig{ConfigRevision: state.revision(), Config: *state.config(), Set: doc.set.JSON(), Placement: state.placement()}, nil
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
		err = protocol.Errorf(protocol.CodeNotFound, "the configuration has no revision %d among the last %d, which are kept", revision, history)
	}
	return nil, err
}

// configHistory lists the revisions that are kept, newest first.
func (s *Service) configHistory(ctx context.Context, q protocol.ConfigHistoryRequest) (protocol.ConfigHistory, error) {
	h := protocol.ConfigHistory{Revisions: []protocol.ConfigRevision{}}
	all, err := s.store.configHistory(ctx)
	for i := len(all) - 1; i >= 0 && (q.Limit <= 0 || len(h.Revisions) < q.Limit); i-- {
		revision := complete(all[i]).revision()
		if i > 0 {
			revision.Differences = config.Diff(all[i-1].set, all[i].set)
		} else if len(all) < history { // else the one before is not known any more
			revision.Differences = config.Diff(nil, all[i].set)
		}
		h.Revisions = append(h.Revisions, revision)
	}
	return h, err
}

// changeConfig answers a ConfigEdit.
func (s *Service) changeConfig(ctx context.Context, q protocol.ConfigEdit) (protocol.ConfigEdited, error) {
	ctx, cancel := context.WithTimeout(ctx, editTime)
	defer cancel()
	e := configEdit{by: q.By, expect: q.Expect, check: q.Check, purge: q.Purge, restores: q.Restore, abandon: q.Abandon}
	var err error
	if e.change, err = s.changing(ctx, q); err != nil {
		return protocol.ConfigEdited{}, err
	}
	edit, err := s.editConfig(ctx, e)
	if err != nil {
		return protocol.ConfigEdited{}, err
	}
	answer := protocol.ConfigEdited{ConfigRevision: edit.after.revision(), Warnings: edit.after.result.WarningTexts()}
	answer.Differences = edit.differences
	answer.Warnings = append(answer.Warnings, brokerWarnings(&edit)...)
	if !q.Check {
		edit.warnings = append(edit.warnings, s.unmet(ctx, &edit)...)
	}
	answer.Warnings = append(answer.Warnings, slices.Compact(slices.Sorted(slices.Values(edit.warnings)))...)
	if edit.before.config().RunJobsIn != edit.after.config().RunJobsIn {
		answer.Warnings = append(answer.Warnings, "key run_jobs_in: routers read it when they start")
	}
	was, now := config.BuiltinOf(edit.before.config().Adapter), config.BuiltinOf(edit.after.config().Adapter)
	if was.InMemory() && !now.InMemory() {
		answer.Warnings = append(answer.Warnings, "key adapter.config.store_method: it holds from the next start of NATS on, with which what is in memory is lost")
	}
	if was.FilePath != now.FilePath {
		answer.Warnings = append(answer.Warnings, "key adapter.config.file_path: it has no effect any more: the store is where it was put at the first start")
	}
	return answer, nil
}

// changing is what a ConfigEdit changes.
func (s *Service) changing(ctx context.Context, q protocol.ConfigEdit) (func(*configState) (config.Document, error), error) {
	if len(q.By) > protocol.MaxConfigBy {
		return nil, protocol.Errorf(protocol.CodeInvalidArgs, "by has %d bytes: it says who changes the configuration, in at most %d", len(q.By), protocol.MaxConfigBy)
	}
	if q.Restore == 0 {
		change, err := config.ParseDocument(q.Change)
		return merging(change, q.Replace), err
	}
	if len(q.Change) > 0 {
		return nil, protocol.Errorf(protocol.CodeInvalidArgs, "both change and restore are there: an edit has one of them")
	}
	doc, err := s.configAt(ctx, q.Restore)
	if err != nil {
		return nil, err
	}
	return func(*configState) (config.Document, error) { return doc.set, nil }, nil
}

// merging is a change by a merge patch, of what was set or of nothing.
func merging(change config.Document, replace bool) func(*configState) (config.Document, error) {
	return func(now *configState) (config.Document, error) {
		if replace {
			return config.Document{}.Merge(change), nil
		}
		return now.doc.set.Merge(change), nil
	}
}
