package router

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/waybill-mq/waybill/internal/books"
	"github.com/waybill-mq/waybill/internal/closing"
	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
	"github.com/waybill-mq/waybill/services/router/broker"
)

// What is done with messages that wait.
const (
	release = "release"
	cancel  = "cancel"
)

// serveShelves answers for what brokers hold besides dead letters.
func (o *openLane) serveShelves() error {
	return errors.Join(
		serve(o, protocol.VerbBrokerWaiting, o.waitingFar),
		serve(o, protocol.VerbBrokerWaitingAct, o.actOnWaiting),
		serve(o, protocol.VerbBrokerTrail, o.trailFar),
	)
}

// waitingIn are the queues whose waiting messages are meant.
func (o *openLane) waitingIn(ctx context.Context, queue, topic, execution string) ([]farQueue, error) {
	named := wanted(queue, topic)
	far, err := ask(ctx, o, func(l *lane) []farQueue {
		return l.farQueues(func(name string) bool {
			return named(name) && (execution == "" || closing.ExecutionOf(name) == execution)
		})
	})
	return slices.DeleteFunc(far, func(f farQueue) bool { return f.Capabilities().TopicsOnly }), err
}

// waitingFar reads what waits on brokers. Of one that cannot show it only the
// number is told.
func (o *openLane) waitingFar(ctx context.Context, q protocol.WaitingListRequest) (protocol.WaitingPage, error) {
	page := protocol.WaitingPage{Messages: []protocol.WaitingMessage{}}
	far, err := o.waitingIn(ctx, q.Queue, q.Topic, q.Execution)
	if err != nil {
		return page, err
	}
	away := o.s.absent()
	for _, f := range far {
		if err := f.addWaiting(ctx, q.Limit, &page); err != nil && !away.took(&f, err) {
			return page, err
		}
	}
	page.Away = away.told()
	slices.SortFunc(page.Messages, func(a, b protocol.WaitingMessage) int {
		return cmp.Or(a.Due.Compare(b.Due), cmp.Compare(a.MessageID, b.MessageID))
	})
	page.Messages = fitting(page.Messages[:min(len(page.Messages), q.Limit)])
	return page, nil
}

func (f *farQueue) addWaiting(ctx context.Context, limit int, page *protocol.WaitingPage) error {
	depth, err := f.Depth(ctx, f.queue, f.delays)
	page.Total += depth.Waiting
	shows, can := f.Remote.(broker.Shelves)
	if err != nil || !can || depth.Waiting == 0 || limit <= 0 {
		return err
	}
	found, err := shows.Waiting(ctx, f.queue, f.delays, limit, protocol.MessageID{})
	for i := range found {
		page.Messages = append(page.Messages, waitsFar(&found[i]))
	}
	return err
}

func waitsFar(l *broker.Letter) protocol.WaitingMessage {
	m, meta := l.Message, &l.Meta
	w := protocol.WaitingMessage{
		MessageID: m.ID.String(), Queue: meta.Queue, Attempt: meta.Attempt, Generation: meta.Generation,
		Why: protocol.WaitsForRetry, Due: instant(meta.Due), Error: meta.Error, Source: meta.Source,
		PublishedAt: instant(m.PublishedAt), LastFailure: instant(meta.LastFailure), SizeBytes: l.SizeBytes(),
	}
	w.Execution, w.Route, _ = scope.ParseScoped(meta.Queue)
	w.Topic = scope.SubscribedTopic(meta.Queue)
	if meta.LastFailure == 0 {
		w.Why = protocol.WaitsForSchedule
	}
	return w
}

// actOnWaiting lets messages that wait on brokers go, or discards them.
func (o *openLane) actOnWaiting(ctx context.Context, q protocol.BrokerWaitingAct) (reply protocol.WaitingActReply, err error) {
	if q.Action != release && q.Action != cancel {
		return reply, protocol.Errorf(protocol.CodeInvalidArgs, "action %.64q is none of %s and %s", q.Action, release, cancel)
	}
	id, err := idOf(q.MessageID)
	if err != nil {
		return reply, err
	}
	far, err := o.waitingIn(ctx, q.Queue, q.Topic, q.Execution)
	if err != nil {
		return reply, err
	}
	away := o.s.absent()
	for _, f := range far {
		n, err := f.actOnWaiting(ctx, broker.Action{Redrive: q.Action == release, ID: id, By: q.By, Hurry: o.hurrying(f.Name(), q.By)})
		reply.Count += n
		if q.Action == cancel {
			o.countActed(f.queue, discard, n)
		}
		if err != nil && !away.took(&f, err) {
			return reply, err
		}
	}
	reply.Away = away.told()
	return reply, nil
}

