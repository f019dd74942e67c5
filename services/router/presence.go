package router

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// presence notices workers that vanish with deliveries in their hands. A
// worker shows that it is there by its keepalive, its outcomes and its answers
// to probes, which only those are sent that hold something and were silent.
type presence struct {
	s *Service

	mu     sync.Mutex
	since  int64 // nobody is held against silence before this: we were away ourselves
	looked int64 // the last time we did
	misses map[*worker]int
	asked  map[string]*worker // probed by id, also those the registry has given up
	leave  map[*worker]int64  // left the registry then
}

const (
	probeEvery   = time.Second
	probeMisses  = 2                             // "no responders" in a row
	probeSilence = int64(protocol.WorkerSilence) // without any sign of life
	lookGap      = probeSilence / 3              // without a look of ours: this process stood still
)

func newPresence(s *Service) *presence {
	return &presence{
		s: s, misses: make(map[*worker]int), asked: make(map[string]*worker), leave: make(map[*worker]int64),
	}
}

// run looks after the workers until ctx ends.
func (p *presence) run(ctx context.Context) {
	t := time.NewTicker(probeEvery)
	defer t.Stop()
	p.restart()
	for {
		select {
		case now := <-t.C:
			p.look(p.s.clock(now))
		case <-ctx.Done():
			return
		}
	}
}

// restart begins every worker's time again: this router cannot tell who was
// silent while it heard nobody.
func (p *presence) restart() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since = p.s.clock(time.Now())
	clear(p.misses)
}

// awayUntil is when this router began, or began again, to hear anybody.
func (p *presence) awayUntil() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.since
}

// look probes those that hold deliveries and gives up those that are gone.
func (p *presence) look(now int64) {
	if !p.s.bulk.IsConnected() {
		return
	}
	if p.stoodStill(now) {
		p.restart()
	}
	for _, w := range append(p.s.directory.all(), p.leaving(now)...) {
		if w.held.Load() == 0 {
			p.forget(w)
			continue
		}
		if p.isGone(w, now) {
			p.forget(w)
			p.s.eachLane(func(l *lane) { l.vanished(w) })
			continue
		}
		if now-w.seen.Load() >= int64(probeEvery) {
			p.probe(w)
		}
	}
}

// stoodStill says whether this router has not looked, and so heard nobody, for
// a while. What was sent to it meanwhile is still on its way in.
func (p *presence) stoodStill(now int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := p.looked
	p.looked = now
	return now-last >= lookGap
}

// isGone says whether w has been silent for too long, was not there twice, or
// has left the registry. One that left is given a moment: its last outcomes
// may have taken another way.
func (p *presence) isGone(w *worker, now int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if left, ok := p.leave[w]; ok && now-left >= int64(probeEvery) {
		return true
	}
	if now-max(w.seen.Load(), p.since) >= probeSilence {
		return true
	}
	return p.misses[w] >= probeMisses && now-p.since >= probeSilence
}

func (p *presence) probe(w *worker) {
	p.mu.Lock()
	p.asked[w.id] = w
	p.mu.Unlock()
	subject := protocol.WorkerSubject(w.id, protocol.VerbProbe)
	if err := p.s.bulk.PublishRequest(subject, p.s.inbox+"."+askProbe+"."+w.id, nil); err != nil {
		p.s.log.Debug("a worker could not be probed", "worker", w.id, "error", err)
	}
}

// answered takes the answer to a probe.
func (p *presence) answered(id string, m *nats.Msg) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.asked[id]
	if w == nil {
		return
	}
	if m.Header.Get(protocol.HeaderStatus) != "" {
		p.misses[w]++
		return
	}
	delete(p.misses, w)
	w.seen.Store(p.s.clock(time.Now()))
}

// keptAlive takes a keepalive.
func (p *presence) keptAlive(m *nats.Msg) {
	w := p.s.directory.worker(m.Subject[len(protocol.SubjectKeepalive):])
	if w == nil {
		return
	}
	w.seen.Store(p.s.clock(time.Now()))
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.misses, w)
}

// left takes a worker out of the registry's; what it holds is given up soon.
func (p *presence) left(w *worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leave[w] = p.s.clock(time.Now())
}

// leaving are the workers that have left the registry.
func (p *presence) leaving(now int64) []*worker {
	p.mu.Lock()
	defer p.mu.Unlock()
	ws := make([]*worker, 0, len(p.leave))
	for w, left := range p.leave {
		ws = append(ws, w)
		if w.held.Load() == 0 && now-left > probeSilence {
			delete(p.leave, w)
		}
	}
	return ws
}

// forget ends the watch over w for now.
func (p *presence) forget(w *worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.misses, w)
	if p.asked[w.id] == w {
		delete(p.asked, w.id)
	}
}
