package router

import (
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol/frame"
	"github.com/waybill-mq/waybill/services/router/broker"
)

// frameBytes bounds a frame of several deliveries: a worker keeps all of it as
// long as it keeps one of their bodies.
const frameBytes = 32 << 10

// frames are the deliveries of a turn that wait for their workers' frames. What
// a turn has for a worker goes in one message, or a few; nothing waits longer.
type frames struct {
	open  map[string]*openFrame // by subject
	order []*openFrame
	spare spares[openFrame]
	last  uint64 // number of the newest
	token []byte
}

// openFrame is a frame being filled.
type openFrame struct {
	subject    string
	number     uint64
	buf        []byte
	deliveries []*delivery
}

// add puts d into its worker's frame.
func (f *frames) add(l *lane, d *delivery, m *broker.Message) {
	e, c := d.e, d.c
	f.token = l.seal.append(f.token[:0], l.tokenOf(e))
	item := frame.Delivery{
		Subscription: c.ID, Token: f.token, ID: e.ID, Attempt: e.Attempt, Generation: e.Generation,
		MaxRetries: c.retries, TimeoutMs: c.timeout / int64(time.Millisecond),
		Priority: m.Priority, Group: m.Group, Headers: m.Headers, Span: l.trace(d, m), Body: m.Body, Declined: l.declined(m),
	}
	x := f.frame(l, c.frames, item.Size())
	x.buf = frame.AppendDelivery(x.buf, &item)
	x.deliveries = append(x.deliveries, d)
	d.frame = x.number
}

// frame is the subject's open frame, with room for so many bytes.
func (f *frames) frame(l *lane, subject string, size int) *openFrame {
	x := f.open[subject]
	if x != nil && len(x.buf)+size <= frameBytes {
		return x
	}
	if f.open == nil {
		f.open = make(map[string]*openFrame)
	}
	x = f.spare.take()
	f.last++
	x.subject, x.number = subject, f.last
	x.buf = frame.BeginDeliveries(x.buf[:0], l.ledger.Epoch())
	f.open[subject] = x
	f.order = append(f.order, x)
	return x
}

// flush sends all that is open.
func (f *frames) flush(l *lane) {
	for _, x := range f.order {
		f.send(l, x)
		clear(x.deliveries)
		*x = openFrame{buf: x.buf, deliveries: x.deliveries[:0]}
		if cap(x.buf) <= 2*frameBytes {
			f.spare = append(f.spare, x)
		}
	}
	clear(f.order)
	f.order = f.order[:0]
	clear(f.open)
}

// send sends a frame; what cannot be sent goes back.
func (f *frames) send(l *lane, x *openFrame) {
	f.token = l.seal.append(append(f.token[:0], l.reply...), frameToken(x.number, l.ledger.Epoch()))
	err := l.s.bulk.PublishMsg(&nats.Msg{Subject: x.subject, Reply: string(f.token), Data: x.buf})
	switch {
	case err == nil:
	case errors.Is(err, nats.ErrMaxPayload) && len(x.deliveries) == 1:
		l.unsendable(x.deliveries[0], err)
	default:
		l.s.log.Warn("deliveries could not be sent and are tried again", "lane", l.slot.name, "error", err)
		l.stalledUntil = l.now + int64(stall)
		for _, d := range x.deliveries {
			d.forgetSpan()
			l.putBack(d)
		}
	}
}

// frameToken names a frame where others name a delivery, whose attempt is never
// 0. The epoch keeps an earlier owner's frames apart.
func frameToken(number, epoch uint64) token {
	return token{key: ledger.Key(number), generation: uint32(epoch)}
}

func (t token) isFrame() bool { return t.attempt == 0 }

// bounced puts the deliveries of a frame back that nobody was there to take.
func (f *frames) bounced(l *lane, t token) {
	if t != frameToken(uint64(t.key), l.ledger.Epoch()) {
		return
	}
	var all []*delivery
	for _, list := range l.deadlines {
		for d := list.first; d != nil; d = d.next {
			if d.frame == uint64(t.key) && d.stage == running {
				all = append(all, d)
			}
		}
	}
	for _, d := range all {
		d.forgetSpan()
		l.rest(d.c)
		l.putBack(d)
	}
}
