package router

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// NATS tells a publisher that nobody listens only where it asks itself. What a
// router passes on to a lane without an owner would end in silence, so it asks
// for the owner beside it, and refuses what comes while there is none.

const (
	askOwner   = "owner" // the verb, and the kind of answer; no detail
	ownerEvery = 250 * time.Millisecond
)

// lookForOwners asks for the owners of lanes that publishes were passed on to,
// and of those without one until they have one again.
func (s *Service) lookForOwners(ctx context.Context) {
	t := time.NewTicker(ownerEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		for _, at := range s.slots() {
			if at.current.Load() == nil && (at.passed.Swap(false) || at.away.Load()) {
				s.askForOwner(at)
			}
		}
	}
}

func (s *Service) askForOwner(at *slot) {
	if err := s.bulk.PublishRequest(at.subject(askOwner), s.inbox+"."+askOwner+"."+at.name, nil); err != nil {
		s.log.Debug("a lane's owner could not be asked for", "lane", at.name, "error", err)
	}
}

// found takes the answer: the owner's, or NATS's that there is none.
func (at *slot) found(m *nats.Msg) {
	if at != nil {
		at.away.Store(m.Header.Get(protocol.HeaderStatus) != "")
	}
}

// isOwned answers who asks for the owner.
func (o *openLane) isOwned(m *nats.Msg) {
	if err := m.Respond(nil); err != nil {
		o.s.log.Debug("who asked for a lane's owner could not be answered", "lane", o.at.name, "error", err)
	}
}
