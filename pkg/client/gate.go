package client

import (
	"sync"
	"sync/atomic"
)

// gate lets goroutines wait until it is open.
type gate struct {
	isOpen atomic.Bool // to look without waiting

	mu     sync.Mutex
	opened chan struct{} // closed while the gate is open
}

func newGate() *gate { return &gate{opened: make(chan struct{})} }

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.isOpen.Swap(true) {
		close(g.opened)
	}
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.isOpen.Swap(false) {
		g.opened = make(chan struct{})
	}
}

// passing is closed when the gate is open.
func (g *gate) passing() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.opened
}
