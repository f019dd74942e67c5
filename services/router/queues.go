package router

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/waybill-mq/waybill/internal/books"
	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

// defaultQueues are listed when the request does not say how many.
const defaultQueues = 1000

// queues answers SubjectQueues for the lanes this router owns.
func (s *Service) queues(ctx context.Context, r protocol.QueuesRequest) (protocol.QueuesPage, error) {
	page, err := s.lookAtQueues(ctx, r)
	for looks := 1; err == nil && looks < emptyLooks && s.hasBrokers() && slices.ContainsFunc(page.Queues, seemsEmpty); looks++ {
		select {
		case <-time.After(emptyAgain):
		case <-ctx.Done():
			return page, ctx.Err()
		}
		page, err = s.lookAtQueues(ctx, r)
	}
	return page, err
}

// A message on its way between a broker and its lane is seen in neither: a queue
// that seems empty is looked at again.
const (
	emptyLooks = 3
	emptyAgain = 20 * time.Millisecond
)

func seemsEmpty(q protocol.QueueInfo) bool {
	return q.Consumers > 0 && q.Ready+q.InFlight+q.Waiting == 0 && q.Unknown == ""
}

func (s *Service) lookAtQueues(ctx context.Context, r protocol.QueuesRequest) (protocol.QueuesPage, error) {
	page := protocol.QueuesPage{Instance: s.o.Instance}
	found, err := gather(ctx, s, func(l *lane) []protocol.QueueInfo { return l.list(r) })
	if err != nil {
		return page, err
	}
	page.Share, page.Queues = s.share(len(found)), slices.Concat(found...)
	slices.SortFunc(page.Queues, func(a, b protocol.QueueInfo) int { return cmp.Compare(a.Queue, b.Queue) })
	if limit := cmp.Or(max(r.Limit, 0), defaultQueues); len(page.Queues) > limit {
		page.Queues, page.More = page.Queues[:limit:limit], true
	}
	if err := s.lookFar(ctx, page.Queues); err != nil {
		return page, err
	}
	for i := range page.Queues {
		q := &page.Queues[i]
		q.Execution, q.Route, _ = scope.ParseScoped(q.Queue)
		q.Topic = scope.SubscribedTopic(q.Queue)
	}
	return page, nil
}

// share is what this router answers for, of all lanes.
func (s *Service) share(lanes int) protocol.Share {
	return protocol.Share{Ledgers: lanes, Total: len(s.slots())}
}

// list describes the lane's queues that are asked for: those that something is
// known of.
func (l *lane) list(r protocol.QueuesRequest) []protocol.QueueInfo {
	if r.Queue != "" {
		if at := l.ledger.Queue(r.Queue); at != nil {
			return []protocol.QueueInfo{l.describe(at)}
		}
		if q := l.queues[r.Queue]; q != nil && (q.isListed() || l.isFar(r.Queue)) {
			return []protocol.QueueInfo{q.info()}
		}
		return nil
	}
	var infos []protocol.QueueInfo
	for at := range l.ledger.Queues() {
		if books.Wanted(at.Name, &r) {
			infos = append(infos, l.describe(at))
		}
	}
	for name, q := range l.queues {
		if l.ledger.Queue(name) == nil && (q.isListed() || l.isFar(name)) && books.Wanted(name, &r) {
			infos = append(infos, q.info())
		}
	}
	return infos
}

// isListed says whether a queue that never held anything is one to people: it has
// a consumer, a topic, or a definition that somebody has made.
func (q *queue) isListed() bool {
	return len(q.consumers) > 0 || q.bound != nil || q.jobs != nil && q.jobs.definition != nil && q.jobs.name != protocol.DefaultQueue
}

// describe is what is known of a queue, which the lane may not have met since
// it was opened.
func (l *lane) describe(at *ledger.Queue) protocol.QueueInfo {
	if q := l.queues[at.Name]; q != nil {
		q.ledger, at.Slot = at, q
		return q.info()
	}
	return (&queue{name: at.Name, ledger: at}).info()
}

