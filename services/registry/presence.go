package registry

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// presence is when each worker was last heard, by this process's monotonic
// clock.
type presence struct {
	silence time.Duration

	mu         sync.Mutex
	heard      map[string]time.Time
	since      time.Time       // nobody could be heard before
	looked     time.Time       // the last time anybody was looked for
	reconnects uint64          // of the connection, as last looked at
	asking     map[string]bool // workers that are being looked up
}

func newPresence(silence time.Duration) *presence {
	return &presence{silence: silence, heard: map[string]time.Time{}, asking: map[string]bool{}}
}

// nobodyBefore says that nobody could be heard before now: everybody has the
// whole of silence again.
func (p *presence) nobodyBefore(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since = now
}

func (p *presence) hear(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard[id] = time.Now()
}

func (p *presence) forget(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.heard, id)
}

// look notes what the connection went through, and this process: one that has
// not looked for a while stood still, and what was sent to it meanwhile is still
// on its way in.
func (p *presence) look(nc *nats.Conn, now time.Time) {
	reconnects := nc.Stats().Reconnects
	p.mu.Lock()
	defer p.mu.Unlock()
	stoodStill := now.Sub(p.looked) > p.silence/3
	if reconnects != p.reconnects || !nc.IsConnected() || stoodStill {
		p.reconnects, p.since = reconnects, now
	}
	p.looked = now
}

// nobody is when it last began that anybody could be heard.
func (p *presence) nobody() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.since
}

// silent says whether a worker has not been heard for too long. Patience is the
// least time that it has since anybody could be heard.
func (p *presence) silent(id string, patience time.Duration, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return now.Sub(p.heard[id]) > p.silence && now.Sub(p.since) > max(p.silence, patience)
}

// ask says whether the caller is the one to look a worker up; it calls asked
// afterwards.
func (p *presence) ask(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asking[id] {
		return false
	}
	p.asking[id] = true
	return true
}

func (p *presence) asked(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.asking, id)
}

// keepalive hears a worker. One that is not known, or has declared something
// since, is looked up; if the bucket does not have that either, it is told to
// say Hello again.
func (s *Service) keepalive(m *nats.Msg) {
	id := strings.TrimPrefix(m.Subject, protocol.SubjectKeepalive)
	var k protocol.Keepalive
	if err := json.Unmarshal(m.Data, &k); err != nil {
		s.log.Debug("a keepalive is not JSON", "worker", id, "error", err)
		return
	}
	if doc := s.known.worker(id); doc != nil {
		s.alive.hear(id)
		if k.Revision <= doc.Revision {
			return
		}
	}
	if s.alive.ask(id) {
		s.working.Go(func() {
			defer s.alive.asked(id)
			s.lookUp(id, k.Revision, m)
		})
	}
}

// lookUp reads a worker's record; what cannot be read now is asked about again
// at the next keepalive.
func (s *Service) lookUp(id string, revision uint64, m *nats.Msg) {
	ctx, cancel := context.WithTimeout(s.ctx, s.o.keepalive())
	defer cancel()
	doc, err := s.store.worker(ctx, id)
	if err != nil {
		s.log.Debug("a worker's record could not be read", "worker", id, "error", err)
		return
	}
	if doc != nil && !doc.Gone && doc.Revision >= revision {
		s.known.apply(doc)
		s.alive.hear(id)
		return
	}
	if m.Reply == "" {
		return
	}
	body, err := json.Marshal(protocol.KeepaliveReply{Known: false})
	if err == nil {
		err = m.Respond(body)
	}
	if err != nil {
		s.log.Debug("a keepalive could not be answered", "worker", id, "error", err)
	}
}

// expire takes out workers that are silent for too long.
func (s *Service) expire(ctx context.Context) {
	tick := time.NewTicker(s.o.Silence / 15)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := time.Now()
		s.alive.look(s.nc, now)
		for _, doc := range s.known.all() {
			if s.alive.silent(doc.ID, s.patience(doc), now) {
				s.expireOne(ctx, doc)
			}
		}
	}
}

// patience is how long nobody expires after this registry, or NATS, was away:
// observers have their grace to come back in.
func (s *Service) patience(doc *workerDoc) time.Duration {
	if !slices.ContainsFunc(doc.Subscriptions, func(sub protocol.Subscription) bool { return sub.Kind == protocol.KindObserve }) {
		return 0
	}
	settings := s.configuration.settings()
	return settings.ObserverGrace()
}

// expireOne takes a worker out, unless its record has changed: then somebody
// else heard it, or did the same.
func (s *Service) expireOne(ctx context.Context, doc *workerDoc) {
	ctx, cancel := context.WithTimeout(ctx, s.o.keepalive())
	defer cancel()
	switch _, err := s.gone(ctx, doc, 0); {
	case err == nil:
		s.log.Info("a worker is silent and counts as gone", "worker", doc.ID, "name", doc.Name, "silence", s.o.Silence)
	case errors.Is(err, errMoved):
	default:
		s.log.Warn("a silent worker's record could not be ended; trying again", "worker", doc.ID, "error", err)
	}
}
