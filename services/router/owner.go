package router

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// NATS tells a publisher that nobody listens only where it asks itself. What a
// router passes on to a lane without an owner would end in silence, so it asks
// for the owner beside it. While there is none it refuses what comes, and at
// first what it passed on since it last heard of one.

const (
	askOwner   = protocol.VerbOwner // the verb, and the kind of answer; no detail
	ownerEvery = 250 * time.Millisecond

	// maxPassed bounds the publishes that are remembered for a lane; those beyond
	// it may go without an answer when its owner dies.
	maxPassed = 1 << 16
)

// errGone answers what was passed on to an owner that was gone by then, or died
// before it could answer.
var errGone = protocol.Errorf(protocol.CodeUnavailable, "the router that had the queue's lane is gone, and whether the message was stored is not known: publish it again with the same %s", protocol.HeaderDedup)

// passed are the publishes that were passed on to a lane's owner and that it may
// not have received, by their reply subjects.
type passed struct {
	mu      sync.Mutex
	replies []string
	asked   int  // so many were passed on before the owner was last asked for
	away    bool // nobody owned the lane when that was asked last
}

// add notes a publish that is passed on; false: there is nobody to pass it on to.
func (p *passed) add(reply string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.away && len(p.replies) < maxPassed {
		p.replies = append(p.replies, reply)
	}
	return !p.away
}

// ask says whether the owner is to be asked for.
func (p *passed) ask() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = len(p.replies)
	return p.away || p.asked > 0
}

// owned notes that there is an owner, which has received what was passed on
// before it was asked for.
func (p *passed) owned() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.replies = append(p.replies[:0], p.replies[p.asked:]...)
	p.asked, p.away = 0, false
}

// orphaned notes that there is none, and returns what was passed on to nobody.
func (p *passed) orphaned() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	replies := p.replies
	p.replies, p.asked, p.away = nil, 0, true
	return replies
}

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
			if at.current.Load() == nil && at.passed.ask() {
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
func (s *Service) found(at *slot, m *nats.Msg) {
	switch {
	case at == nil:
	case m.Header.Get(protocol.HeaderStatus) == "":
		at.passed.owned()
	default:
		s.bereave(at)
	}
}

// bereave answers those whose publishes were passed on to an owner that is gone,
// as it answers calls: some are.
func (s *Service) bereave(at *slot) {
	for _, reply := range at.passed.orphaned() {
		s.refused.Add(1)
		s.refuseCall(reply, errGone)
	}
}

// isOwned answers who asks for the owner.
func (o *openLane) isOwned(m *nats.Msg) {
	if err := m.Respond(nil); err != nil {
		o.s.log.Debug("who asked for a lane's owner could not be answered", "lane", o.at.name, "error", err)
	}
}
