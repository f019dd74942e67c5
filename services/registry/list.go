package registry

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sort"
	"strings"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

const (
	defaultPage = 1000
	maxPage     = 10000
	pageWeight  = 1024 // subscriptions and functions; a page with more is cut, so that it stays a message
)

func pageSize(limit int) (int, error) {
	if limit < 0 || limit > maxPage {
		return 0, protocol.Errorf(protocol.CodeInvalidArgs, "limit is %d: it has to be from 1 to %d, or left out for %d", limit, maxPage, defaultPage)
	}
	return cmp.Or(limit, defaultPage), nil
}

// workers lists workers in order of id. A page may have fewer than were asked
// for; More says whether others follow.
func (s *Service) workers(_ context.Context, q protocol.WorkersRequest) (protocol.WorkersPage, error) {
	settings := s.configuration.settings()
	page := protocol.WorkersPage{Workers: []protocol.Worker{}, Settings: &settings}
	limit, err := pageSize(q.Limit)
	if err != nil {
		return page, err
	}
	all := s.known.all()
	from := sort.Search(len(all), func(i int) bool { return all[i].ID > q.After })
	weight := 0
	for _, doc := range all[from:] {
		weight += len(doc.Subscriptions) + len(doc.Functions)
		if len(page.Workers) == limit || (weight > pageWeight && len(page.Workers) > 0) {
			page.More = true
			break
		}
		page.Workers = append(page.Workers, doc.Worker)
	}
	return page, nil
}

// subscriptions lists subscriptions in order of queue and id.
func (s *Service) subscriptions(ctx context.Context, q protocol.SubscriptionsRequest) (protocol.SubscriptionsPage, error) {
	page := protocol.SubscriptionsPage{Subscriptions: []protocol.SubscriptionInfo{}}
	limit, err := pageSize(q.Limit)
	if err != nil {
		return page, err
	}
	if q.Offset < 0 {
		return page, protocol.Errorf(protocol.CodeInvalidArgs, "offset is %d: it has to be 0 or more", q.Offset)
	}
	if q.Execution != "" {
		if err := scope.CheckExecution(q.Execution); err != nil {
			return page, err
		}
	}
	if q.Topic != "" {
		if err := scope.CheckTopic(q.Topic); err != nil {
			return page, err
		}
	}
	all := s.subscriptionsOf(q.Execution, q.Topic)
	from := min(q.Offset, len(all))
	to := min(from+min(limit, pageWeight), len(all))
	page.Subscriptions = append(page.Subscriptions, all[from:to]...)
	page.More = to < len(all)
	if !q.Effective {
		return page, nil
	}
	listed := make([]*protocol.SubscriptionInfo, len(page.Subscriptions))
	for i := range listed {
		listed[i] = &page.Subscriptions[i]
	}
	return page, s.withEffective(ctx, listed)
}

// subscriptionsOf are those of an execution and to a topic; "" is any.
func (s *Service) subscriptionsOf(execution, topic string) []protocol.SubscriptionInfo {
	var all []protocol.SubscriptionInfo
	for _, doc := range s.known.all() {
		for _, sub := range doc.Subscriptions {
			if (execution == "" || sub.Execution == execution) && (topic == "" || sub.Topic == topic) {
				all = append(all, protocol.SubscriptionInfo{Subscription: sub, WorkerName: doc.Name, Namespace: doc.Namespace})
			}
		}
	}
	slices.SortFunc(all, func(a, b protocol.SubscriptionInfo) int {
		return cmp.Or(strings.Compare(a.Queue, b.Queue), strings.Compare(a.ID, b.ID))
	})
	return all
}

// functions lists functions, in order of namespace and id, and who serves each.
func (s *Service) functions(_ context.Context, q protocol.FunctionsRequest) (protocol.FunctionsPage, error) {
	page := protocol.FunctionsPage{Functions: []protocol.FunctionInfo{}}
	if q.Namespace != "" {
		if err := scope.CheckNamespace(q.Namespace); err != nil {
			return page, err
		}
	}
	workers := map[protocol.FunctionSpec][]string{}
	for _, doc := range s.known.all() {
		for _, f := range doc.Functions {
			if q.Namespace == "" || f.Namespace == q.Namespace {
				workers[f.FunctionSpec] = append(workers[f.FunctionSpec], doc.ID)
			}
		}
	}
	specs := slices.SortedFunc(maps.Keys(workers), func(a, b protocol.FunctionSpec) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.ID, b.ID))
	})
	for _, f := range specs {
		page.Functions = append(page.Functions, protocol.FunctionInfo{FunctionSpec: f, Workers: slices.Compact(workers[f])})
	}
	return page, nil
}

// policy is what the newest subscription of a queue asked for, also when it is
// gone; of a named queue its definition.
func (s *Service) policy(ctx context.Context, q protocol.PolicyRequest) (protocol.Policy, error) {
	if name, ok := scope.NamedQueue(q.Queue); ok {
		return s.definedPolicy(name)
	}
	doc, _, err := s.store.policy(ctx, q.Queue)
	return doc.Policy, err
}

func (s *Service) definedPolicy(queue string) (protocol.Policy, error) {
	d := definitionOf(s.configuration.state().config(), queue)
	if d == nil {
		return protocol.Policy{}, protocol.Errorf(protocol.CodeNotFound, "no queue is called %s: define it, or see which there are (waybill queue ls)", queue)
	}
	p := protocol.Policy{
		MaxRetries: d.MaxRetries, BackoffMs: d.BackoffMs, TimeoutMs: d.TimeoutMs, OnDeadLetter: d.OnDeadLetter, MaxPriority: uint8(d.MaxPriority),
	}
	if d.Type == protocol.TypeFIFO {
		p.Type = protocol.TypeFIFO
	}
	return p, nil
}
