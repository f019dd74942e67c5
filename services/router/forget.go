package router

import (
	"context"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

// forgotten is the answer of a lane to ForgetRequest.
type forgotten struct {
	reply protocol.ForgetReply
	err   error
}

// forgetQueue ends an observer's queue on an operator's word. It is answered
// when the log has it.
func (o *openLane) forgetQueue(ctx context.Context, r protocol.ForgetRequest) (protocol.ForgetReply, error) {
	ready, dead, err := o.heldFar(ctx, r.Queue)
	if err != nil {
		return protocol.ForgetReply{}, err
	}
	answers := make(chan forgotten, 1)
	sent := o.running.Send(call(func(l *lane) {
		reply, err := l.end(r.Queue)
		l.bindings.answer(func(lost error) {
			if err == nil {
				err = lost
			}
			answers <- forgotten{reply, err}
		})
	}))
	if !sent {
		return protocol.ForgetReply{}, errMoving
	}
	select {
	case a := <-answers:
		a.reply.Discarded += ready
		a.reply.DeadLetters = dead
		return a.reply, a.err
	case <-o.running.Done():
		return protocol.ForgetReply{}, errMoving
	case <-ctx.Done():
		return protocol.ForgetReply{}, ctx.Err()
	}
}

// heldFar is what brokers hold of a queue, which goes with it.
func (o *openLane) heldFar(ctx context.Context, queue string) (ready, dead int64, err error) {
	far, err := o.held(ctx, func(name string) bool { return name == queue })
	for i := range far {
		ready, dead = ready+far[i].Ready, dead+far[i].Dead
	}
	return ready, dead, err
}

// end takes an observer's queue out of its topic and discards what it holds.
func (l *lane) end(name string) (protocol.ForgetReply, error) {
	reply := protocol.ForgetReply{}
	n, ok := scope.SubscriberOf(name)
	if !ok || n.Kind == scope.KindListener {
		return reply, protocol.Errorf(protocol.CodeInvalidArgs, "%.300q is no queue of an observer or a group", name)
	}
	if l.queues[name] == nil && l.ledger.Queue(name) == nil {
		return reply, nil
	}
	q := l.queue(name)
	if len(q.consumers) > 0 {
		return reply, protocol.Errorf(protocol.CodeConflict, "%s is observed: stop its observers first", name)
	}
	reply.Known = q.bound != nil || q.ledger != nil && q.ledger.Live > 0
	q.ended = true
	if q.bound != nil {
		l.unbind(q)
	}
	for e := range l.entriesOf(q) {
		if l.drop(e) {
			reply.Discarded++
		}
	}
	l.forgetRemote(q.name)
	if q.ledger != nil {
		reply.Left = q.ledger.Live
	}
	l.forgetLater(q)
	return reply, nil
}
