package router

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

// binding says that a queue receives its topic. It is a note in the lane's
// ledger, so that it holds whoever owns the lane.
type binding struct {
	BoundAt time.Time `json:"bound_at"`
	// DetachedAt is since when nobody takes the queue's messages; zero: somebody
	// does.
	DetachedAt time.Time `json:"detached_at,omitzero"`
	// Until is how long the queue goes on receiving its topic then. Notes of
	// before there was an end to it have none.
	Until time.Time `json:"until,omitzero"`
	// Ended: the queue keeps what it holds, and receives nothing any more.
	Ended bool `json:"ended,omitempty"`
	// Tuning is what holds for messages that are published while nobody has told
	// what the queue's consumers ask for.
	Tuning protocol.Tuning `json:"tuning,omitzero"`
}

// bindingNote is followed by the queue's name.
const bindingNote = "bind/"

// bound is the tag of a note about a binding.
type bound struct{}

// bindings is what a lane knows of its topics' queues beyond the queues
// themselves.
type bindings struct {
	// missing are those whose consumers nobody has told of since the lane was
	// opened. When the registry has been read after that, and it was long
	// enough ago for a worker to come back, nobody will.
	missing map[*queue]struct{}
	since   int64

	// retained are those that receive their topics although nobody takes their
	// messages, the first of them until retainedUntil (ns since the epoch).
	retained      map[*queue]struct{}
	retainedUntil int64

	leaving []leaving

	// Notes are committed in the order they are staged.
	staged, committed uint64
	waiting           []waiter
	binding           int // queues that are being bound to their topics on a broker
}

// leaving is a listener's queue that is forgotten once it is empty.
type leaving struct {
	q  *queue
	at int64 // not before: its last counts are on their way to the log
}

// forgetAfter is more than counts wait for company.
const forgetAfter = int64(5 * time.Second)

// waiter is answered when the notes up to a number are in the log.
type waiter struct {
	number uint64
	answer func(err error)
}

// openBindings reads the notes of earlier owners.
func (l *lane) openBindings() {
	b := &l.bindings
	b.missing, b.since = make(map[*queue]struct{}), l.now
	b.retained = make(map[*queue]struct{})
	for key, value := range l.ledger.Notes() {
		name, found := strings.CutPrefix(key, bindingNote)
		if !found {
			continue
		}
		q := l.queue(name)
		q.bound = new(binding)
		if err := json.Unmarshal(value, q.bound); err != nil {
			l.s.log.Warn("a note about a topic's queue cannot be read; the queue stays bound", "queue", name, "error", err)
		}
		tuned := *q.policy
		tuned.Tuning = q.bound.Tuning
		q.policy = &tuned
		if q.bound.Ended {
			continue
		}
		l.join(q)
		switch {
		case q.bound.DetachedAt.IsZero(), q.keepsNothing():
			b.missing[q] = struct{}{}
		case !q.isRemote():
			b.retain(q)
		}
	}
	for at := range l.ledger.Queues() {
		if n, ok := scope.SubscriberOf(at.Name); ok && n.Kind == scope.KindListener {
			if q := l.queue(at.Name); q.over() {
				l.forgetLater(q)
			}
		}
	}
}

// attended binds q, which has a consumer, to its topic.
func (l *lane) attended(q *queue) {
	if q.topic == "" {
		return
	}
	delete(l.bindings.missing, q)
	delete(l.bindings.retained, q)
	q.ended = false
	switch {
	case q.bound == nil || q.bound.Ended:
		q.bound = &binding{BoundAt: time.Unix(0, l.wall).UTC()}
		l.join(q)
	case !q.bound.DetachedAt.IsZero():
		q.bound.DetachedAt, q.bound.Until = time.Time{}, time.Time{}
	default:
		return
	}
	l.noteBinding(q)
}

// tuned takes note of what q's consumers ask for.
func (l *lane) tuned(q *queue) {
	if q.bound != nil && q.bound.Tuning != q.policy.Tuning {
		q.bound.Tuning = q.policy.Tuning
		l.noteBinding(q)
	}
}

