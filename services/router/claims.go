package router

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker"
)

// A router does not record its dispatches, so a new owner of a lane does not
// know which of its messages are being worked on. The workers do: it asks them
// and withholds meanwhile what it replayed, but nothing that is published
// since. So a handler that runs while the mesh restarts runs once.
type takeover struct {
	active   bool
	until    int64 // those that did not answer by then are not waited for
	queues   []*queue
	answered map[*worker]bool
	asked    map[*worker]int64 // asked again from then on
}

const claimsAgain = 500 * time.Millisecond

func (t *takeover) begin(l *lane) {
	*t = takeover{
		until:    l.now + int64(protocol.WorkerSilence),
		answered: make(map[*worker]bool), asked: make(map[*worker]int64),
	}
	for _, q := range l.queues {
		if q.held.size > 0 {
			t.queues = append(t.queues, q)
		}
	}
	t.active = len(t.queues) > 0
}

// tick asks the workers that have not answered and releases the queues of
// those that all have.
func (t *takeover) tick(l *lane) {
	if !l.endDiversions() || !t.active {
		return
	}
	over := l.now >= t.until
	kept := t.queues[:0]
	for _, q := range t.queues {
		if over || t.known(l, q) {
			q.release(l)
			continue
		}
		kept = append(kept, q)
	}
	t.queues = kept
	if len(kept) == 0 {
		*t = takeover{}
	}
}

// known says whether every worker of the queue has said what it runs, and asks
// those that have not. A queue without workers is not known: they may be about
// to come back.
func (t *takeover) known(l *lane, q *queue) bool {
	if q.held.size == 0 {
		return true
	}
	workers := q.workers()
	all := len(workers) > 0 && l.s.directory.known.Load()
	for _, w := range workers {
		if t.answered[w] {
			continue
		}
		all = false
		if l.now >= t.asked[w] {
			t.asked[w] = l.now + int64(claimsAgain)
			l.askClaims(w)
		}
	}
	return all
}

// workers are those who may run something of the queue. What function a job is
// for is not known until it is read.
func (q *queue) workers() []*worker {
	if q.jobs != nil {
		return slices.Collect(maps.Keys(q.lane.servers))
	}
	workers := make([]*worker, len(q.consumers))
	for i, c := range q.consumers {
		workers[i] = c.worker
	}
	return workers
}

func (t *takeover) next(l *lane) int64 {
	if !t.active {
		return l.now + int64(idle)
	}
	return min(t.until, l.now+int64(claimsAgain))
}

// release makes what is still withheld deliverable.
func (q *queue) release(l *lane) {
	q.held.ahead(func(e *broker.Entry) bool {
		e.Slot = nil
		return true
	})
	q.unhold()
	l.wake(q)
}

func (l *lane) askClaims(w *worker) {
	q := protocol.ClaimsRequest{Lane: l.slot.name, Epoch: l.ledger.Epoch(), Frames: true}
	if err := l.s.ask(protocol.WorkerSubject(w.id, protocol.VerbClaims), l.claimsInbox(w), q); err != nil {
		l.s.log.Debug("a worker could not be asked what it runs", "worker", w.id, "error", err)
	}
}

// claimed takes a worker's answer: what it has finished counts, what it runs
// is in its hands, and what it should have but does not know was lost on the
// way and is delivered again.
func (l *lane) claimed(id string, asked int64, m *nats.Msg) {
	var claims protocol.Claims
	if m.Header.Get(protocol.HeaderStatus) != "" || json.Unmarshal(m.Data, &claims) != nil {
		return
	}
	w := l.s.directory.worker(id)
	if w == nil {
		return
	}
	w.seen.Store(l.now)
	known := make(map[token]bool, len(claims.Running)+len(claims.Finished))
	for _, f := range claims.Finished {
		if t, ok := l.seal.open(f.Token); ok && !known[t] {
			known[t] = true
			if l.awaits(t) {
				l.conclude(t, conclusion{outcome: said(f.Outcome), text: errorText(f.Error), afterMs: f.RetryAfterMs, worker: w})
			}
		}
	}
	for _, text := range claims.Running {
		if t, ok := l.seal.open(text); ok {
			known[t] = true
			l.resumed(w, t)
		}
	}
	l.audits.compare(l, w, asked, known)
	if l.takeover.active {
		l.takeover.answered[w] = true
	}
}

// awaits says whether the outcome of the token's delivery is not known yet.
// Workers tell again and again what they have finished.
func (l *lane) awaits(t token) bool {
	e := l.entry(t.key)
	if e == nil || e.Decided || e.Slot == settled || t != l.tokenOf(e) {
		return false
	}
	d, inHand := e.Slot.(*delivery)
	return !inHand || d.stage == running || d.stage == overdue
}

// resumed notes that w runs a delivery of an earlier owner. Its time limit
// begins again: when it began is not known.
func (l *lane) resumed(w *worker, t token) {
	e := l.entry(t.key)
	if e == nil || e.Decided || t != l.tokenOf(e) {
		return
	}
	switch e.Slot.(type) {
	case *delivery:
		return
	case place:
		if e.Slot != held {
			return
		}
	default:
		return // delivered again already, or about to be: it was late
	}
	q := l.queueOf(e)
	q.noLongerHeld(e)
	l.begin(e, q, l.consumerOf(w, q))
}

// consumerOf is w's consumer of q. One that has unsubscribed since is made up,
// and so is one of a job, which may be for any function: it takes nothing more.
func (l *lane) consumerOf(w *worker, q *queue) *consumer {
	sub := protocol.Subscription{Worker: w.id, Queue: q.name, MaxRetries: q.policy.maxRetries, BackoffMs: q.policy.backoffMs}
	if q.jobs != nil {
		sub = q.jobs.subscription(w, "", "", nil)
	}
	for _, c := range q.consumers {
		if c.worker == w && q.jobs == nil {
			return c
		}
	}
	c := newConsumer(q, w, time.Time{}, sub)
	c.gone = true
	return c
}

// audits ask workers from time to time what they run, so that a delivery or an
// outcome that was lost with somebody's connection does not wait for its time
// limit.
type audits struct{ at int64 }

const (
	auditEvery  = 10 * time.Second
	auditMargin = 5 * time.Second // a younger delivery may still be on its way
)

func (a *audits) tick(l *lane) {
	if l.now < a.at {
		return
	}
	a.at = l.now + int64(auditEvery)
	asked := make(map[*worker]bool)
	for _, list := range l.deadlines {
		for d := list.first; d != nil && d.started < l.now-int64(auditEvery); d = d.next {
			if !asked[d.c.worker] {
				asked[d.c.worker] = true
				l.askClaims(d.c.worker)
			}
		}
	}
}

func (a *audits) next(l *lane) int64 {
	if l.held.Load() == 0 {
		return l.now + int64(idle)
	}
	return a.at
}

// compare puts back what w does not know of.
func (a *audits) compare(l *lane, w *worker, asked int64, known map[token]bool) {
	for _, d := range l.inHand(w) {
		if d.started < asked-int64(auditMargin) && !known[l.tokenOf(d.e)] {
			l.about(d.e).Warn("a delivery was lost on its way and is sent again", "worker", w.id)
			d.forgetSpan()
			l.putBack(d)
		}
	}
	l.late.compare(l, w, asked, known)
}
