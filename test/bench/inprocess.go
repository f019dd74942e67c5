package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
)

// inProcessBroker is a queue in memory, between goroutines of this process: the
// least that can be measured.
type inProcessBroker struct {
	queue     chan []byte
	unsettled atomic.Int64
	working   sync.WaitGroup
}

func newInProcess() *inProcessBroker { return &inProcessBroker{queue: make(chan []byte, window)} }

func (b *inProcessBroker) work(_ context.Context, w work) error {
	b.working.Go(func() {
		for payload := range b.queue {
			w.handle(payload)
			b.unsettled.Add(-1)
		}
	})
	return nil
}

func (b *inProcessBroker) publish(_ context.Context, _ int, payload []byte) error {
	b.unsettled.Add(1)
	b.queue <- payload
	return nil
}

func (*inProcessBroker) flush(context.Context) error { return nil }

func (b *inProcessBroker) left(context.Context) (unsettled, dead int64, err error) {
	return b.unsettled.Load(), 0, nil
}

func (*inProcessBroker) redrive(context.Context) error {
	return errors.New("a Go channel has no dead letters")
}

func (b *inProcessBroker) close(context.Context) error {
	close(b.queue)
	b.working.Wait()
	return nil
}
