package registry

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// effective asks the owners of the lanes what holds of subscriptions where their queues
// are, in the same order. Where nobody says it, or all is as asked for, it is nil.
func (s *Service) effective(ctx context.Context, subs []protocol.Subscription) ([]*protocol.Effective, error) {
	all := make([]*protocol.Effective, len(subs))
	if !hasBrokers(s.configuration.state().config()) {
		return all, nil
	}
	total, err := s.ledgers(ctx, "router")
	if total == 0 || err != nil {
		return all, err
	}
	byLane := make(map[int][]int)
	for i := range subs {
		lane := ledger.Of(subs[i].Queue, total)
		byLane[lane] = append(byLane[lane], i)
	}
	var asking errgroup.Group
	for lane, at := range byLane {
		asking.Go(func() error {
			for some := range slices.Chunk(at, pageWeight) {
				s.effectiveIn(ctx, ledger.Name("router", lane), subs, some, all)
			}
			return nil
		})
	}
	return all, asking.Wait()
}

// withEffective adds to subscriptions what holds of them.
func (s *Service) withEffective(ctx context.Context, all []*protocol.SubscriptionInfo) error {
	subs := make([]protocol.Subscription, len(all))
	for i := range all {
		subs[i] = all[i].Subscription
	}
	holds, err := s.effective(ctx, subs)
	for i := range holds {
		all[i].Effective = holds[i]
	}
	return err
}

// effectiveIn asks one lane for some of the subscriptions.
func (s *Service) effectiveIn(ctx context.Context, lane string, subs []protocol.Subscription, some []int, all []*protocol.Effective) {
	q := protocol.GrantRequest{Effective: true}
	for _, i := range some {
		sub := &subs[i]
		asked := protocol.Subscription{
			Queue: sub.Queue, Type: sub.Type, MaxRetries: sub.MaxRetries, RetriesDefault: sub.RetriesDefault, BackoffMs: sub.BackoffMs, MaxPriority: sub.MaxPriority,
		}
		asked.BackoffType, asked.DelayMs = sub.BackoffType, sub.DelayMs
		q.Subscriptions = append(q.Subscriptions, asked)
	}
	granted, err := s.askGrant(ctx, lane, q)
	if err != nil || len(granted.Effective) != len(some) { // one of an earlier version
		return
	}
	for k, i := range some {
		all[i] = &granted.Effective[k]
	}
}

// mostUnmet bounds what an edit tells.
const mostUnmet = 20

// unmet is what registered subscriptions and named queues ask for and do not get where
// an edit has led them, which is in the log too.
func (s *Service) unmet(ctx context.Context, edit *configEdited) []string {
	if !moves(edit.before, edit.after) {
		return nil
	}
	var subs []protocol.Subscription
	for _, info := range s.subscriptionsOf("", "") {
		subs = append(subs, info.Subscription)
	}
	for name, d := range edit.after.config().QueueConfigs {
		subs = append(subs, subscriptionOf(name, &d))
	}
	all, err := s.effective(ctx, subs)
	if err != nil {
		s.log.Warn("whether the brokers can do what is asked of them could not be found out", "error", err)
	}
	told := map[string]bool{}
	for _, e := range all {
		if e == nil {
			continue
		}
		for _, text := range e.Warnings {
			told[text] = true
		}
		if e.Unmet != "" {
			told[e.Unmet] = true
		}
	}
	warnings := slices.Sorted(maps.Keys(told))
	for _, text := range warnings {
		s.log.Warn("a queue is where not all of what is asked for can be done", "what", text)
	}
	if more := len(warnings) - mostUnmet; more > 0 {
		warnings = append(warnings[:mostUnmet], fmt.Sprintf("and %d more of the kind (waybill subscription ls, waybill diagnose)", more))
	}
	return warnings
}
