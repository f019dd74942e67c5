package router

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// settings are the mesh's as this router knows them. The registry sends them
// with whatever it says, and when they change.
type settings struct {
	mu      sync.Mutex
	current protocol.Settings
}

// setting is what holds now.
func (s *Service) setting() protocol.Settings {
	s.settings.mu.Lock()
	defer s.settings.mu.Unlock()
	return s.settings.current
}

// set takes settings that are newer than the known.
func (s *Service) set(now *protocol.Settings) {
	if now == nil || !s.settings.take(*now) {
		return
	}
	if now.Placed > s.placed().Number {
		s.placementChanged()
	}
	s.eachLane((*lane).settingsChanged)
}

func (s *settings) take(now protocol.Settings) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Revision <= s.current.Revision {
		return false
	}
	s.current = now
	return true
}

// settingsChanged takes an event.
func (s *Service) settingsChanged(m *nats.Msg) {
	var now protocol.Settings
	if err := json.Unmarshal(m.Data, &now); err != nil {
		s.log.Warn("an event of the registry cannot be read", "error", err)
		return
	}
	s.set(&now)
}

// configure takes settings and answers once the lane does as they say, and keeps its
// messages where they are to be.
func (o *openLane) configure(ctx context.Context, now protocol.Settings) (protocol.Empty, error) {
	o.s.set(&now)
	if err := o.s.follow(ctx, now.Placed); err != nil {
		return protocol.Empty{}, err
	}
	done := make(chan error, 1)
	_, err := ask(ctx, o, func(l *lane) protocol.Empty {
		l.place(o.s.placed())
		l.bindings.answer(func(err error) { done <- err })
		return protocol.Empty{}
	})
	if err != nil {
		return protocol.Empty{}, err
	}
	select {
	case err = <-done:
	case <-o.running.Done():
		err = errMoving
	case <-ctx.Done():
		err = ctx.Err()
	}
	return protocol.Empty{}, err
}

// settingsChanged has the next deliveries begin as the settings and the brokers
// say.
func (l *lane) settingsChanged() {
	for _, q := range l.queues {
		if q.renew() {
			q.demand()
			l.wake(q)
		}
	}
}

// renew has the queue's consumers ask for what holds now; false if there are none.
func (q *queue) renew() bool {
	if q.jobs != nil || len(q.consumers) == 0 {
		return false
	}
	for _, c := range q.consumers {
		c.follow()
		q.attach(c)
	}
	return true
}