// hurrying has the lane note that messages of a broker's are due.
func (o *openLane) hurrying(name, by string) func(ctx context.Context, all []broker.Letter) error {
	return func(ctx context.Context, all []broker.Letter) error {
		said := make(chan error, 1)
		told, err := ask(ctx, o, func(l *lane) bool {
			r := l.remoteOf(name)
			if r == nil {
				return false
			}
			s, does := r.store.(broker.Hurrying)
			if does {
				s.Hurry(all, by, func(err error) { said <- err })
			}
			return does
		})
		switch {
		case err != nil:
			return err
		case !told:
			return errMoving
		}
		select {
		case err := <-said:
			return err
		case <-o.running.Done():
			return errMoving
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (f *farQueue) actOnWaiting(ctx context.Context, a broker.Action) (int64, error) {
	depth, err := f.Depth(ctx, f.queue, f.delays)
	if err != nil || depth.Waiting == 0 {
		return 0, err
	}
	shows, can := f.Remote.(broker.Shelves)
	switch {
	case can:
		return shows.ActWaiting(ctx, f.queue, f.delays, a)
	case a.ID != (protocol.MessageID{}):
		return 0, nil // it is not known to be there
	}
	return 0, protocol.Errorf(protocol.CodeUnsupported, "the broker %s does not let go of what waits there before its time (%s, %d messages): wait, or close the execution to discard it", f.Name(), f.queue, depth.Waiting)
}

// trailFar looks for a message on the brokers, and in the lane's hands.
func (o *openLane) trailFar(ctx context.Context, q protocol.TrailRequest) (protocol.BrokerTrail, error) {
	reply := protocol.BrokerTrail{Trails: []protocol.Trail{}}
	id, err := idOf(q.MessageID)
	if err != nil || id == (protocol.MessageID{}) {
		return reply, err
	}
	type answer struct {
		here []*ledger.Trail
		far  []farQueue
	}
	found, err := ask(ctx, o, func(l *lane) answer {
		return answer{l.trailsOfLive(id), l.farQueues(func(string) bool { return true })}
	})
	if err != nil {
		return reply, err
	}
	for _, t := range found.here {
		reply.Trails = append(reply.Trails, books.TrailOf(t))
	}
	away := o.s.absent()
	for _, f := range found.far {
		if f.Capabilities().TopicsOnly {
			continue // it keeps nothing
		}
		if err := o.lookFor(ctx, &f, id, &reply); err != nil && !away.took(&f, err) {
			return reply, err
		}
	}
	reply.Away = away.told()
	return reply, nil
}

// trailsOfLive are those of what brokers have delivered to the lane.
func (l *lane) trailsOfLive(id protocol.MessageID) (all []*ledger.Trail) {
	for _, r := range l.remotes {
		s := r.store
		for e := range s.Entries() {
			if m := s.Message(e); e.ID == id && m != nil {
				all = append(all, &ledger.Trail{Ledger: l.slot.name, Key: e.Key, Message: m, Meta: s.Meta(e)})
			}
		}
	}
	return all
}

// lookFor looks where a queue's messages may be on its broker.
func (o *openLane) lookFor(ctx context.Context, f *farQueue, id protocol.MessageID, reply *protocol.BrokerTrail) error {
	depth, err := f.Depth(ctx, f.queue, f.delays)
	if err != nil {
		return err
	}
	add := func(state string, letters []broker.Letter, err error) error {
		for i := range letters {
			t := books.TrailOf(&ledger.Trail{Ledger: o.at.name, Message: letters[i].Message, Meta: letters[i].Meta})
			t.State, t.Place, t.SizeBytes = state, letters[i].Place+" on "+f.Name(), letters[i].SizeBytes()
			reply.Trails = append(reply.Trails, t)
		}
		return err
	}
	if depth.Dead > 0 && f.Capabilities().DeadLetters {
		letters, err := f.Browse(ctx, f.queue, 1, id)
		if err := add(protocol.StateDead, letters, err); err != nil {
			return err
		}
	}
	shows, can := f.Remote.(broker.Shelves)
	if can && depth.Waiting > 0 {
		letters, err := shows.Waiting(ctx, f.queue, f.delays, 1, id)
		if err := add(protocol.StateWaiting, letters, err); err != nil {
			return err
		}
	}
	switch {
	case depth.Ready == 0:
	case !can || f.consumed:
		reply.Unseen = append(reply.Unseen, f.queue+" on "+f.Name())
	default:
		letters, err := shows.Ready(ctx, f.queue, id)
		return add(protocol.StateReady, letters, err)
	}
	return nil
}
