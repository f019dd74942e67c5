package router

import (
	"context"
	"time"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// entry says where a message is.
func (o *openLane) entry(ctx context.Context, q protocol.EntryRequest) (protocol.EntryState, error) {
	return ask(ctx, o, func(l *lane) protocol.EntryState { return l.stateOf(ledger.Key(q.Key)) })
}

func (l *lane) stateOf(key ledger.Key) protocol.EntryState {
	e := l.entry(key)
	if e == nil {
		return protocol.EntryState{}
	}
	state := protocol.EntryState{State: protocol.StateReady, HandedBack: int(l.handedBack[key]), Consumers: len(l.queueOf(e).consumers)}
	switch at := e.Slot.(type) {
	case *delivery:
		state.State = protocol.StateInFlight
		if at.stage == judged || at.stage == recording {
			state.State = protocol.StateJudged
		}
		if at.c != nil {
			state.Worker, state.WorkerID = at.c.worker.name, at.c.worker.id
			state.Since = time.Unix(0, l.wall-(l.now-at.started)).UTC()
		}
	case place:
		state.State = placeNames[at]
		if at == paused {
			state.Due = time.Unix(0, e.Due).UTC()
		}
	}
	if e.Decided {
		state.State = protocol.StateMoving
	}
	return state
}

var placeNames = map[place]string{
	reading: protocol.StateReady, held: protocol.StateWithheld, paused: protocol.StatePaused,
	settled: protocol.StateEnded, unreadable: protocol.StateUnreadable, straying: protocol.StateJudged,
}
