package mesh

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// Lifecycle runs named cleanups last in, first out, once, bounded by a
// context. Its zero value is ready. It is safe for concurrent use.
type Lifecycle struct {
	mu       sync.Mutex
	cleanups []cleanup
	once     sync.Once
	err      error
}

type cleanup struct {
	name string
	stop func(context.Context) error
}

// Add adds a cleanup. One added after Stop never runs.
func (l *Lifecycle) Add(name string, stop func(context.Context) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cleanups = append(l.cleanups, cleanup{name, stop})
}

// Stop runs every cleanup, also after one failed or ctx ended: each has to
// look at ctx itself. The errors are joined, each with its cleanup's name. A
// further call waits for the first and returns the same.
func (l *Lifecycle) Stop(ctx context.Context) error {
	l.once.Do(func() {
		l.mu.Lock()
		cleanups := l.cleanups
		l.cleanups = nil
		l.mu.Unlock()
		var errs []error
		for _, c := range slices.Backward(cleanups) {
			if err := c.stop(ctx); err != nil {
				errs = append(errs, fmt.Errorf("stopping %s: %w", c.name, err))
			}
		}
		l.err = errors.Join(errs...)
	})
	return l.err
}