// unattended takes note that q has lost a consumer. The queue of observers
// receives its topic for a while, as the settings say at this moment, unless its
// broker keeps nothing; a listener's ends with its listener.
func (l *lane) unattended(q *queue) {
	if q.bound == nil || len(q.consumers) > 0 {
		return
	}
	delete(l.bindings.missing, q)
	switch {
	case q.kind == scope.KindListener:
		l.unbind(q)
		for e := range l.entriesOf(q) {
			l.drop(e)
		}
		l.forgetLater(q)
	case q.keepsNothing():
		l.leave(q)
	case q.bound.DetachedAt.IsZero():
		l.detach(q)
	}
}

// leaveUnattended takes q, which has moved to a broker that keeps nothing, out of its
// topic, if it is known that nobody takes its messages; false: it is not.
func (l *lane) leaveUnattended(q *queue) bool {
	_, missing := l.bindings.missing[q]
	leaves := !missing && q.keepsNothing() && len(q.consumers) == 0
	if leaves {
		l.leave(q)
	}
	return leaves
}

// leave takes q out of its topic. It is still known while it may hold something where
// it was before.
func (l *lane) leave(q *queue) {
	holds := func(r *remote) bool { return l.isElsewhere(q, r) }
	if slices.ContainsFunc(l.remotes, holds) || q.ledger != nil && q.ledger.Live > 0 {
		l.endRetention(q)
		return
	}
	l.unbind(q)
}

// unbind takes q out of its topic for good.
func (l *lane) unbind(q *queue) {
	delete(l.bindings.missing, q)
	delete(l.bindings.retained, q)
	if !q.bound.Ended {
		l.part(q)
	}
	q.bound = nil
	l.unbindRemote(q)
	l.noteBinding(q)
}

// detach begins the time in which q receives its topic without a consumer.
func (l *lane) detach(q *queue) {
	settings := l.s.setting()
	q.bound.DetachedAt = time.Unix(0, l.wall).UTC()
	if q.isRemote() { // it stays bound until an operator forgets it
		l.noteBinding(q)
		return
	}
	q.bound.Until = q.bound.DetachedAt.Add(settings.SubscriberRetention())
	if settings.SubscriberRetentionMs == 0 {
		l.endRetention(q)
		return
	}
	l.bindings.retain(q)
	l.noteBinding(q)
}

// endRetention takes q out of its topic. What it holds stays.
func (l *lane) endRetention(q *queue) {
	delete(l.bindings.retained, q)
	q.bound.Ended = true
	l.part(q)
	l.noteBinding(q)
}

// retain notes that q receives its topic for a while.
func (b *bindings) retain(q *queue) {
	b.retained[q] = struct{}{}
	b.retainedUntil = min(b.retainedUntil, q.bound.Until.UnixNano()) // tick finds the first
}

// endRetentions ends those whose time is up. Who could not come back, because
// the lane or NATS was away, has some time for it first.
func (b *bindings) endRetentions(l *lane) {
	if len(b.retained) == 0 || l.wall < b.retainedUntil {
		return
	}
	away := max(b.since, l.s.presence.awayUntil())
	if !l.s.directory.readSince(away) {
		return
	}
	settings := l.s.setting()
	back := l.wall - (l.now - away) + int64(min(settings.SubscriberRetention(), settings.ObserverGrace()))
	b.retainedUntil = math.MaxInt64
	for q := range b.retained {
		until := max(q.bound.Until.UnixNano(), back)
		if until > l.wall {
			b.retainedUntil = min(b.retainedUntil, until)
			continue
		}
		l.endRetention(q)
	}
}

func (l *lane) noteBinding(q *queue) {
	var value []byte // nil deletes the note
	if q.bound != nil {
		var err error
		if value, err = json.Marshal(q.bound); err != nil {
			l.s.log.Error("a note about a topic's queue cannot be written", "queue", q.name, "error", err)
			return
		}
	}
	l.bindings.staged++
	if err := l.ledger.PutNote(bindingNote+q.name, value, bound{}); err != nil {
		l.bindings.committed++ // it never will be
		l.s.log.Error("a note about a topic's queue cannot be written", "queue", q.name, "error", err)
	}
}

