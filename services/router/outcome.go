package router

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/protocol/frame"
	"github.com/waybill-mq/waybill/services/router/broker"
)

// outcome is a worker's answer to a delivery.
type outcome nats.Msg

func (o *outcome) apply(l *lane) {
	m := (*nats.Msg)(o)
	last := m.Subject[len(l.reply):]
	if last == protocol.OutcomeFrame {
		l.concludeAll(m.Data)
		return
	}
	t, ok := l.seal.open(last)
	switch {
	case !ok:
		l.s.log.Debug("an outcome names no delivery of this lane", "lane", l.slot.name)
	case len(m.Header[protocol.HeaderStatus]) > 0:
		l.bounced(t)
	default:
		l.conclude(t, readOutcome(m))
	}
}

// concludeAll applies a frame of outcomes.
func (l *lane) concludeAll(b []byte) {
	for o, err := range frame.Outcomes(b) {
		if err != nil {
			l.s.log.Warn("outcomes cannot be read", "lane", l.slot.name, "error", err)
			return
		}
		if t, ok := l.seal.open(o.Token); ok {
			l.conclude(t, conclusion{outcome: said(o.Outcome), text: errorText(o.Text), afterMs: o.RetryAfterMs})
		}
	}
}

// conclusion is how a worker says that a delivery ended.
type conclusion struct {
	outcome protocol.Outcome
	text    string  // of a failure
	afterMs int64   // what failed is not tried again before
	worker  *worker // who says so; nil: not known
}

// readOutcome reads a reply.
func readOutcome(m *nats.Msg) conclusion {
	if len(m.Header) == 0 {
		return conclusion{outcome: protocol.Acknowledged}
	}
	what := said(protocol.Outcome(m.Header.Get(protocol.HeaderOutcome)))
	failure := cmp.Or(m.Header.Get(protocol.HeaderServiceError), m.Header.Get(protocol.HeaderServiceErrorCode))
	if what == "" {
		if failure == "" {
			return conclusion{outcome: protocol.Acknowledged}
		}
		what = protocol.Failed
	}
	if what == protocol.Acknowledged {
		return conclusion{outcome: what}
	}
	return conclusion{
		outcome: what, text: errorText(cmp.Or(string(m.Data), m.Header.Get(protocol.HeaderError), failure)),
		afterMs: milliseconds(m.Header.Get(protocol.HeaderRetryAfter)),
	}
}

// milliseconds is a header's number, 0 for what is none.
func milliseconds(header string) int64 {
	ms, err := strconv.ParseInt(header, 10, 64)
	if err != nil {
		return 0
	}
	return ms
}

// maxOutcome is more than any outcome's name has: what is longer is none, of no
// version.
const maxOutcome = 64

// said is what a worker says as far as a worker can say it. How a delivery
// ended without an answer is the router's to tell, and what the retry service
// is asked has to stay small.
func said(what protocol.Outcome) protocol.Outcome {
	if what == protocol.Timeout || what == protocol.Vanished || len(what) > maxOutcome {
		return protocol.Pending
	}
	return what
}

// errorText cuts a text at protocol.MaxErrorText, between two characters.
func errorText(s string) string {
	if len(s) <= protocol.MaxErrorText {
		return strings.ToValidUTF8(s, "\uFFFD")
	}
	cut := protocol.MaxErrorText
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return strings.ToValidUTF8(s[:cut], "\uFFFD")
}

// conclude applies an outcome to what its token names, if that is still to be
// decided: the first outcome of an attempt counts, later ones and those of
// earlier attempts are superseded.
func (l *lane) conclude(t token, end conclusion) {
	e := l.entry(t.key)
	if e == nil || e.Decided || e.Generation != t.generation || e.Attempt != t.attempt {
		l.superseded(e)
		return
	}
	d, inHand := e.Slot.(*delivery)
	switch {
	case inHand && d.stage == overdue && t.turn == l.turnOf(e):
		l.superseded(e)
		l.late.end(l, d)
	case e.Slot == settled, inHand && d.stage != running:
		l.superseded(e)
	case end.outcome == protocol.Acknowledged:
		// Whoever did the work, it is done: also one who was thought to have
		// vanished.
		l.acknowledged(e, end.worker)
	case t.turn != l.turnOf(e):
		l.superseded(e)
	case inHand:
		l.ended(d, end)
	case end.outcome == protocol.Cancelled || e.Slot == unreadable:
		// It is where it belongs.
	default:
		l.unplace(e)
		l.judgeEnd(l.newDelivery(e, l.queueOf(e)), end)
	}
}

