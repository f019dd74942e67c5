package router

import (
	"context"
	"fmt"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker"
)

// grant says whether the brokers that have, or would have, the queues of
// subscriptions can do what these ask for.
func (o *openLane) grant(ctx context.Context, q protocol.GrantRequest) (protocol.Granted, error) {
	type answer struct {
		granted protocol.Granted
		err     error
	}
	a, err := ask(ctx, o, func(l *lane) (a answer) {
		for i := range q.Subscriptions {
			if q.Effective {
				a.granted.Effective = append(a.granted.Effective, l.effective(&q.Subscriptions[i]))
			} else if a.err = l.grant(&q.Subscriptions[i], &a.granted); a.err != nil {
				break
			}
		}
		return a
	})
	if err == nil {
		err = a.err
	}
	return a.granted, err
}

func (l *lane) grant(sub *protocol.Subscription, granted *protocol.Granted) error {
	r := l.placeOf(sub.Queue).remote()
	if r == nil {
		return nil
	}
	err := r.refusal(sub)
	if err == nil {
		granted.Warnings = append(granted.Warnings, r.warnings(sub)...)
	}
	return err
}

// refusal is that of a subscription which asks for what the broker cannot do; nil: it
// can.
func (r *remote) refusal(sub *protocol.Subscription) error {
	err := broker.Refusal(r, broker.WishesOf(sub)...)
	if n, names := r.Remote.(broker.Naming); names && err == nil {
		err = n.CheckName(sub.Queue)
	}
	if err == nil {
		return nil
	}
	e := protocol.AsError(err)
	return protocol.Errorf(e.Code, "%s: %s", sub.Queue, e.Message)
}

// warnings are for what has no effect there.
func (r *remote) warnings(sub *protocol.Subscription) []string {
	if sub.MaxPriority == 0 || r.can.Priorities {
		return nil
	}
	return []string{fmt.Sprintf("max_priority %d on %s has no effect: the broker %s has no priorities", sub.MaxPriority, sub.Queue, r.Name())}
}

// effective is what holds of a subscription where its queue is.
func (l *lane) effective(sub *protocol.Subscription) protocol.Effective {
	q := l.placeOf(sub.Queue)
	e := protocol.Effective{MaxRetries: sub.MaxRetries, BackoffMs: sub.BackoffMs, BackoffType: sub.BackoffType}
	if sub.RetriesDefault {
		e.MaxRetries = q.defaults().MaxRetries
	}
	r := q.remote()
	if r == nil {
		return e
	}
	e.Broker, e.Warnings = l.placed.nameOf(r.id), r.warnings(sub)
	if err := r.refusal(sub); err != nil {
		e.Unmet = protocol.AsError(err).Message
	}
	if !r.can.Retries {
		e.MaxRetries = 1
	}
	switch r.can.Delay {
	case broker.DelayFixed:
		e.BackoffMs, e.BackoffType = q.defaults().RetryDelay.Milliseconds(), protocol.BackoffFixed
	case broker.DelayNone:
		e.BackoffMs, e.BackoffType = 0, ""
	case broker.DelayExact, broker.DelayMesh: // as asked for
	}
	return e
}

// placeOf is the queue of that name, or what it would be.
func (l *lane) placeOf(name string) *queue {
	if q := l.queues[name]; q != nil {
		return q
	}
	return newQueue(name, l)
}

// grants refuses a publish that asks for what the queue's broker cannot do.
func (q *queue) grants(p *publication) error {
	r := q.remote()
	if r == nil {
		return nil
	}
	return grants(r, p)
}

func grants(r *remote, p *publication) error {
	var asked []broker.Wish
	if p.route.topic == "" {
		asked = append(asked, broker.WishQueue)
	}
	if p.due > 0 {
		asked = append(asked, broker.WishLater)
	}
	if p.dedup != "" {
		asked = append(asked, broker.WishOnce)
	}
	return broker.Refusal(r, asked...)
}
