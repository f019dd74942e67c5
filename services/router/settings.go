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

// configure takes settings and answers once the lane does as they say.
func (o *openLane) configure(ctx context.Context, now protocol.Settings) (protocol.Empty, error) {
	o.s.set(&now)
	return ask(ctx, o, func(*lane) protocol.Empty { return protocol.Empty{} })
}

// settingsChanged has the next deliveries begin as the settings and the brokers
// say.
func (l *lane) settingsChanged() {
	for _, q := range l.queues {
		if q.jobs != nil || len(q.consumers) == 0 {
			continue
		}
		for _, c := range q.consumers {
			c.follow()
			q.attach(c)
		}
		q.demand()
		l.wake(q)
	}
}
