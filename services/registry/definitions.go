package registry

import (
	"context"
	"maps"
	"slices"
	"sort"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

// listDefinitions lists the named queues in order of name.
func (s *Service) listDefinitions(ctx context.Context, q protocol.DefinitionsRequest) (protocol.DefinitionsPage, error) {
	page := protocol.DefinitionsPage{Queues: []protocol.DefinedQueue{}}
	limit, err := pageSize(q.Limit)
	if err != nil {
		return page, err
	}
	doc, err := s.store.config(ctx)
	if err != nil {
		return page, err
	}
	queues := complete(doc).config().QueueConfigs
	page.Revision = doc.revision
	if q.Queue != "" {
		if d, known := queues[q.Queue]; known {
			page.Queues = append(page.Queues, protocol.DefinedQueue{Queue: q.Queue, Config: d})
		}
		return page, nil
	}
	names := slices.Sorted(maps.Keys(queues))
	from := sort.Search(len(names), func(i int) bool { return names[i] > q.After })
	to := min(from+min(limit, pageWeight), len(names))
	for _, name := range names[from:to] {
		page.Queues = append(page.Queues, protocol.DefinedQueue{Queue: name, Config: queues[name]})
	}
	page.More = to < len(names)
	return page, nil
}

// checkDefinitions refuses changes of queues that their lanes cannot make.
func (s *Service) checkDefinitions(ctx context.Context, edit *configEdited, purge bool) error {
	for _, queue := range edit.queues() {
		now, wanted := definitionOf(edit.before.config(), queue), definitionOf(edit.after.config(), queue)
		if err := checkChange(queue, now, wanted); err != nil {
			return err
		}
		if wanted == nil && !purge {
			if err := s.checkEmpty(ctx, queue); err != nil {
				return err
			}
		}
	}
	return nil
}

// queues are those with another definition than before, or none any more.
func (e *configEdited) queues() []string {
	var all []string
	before, after := e.before.config(), e.after.config()
	for queue := range before.QueueConfigs {
		if !sameDefinition(definitionOf(before, queue), definitionOf(after, queue)) {
			all = append(all, queue)
		}
	}
	for queue := range after.QueueConfigs {
		if _, was := before.QueueConfigs[queue]; !was {
			all = append(all, queue)
		}
	}
	slices.Sort(all)
	return all
}

// tellAtOnce is how many queues' lanes are told at a time.
const tellAtOnce = 64

// confirmDefinitions returns when the lanes of queues that changed work so.
func (s *Service) confirmDefinitions(ctx context.Context, edit *configEdited, purge bool) error {
	telling, ctx := errgroup.WithContext(ctx)
	telling.SetLimit(tellAtOnce)
	var discarded atomic.Int64
	for _, queue := range edit.queues() {
		telling.Go(func() error {
			n, err := s.confirmDefinition(ctx, edit.after, queue, purge)
			discarded.Add(n)
			return err
		})
	}
	err := telling.Wait()
	edit.discarded = discarded.Load()
	return err
}

func (s *Service) confirmDefinition(ctx context.Context, now *configState, queue string, purge bool) (discarded int64, err error) {
	told, err := s.redefine(ctx, protocol.LaneDefinition{Queue: queue, Config: definitionOf(now.config(), queue), Purge: purge, Revision: now.doc.revision})
	if err != nil || !purge || definitionOf(now.config(), queue) != nil {
		return told.Discarded, err
	}
	waiting, err := mesh.Request[protocol.WaitingActReply](ctx, s.nc, protocol.SubjectWaitingCancel, protocol.WaitingActRequest{Queue: scope.JobsQueue(queue)})
	return told.Discarded + waiting.Count, err
}