// tick lets go of what has not come back and forgets what is over.
func (b *bindings) tick(l *lane) {
	b.giveUp(l)
	b.endRetentions(l)
	kept := b.leaving[:0]
	for _, x := range b.leaving {
		if !l.forget(x) {
			kept = append(kept, x)
		}
	}
	clear(b.leaving[len(kept):])
	b.leaving = kept
}

// giveUp gives up those that nobody has told of in time. Observers have their
// grace for it.
func (b *bindings) giveUp(l *lane) {
	if len(b.missing) == 0 || l.now < b.since+probeSilence || !l.s.directory.readSince(b.since) {
		return
	}
	settings := l.s.setting()
	patience := l.now < b.since+int64(settings.ObserverGrace())
	for q := range b.missing {
		if q.kind == scope.KindListener || !patience {
			l.unattended(q)
		}
	}
}

func (b *bindings) next(l *lane) int64 {
	next := l.now + int64(idle)
	if len(b.missing) > 0 {
		next = max(b.since+probeSilence, l.now+int64(time.Second))
	}
	if len(b.retained) > 0 {
		wait := b.retainedUntil - l.wall
		if wait <= 0 { // it is up, and the registry has not been read since
			wait = int64(100 * time.Millisecond)
		}
		next = min(next, l.now+wait)
	}
	for _, x := range b.leaving {
		next = min(next, max(x.at, l.now+int64(time.Second)))
	}
	return next
}

func (l *lane) forgetLater(q *queue) {
	if q.leaving {
		return
	}
	q.leaving = true
	l.bindings.leaving = append(l.bindings.leaving, leaving{q: q, at: l.now + forgetAfter})
}

// forget drops a listener's queue that is empty and unbound; its counters go
// to those of no queue. It says whether there is nothing more to do for it.
func (l *lane) forget(x leaving) bool {
	q := x.q
	if !q.over() {
		q.leaving = false
		return true // its listener is back
	}
	if l.now < x.at || q.ledger != nil && q.ledger.Live > 0 || !l.Forget(q.name) {
		return false
	}
	l.ledger.ForgetQueue(q.name)
	return true
}

// follow brings a worker's record to this router and answers when the lane has
// taken it over, and stored what is to outlive it.
func (o *openLane) follow(m *nats.Msg) {
	var changed protocol.WorkerChanged
	if err := json.Unmarshal(m.Data, &changed); err != nil || changed.Worker.ID == "" {
		o.s.respond(m.Reply, protocol.Errorf(protocol.CodeInvalidArgs, "the request is no worker's record: %v", err))
		return
	}
	reply := m.Reply
	answer := func(err error) { o.s.respond(reply, err) }
	o.s.set(changed.Settings)
	if !o.s.directory.confirm(o.at, changed.Worker, func(l *lane) { l.bindings.answer(answer) }) {
		answer(errMoving)
	}
}

// answer answers when all notes staged so far are in the log.
func (b *bindings) answer(answer func(err error)) {
	b.waiting = append(b.waiting, waiter{number: b.staged, answer: answer})
	b.answerReady()
}

// noted counts a note that is in the log.
func (b *bindings) noted() {
	b.committed++
	b.answerReady()
}

func (b *bindings) answerReady() {
	n := 0
	for b.binding == 0 && n < len(b.waiting) && b.waiting[n].number <= b.committed {
		b.waiting[n].answer(nil)
		n++
	}
	b.waiting = b.waiting[n:]
}

// closed tells those who wait that the lane is another's now.
func (b *bindings) closed() {
	for _, w := range b.waiting {
		w.answer(errMoving)
	}
	b.waiting = nil
}

// respond answers with Empty, or with an error.
func (s *Service) respond(reply string, err error) {
	if reply == "" {
		return
	}
	body := []byte("{}")
	if err != nil {
		body = protocol.MarshalErrorBody(protocol.AsError(err))
	}
	if err := s.bulk.Publish(reply, body); err != nil {
		s.log.Debug("a request could not be answered", "error", err)
	}
}