// superseded counts an outcome that has no effect.
func (l *lane) superseded(e *broker.Entry) {
	if e == nil {
		l.s.superseded.Add(1)
		return
	}
	l.count(l.queueOf(e), ledger.Superseded)
}

// acknowledged settles e, which w says it has done; nil: not known.
func (l *lane) acknowledged(e *broker.Entry, w *worker) {
	q, took := l.queueOf(e), int64(0)
	if d, ok := e.Slot.(*delivery); ok {
		w, took = d.c.worker, l.now-d.started
		d.c.proven()
		d.c.worker.seen.Store(l.now)
		d.endSpan(protocol.Acknowledged, "")
		l.release(d)
		l.free(e)
	} else {
		l.unplace(e)
	}
	delete(l.handedBack, e.Key)
	l.settle(e, q, ledger.Acknowledged)
	if w != nil {
		l.ledger.By(e, &w.told, time.Duration(took))
	}
	l.countWith(e, ledger.Delivered)
}

// settle ends e, and counts how. What has to wait for that does so until it is recorded: a
// settlement that is lost must not bring back what its followers have passed.
func (l *lane) settle(e *broker.Entry, q *queue, how ledger.Counter) {
	e.Slot = settled
	if q.groups == nil {
		l.storeOf(e).Settle(e, how)
		return
	}
	q.take(e)
	l.storeOf(e).SettleNow(e, how)
}

// ended takes the end of a delivery that was not acknowledged.
func (l *lane) ended(d *delivery, end conclusion) {
	d.c.worker.seen.Store(l.now)
	if end.outcome == protocol.Cancelled {
		// Its worker is shutting down: others first.
		l.rest(d.c)
		l.handedBack[d.e.Key]++
		l.count(d.q, ledger.Delivered)
		d.endSpan(protocol.Cancelled, "")
		l.count(d.q, ledger.HandedBack)
		l.putBack(d)
		return
	}
	d.c.proven()
	l.release(d)
	l.judgeEnd(d, end)
}

func (l *lane) judgeEnd(d *delivery, end conclusion) {
	d.afterMs = end.afterMs
	l.judge(d, end.outcome, end.text)
}

// bounced puts a delivery back that nobody was there to take.
func (l *lane) bounced(t token) {
	if t.isFrame() {
		l.frames.bounced(l, t)
		return
	}
	e := l.entry(t.key)
	if e == nil {
		return
	}
	d, ok := e.Slot.(*delivery)
	if !ok || d.stage != running || t != l.tokenOf(e) {
		return
	}
	l.rest(d.c)
	d.forgetSpan()
	l.putBack(d)
}

// expire ends the deliveries whose time is up, unless their outcomes may be here
// unread.
func (l *lane) expire() {
	if l.now < l.standstill.until {
		return
	}
	for _, list := range l.deadlines {
		for d := list.first; d != nil && d.started+list.limit <= l.now; d = list.first {
			if d.q.groups != nil {
				l.late.add(l, d)
				continue
			}
			l.release(d)
			l.judge(d, protocol.Timeout, overdueText(list.limit))
		}
	}
}

func overdueText(limit int64) string {
	return fmt.Sprintf("TIMEOUT: no answer within %v", time.Duration(limit))
}

// vanished ends the deliveries of a worker that is gone.
func (l *lane) vanished(w *worker) {
	for _, d := range l.inHand(w) {
		if !d.c.gone {
			l.rest(d.c)
		}
		l.release(d)
		l.judge(d, protocol.Vanished, fmt.Sprintf("the worker %s (%s) vanished", w.id, w.name))
	}
	for _, d := range l.late.of(w) {
		l.late.end(l, d)
	}
}

// inHand are the deliveries in w's hands.
func (l *lane) inHand(w *worker) []*delivery {
	if w.held.Load() == 0 {
		return nil
	}
	var all []*delivery
	for _, list := range l.deadlines {
		for d := list.first; d != nil; d = d.next {
			if d.c.worker == w {
				all = append(all, d)
			}
		}
	}
	slices.SortFunc(all, func(a, b *delivery) int { return cmp.Compare(a.e.Key, b.e.Key) })
	return all
}

// unplace takes an entry that is in nobody's hands out of the list it is in.
func (l *lane) unplace(e *broker.Entry) {
	q := l.queueOf(e)
	switch s := e.Slot.(type) {
	case place:
		switch s {
		case held:
			q.noLongerHeld(e)
		case paused:
			l.pauses.remove(e)
		case reading:
			l.ahead -= int(e.Size)
			q.remove(e)
		case unreadable:
			q.remove(e)
		case settled, straying:
		}
	case *broker.Message:
		l.used(q, e)
		q.remove(e)
	case nil:
		q.remove(e)
	}
	e.Slot = nil
}
