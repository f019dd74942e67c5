package client

import (
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/protocol/frame"
)

// receive takes what arrives for any of the client's workers, and never waits.
func (p *presence) receive(msg *nats.Msg) {
	last := lastToken(msg.Subject)
	if last == protocol.DeliverFrames {
		p.receiveFrame(msg)
		return
	}
	if w := p.workerOf(last); w != nil {
		w.receive(msg)
		return
	}
	p.nobody(msg.Reply)
}

func lastToken(subject string) string { return subject[strings.LastIndexByte(subject, '.')+1:] }

// receiveFrame takes the deliveries of a frame.
func (p *presence) receiveFrame(msg *nats.Msg) {
	lane, _, ok := protocol.SplitOutcome(msg.Reply)
	if !ok {
		p.c.log.Warn("ignored deliveries without an outcome subject", "subject", msg.Subject)
		return
	}
	prefix := protocol.SubjectOutcome + lane + "."
	epoch, all := frame.Deliveries(msg.Data)
	o := owner{epoch: epoch, frames: true}
	var w *Worker
	subscription := "" // w's
	for d, err := range all {
		if err != nil {
			p.c.log.Warn("ignored deliveries that cannot be read", "lane", lane, "error", err)
			return
		}
		if d.Subscription != subscription {
			subscription = d.Subscription
			w = p.workerOf(subscription)
		}
		key := prefix + string(d.Token)
		if w == nil {
			p.nobody(key)
		} else if j := w.begin(key, lane, o); j != nil {
			w.submit(framedDelivery(&w.spec, d, j))
		}
	}
}

// workerOf is whose subscription that is; nil while the registry's answer that
// tells is on its way.
func (p *presence) workerOf(subscription string) *Worker {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.subscriptions[subscription]
}

// nobody says what NATS would say if nothing had subscribed to the delivery: it
// comes again.
func (p *presence) nobody(reply string) {
	msg := nats.Msg{Subject: reply, Header: nats.Header{protocol.HeaderStatus: {protocol.StatusNoResponders}}}
	_ = p.c.nc.PublishMsg(&msg) // unanswered, it comes again later
}