// gather asks every lane that is open here. One that closes meanwhile is left
// out: its next owner answers for it.
func gather[R any](ctx context.Context, s *Service, f func(l *lane) R) ([]R, error) {
	type answer struct{ r R }
	answers := make(chan answer, len(s.slots()))
	var all []R
	for _, at := range s.slots() {
		o := at.current.Load()
		if o == nil || !o.running.Send(call(func(l *lane) { answers <- answer{f(l)} })) {
			continue
		}
		select {
		case a := <-answers:
			all = append(all, a.r)
		case <-o.running.Done():
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return all, nil
}

// stats answers SubjectStats.
func (s *Service) stats(ctx context.Context, _ protocol.Empty) (protocol.Stats, error) {
	found, err := gather(ctx, s, (*lane).total)
	if err != nil {
		return protocol.Stats{}, err
	}
	sum := totals{far: farTotals{brokers: map[string]protocol.BrokerStats{}}}
	for _, t := range found {
		sum.counters.Add(&t.counters)
		sum.queues += t.queues
		sum.moving += t.moving
		sum.far.join(&t.far)
		sum.unattended += t.unattended
		sum.stalled = max(sum.stalled, t.stalled)
		sum.messages, sum.bytes = max(sum.messages, t.messages), max(sum.bytes, t.bytes)
	}
	sum.counters.All[ledger.Superseded] += s.superseded.Load()
	sum.counters.All[ledger.Refused] += s.refused.Load()
	load, held := s.ownLoad(), float64(s.inWorkersHands())
	stats := protocol.Stats{
		Share:   s.share(len(found)),
		Service: serviceName, Instance: s.o.Instance, Version: s.o.Version,
		Counters: told(&sum.counters), Routes: sum.counters.Told(),
		Gauges: map[string]float64{
			"lanes": float64(len(found)), "queues": float64(sum.queues), "workers": float64(len(s.directory.all())),
			"ready": float64(load.Messages+sum.far.live+sum.far.ready) - float64(sum.moving) - held, "in_flight": held,
			"moving": float64(sum.moving), "bytes": float64(load.Bytes),
			"unattended_queues": float64(sum.unattended), "stalled_seconds": sum.stalled.Seconds(),
		},
	}
	s.placed().gauges(&stats, &sum.far)
	maps.Copy(stats.Gauges, s.fullness(sum.messages, sum.bytes))
	if s.space.watched.Load() {
		stats.Gauges["disk_room_bytes"] = float64(s.space.left.Load())
	}
	return stats, nil
}

// told are the counters of a router, also those that are 0: who watches one has
// to find it before it counts.
func told(sum *books.Counts) map[string]uint64 {
	all := make(map[string]uint64)
	for _, c := range []ledger.Counter{
		ledger.Published, ledger.Deduplicated, ledger.Refused, ledger.Delivered, ledger.Acknowledged, ledger.Filtered, ledger.Failed, ledger.Rejected,
		ledger.Incomplete, ledger.Vanished, ledger.Retried, ledger.DeadLettered, ledger.Superseded, ledger.Lost, ledger.Discarded, ledger.HandedBack,
	} {
		all[c.String()] = 0
	}
	maps.Copy(all, sum.Named())
	return all
}

type totals struct {
	counters   books.Counts
	queues     int
	unattended int // queues with messages and no consumer
	moving     int64
	far        farTotals
	stalled    time.Duration
	// Of the limits of one queue the fullest queue uses so much.
	messages, bytes float64
}

// stalled is for how long the same message has been the next one, as far as
// somebody looked.
func (q *queue) stalled(now int64) time.Duration {
	e := q.ready.peek()
	if e == nil {
		q.head = 0
		return 0
	}
	if e.Key != q.head {
		q.head, q.headSince = e.Key, now
	}
	return time.Duration(now - q.headSince)
}

func (l *lane) total() totals {
	t := totals{counters: books.Counted(l.ledger), far: l.totalFar()}
	t.stalled = t.far.stalled
	for at := range l.ledger.Queues() {
		if scope.OfDiagnosis(at.Name) {
			continue
		}
		t.messages = max(t.messages, ratio(at.Live, l.s.o.Limits.QueueMessages))
		t.bytes = max(t.bytes, ratio(at.Bytes, l.s.o.Limits.QueueBytes))
		q, ok := at.Slot.(*queue)
		if !ok {
			q = l.queues[at.Name]
		}
		t.add(l, q, at.Live)
	}
	for name := range t.far.holds {
		if l.ledger.Queue(name) == nil {
			t.add(l, l.queues[name], 0)
		}
	}
	return t
}

// add adds a queue of which the ledger holds so much; nil: the lane has not met it
// since it was opened.
func (t *totals) add(l *lane, q *queue, live int64) {
	t.queues++
	if q == nil {
		return
	}
	t.moving += q.moving
	if len(q.consumers) == 0 && live+t.far.holds[q.name] > q.moving {
		t.unattended++
	}
	t.stalled = max(t.stalled, q.stalled(l.now))
}

// ready answers SubjectReady.
func (s *Service) ready(context.Context, protocol.Empty) (protocol.Ready, error) {
	_, waiting := s.keeper.Ready()
	if !s.directory.known.Load() {
		waiting = append(waiting, "the registry has not told who works")
	}
	away, notes := s.placed().away()
	waiting = append(waiting, away...)
	if !s.definitions.isKnown() {
		waiting = append(waiting, "the registry has not told how queues are defined")
	}
	if !s.next.known() {
		waiting = append(waiting, "retry and dlq have not been started on this NATS")
	}
	return protocol.Ready{Service: serviceName, Instance: s.o.Instance, Ready: len(waiting) == 0, Waiting: waiting, Notes: notes}, nil
}
