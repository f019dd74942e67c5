package cli

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// farewellTime is how long a goodbye may take after the second signal.
const farewellTime = 2 * time.Second

// farewell is what the second signal ends. It ends the process at once, unless
// somebody has a goodbye to say.
type farewell struct {
	ctx    context.Context
	cancel context.CancelFunc
	taken  atomic.Bool
	code   atomic.Int32 // to exit with, once there was a second signal
}

type farewellKey struct{}

// hurried is a context that ends at the second signal, for who then has a
// goodbye to say, quickly.
func hurried(ctx context.Context) context.Context {
	f, ok := ctx.Value(farewellKey{}).(*farewell)
	if !ok {
		return context.WithoutCancel(ctx)
	}
	f.taken.Store(true)
	return f.ctx
}

// notify ends the context at the first SIGINT or SIGTERM; a second one ends the
// process at once, or after the goodbye of who has one, a third one in any case.
func notify(parent context.Context) (ctx context.Context, stop func() (code int)) {
	f := &farewell{}
	f.ctx, f.cancel = context.WithCancel(context.WithoutCancel(parent))
	ctx, cancel := context.WithCancel(context.WithValue(parent, farewellKey{}, f))
	signals := make(chan os.Signal, 3)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-signals:
			cancel()
		case <-done:
			return
		}
		select {
		case s := <-signals:
			f.hurry(128 + number(s))
		case <-done:
			return
		}
		select {
		case s := <-signals:
			os.Exit(128 + number(s))
		case <-time.After(farewellTime):
			os.Exit(int(f.code.Load()))
		case <-done:
		}
	})
	return ctx, func() int {
		signal.Stop(signals)
		close(done)
		watching.Wait()
		cancel()
		f.cancel()
		return int(f.code.Load())
	}
}

func (f *farewell) hurry(code int) {
	if !f.taken.Load() {
		os.Exit(code)
	}
	f.code.Store(int32(code))
	f.cancel()
}

func number(s os.Signal) int {
	if n, ok := s.(syscall.Signal); ok {
		return int(n)
	}
	return 0
}
