package remote

import (
	"context"
	"sync"
	"time"

	"github.com/waybill-mq/waybill/services/router/broker"
)

// Poster has a lane do what happened elsewhere, in its goroutine, in order and many
// things at once.
type Poster struct {
	ctx     context.Context //nolint:containedctx // the store's life
	lane    broker.Lane
	running *sync.WaitGroup // who waits for what it starts

	mu    sync.Mutex
	calls []func()
}

// NewPoster makes one for a store whose lane is its until ctx ends.
func NewPoster(ctx context.Context, lane broker.Lane, running *sync.WaitGroup) *Poster {
	return &Poster{ctx: ctx, lane: lane, running: running}
}

// Post has the lane do f, together with what else is posted by then.
func (p *Poster) Post(f func()) {
	p.mu.Lock()
	p.calls = append(p.calls, f)
	first := len(p.calls) == 1
	p.mu.Unlock()
	if first && !p.lane.Post(p.drain) {
		p.running.Go(p.later)
	}
}

// later posts once the lane is open, unless it is closed.
func (p *Poster) later() {
	for Sleep(p.ctx, postAgain) && !p.lane.Post(p.drain) {
	}
}

const postAgain = 5 * time.Millisecond

func (p *Poster) drain() {
	p.mu.Lock()
	calls := p.calls
	p.calls = nil
	p.mu.Unlock()
	for _, f := range calls {
		f()
	}
}
