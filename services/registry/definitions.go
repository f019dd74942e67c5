package registry

import (
	"cmp"
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
	now, err := s.configForPage(ctx, q.After)
	if err != nil {
		return page, err
	}
	queues := now.config().QueueConfigs
	page.Revision = now.doc.revision
	if q.Queue != "" {
		if d, known := queues[q.Queue]; known {
			page.Queues = append(page.Queues, protocol.DefinedQueue{Queue: q.Queue, Config: d})
		}
	} else {
		names := slices.Sorted(maps.Keys(queues))
		from := sort.Search(len(names), func(i int) bool { return names[i] > q.After })
		to := min(from+min(limit, pageWeight), len(names))
		for _, name := range names[from:to] {
			page.Queues = append(page.Queues, protocol.DefinedQueue{Queue: name, Config: queues[name]})
		}
		page.More = to < len(names)
	}
	if !q.Effective {
		return page, nil
	}
	return page, s.definedEffective(ctx, page.Queues)
}

// definedEffective adds what holds of named queues where they are.
func (s *Service) definedEffective(ctx context.Context, queues []protocol.DefinedQueue) error {
	subs := make([]protocol.Subscription, len(queues))
	for i := range queues {
		subs[i] = subscriptionOf(queues[i].Queue, &queues[i].Config)
	}
	all, err := s.effective(ctx, subs)
	for i := range queues {
		queues[i].Effective = all[i]
	}
	return err
}

// configForPage is the configuration, read anew for a first page alone: whoever
// pages begins again if the later ones are of another revision, and to read
// thousands of queues anew for each page would take longer than they wait.
func (s *Service) configForPage(ctx context.Context, after string) (*configState, error) {
	if after != "" {
		return s.configuration.state(), nil
	}
	doc, err := s.store.config(ctx)
	if err != nil {
		return nil, err
	}
	if known := s.configuration.state(); known != nil && known.doc.revision == doc.revision {
		return known, nil
	}
	now := complete(doc)
	s.configuration.see(now)
	return now, nil
}

// checkDefinitions refuses changes of queues that their lanes cannot make.
func (s *Service) checkDefinitions(ctx context.Context, edit *configEdited, purge bool) error {
	asking, ctx := errgroup.WithContext(ctx)
	asking.SetLimit(tellAtOnce)
	var refused error
	queues := edit.queues()
	warnings := make([][]string, len(queues))
	for i, queue := range queues {
		now, wanted := definitionOf(edit.before.config(), queue), definitionOf(edit.after.config(), queue)
		if refused = checkChange(queue, now, wanted); refused != nil {
			break
		}
		if wanted != nil && hasBrokers(edit.after.config()) {
			asking.Go(func() (err error) {
				warnings[i], err = s.grantDefinition(ctx, queue, wanted)
				return err
			})
		}
		switch {
		case wanted == nil && !purge:
			asking.Go(func() error {
				return s.checkEmpty(ctx, queue, "let them be done first, or say that they are to be discarded (purge)")
			})
		case regroups(now, wanted):
			asking.Go(func() error {
				return s.checkEmpty(ctx, queue, "they were given their groups when they came, so let them be done before type or message_group_field change")
			})
		}
	}
	err := asking.Wait()
	edit.warnings = slices.Concat(warnings...)
	return cmp.Or(refused, err)
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
