package ledger

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// slot keeps one ledger open, in a goroutine of its own, until it is released.
type slot struct {
	name   string
	open   func(context.Context, string) (Handle, error)
	log    *slog.Logger
	beat   time.Duration
	closed func() // called when it is closed for good
	cancel context.CancelFunc
	done   chan struct{} // closed when the ledger is closed for good
	first  chan struct{} // closed when it was open once, or found damaged

	mu      sync.Mutex
	stopCtx context.Context // bounds the ledger's Stop
	opened  Handle          // nil: it is not open
	err     error           // why
}

func newSlot(name string, o KeeperOptions, closed func()) *slot {
	ctx, cancel := context.WithCancel(context.Background())
	s := &slot{
		name: name, open: o.Open, log: o.Logger.With("ledger", name), beat: o.beat(), closed: closed, cancel: cancel,
		done: make(chan struct{}), first: make(chan struct{}),
	}
	go s.keep(ctx)
	return s
}

// release makes the slot stop its ledger, within ctx; done tells when it has.
func (s *slot) release(ctx context.Context) {
	s.mu.Lock()
	if s.stopCtx == nil {
		s.stopCtx = ctx
	}
	s.mu.Unlock()
	s.cancel()
}

// status is whether the ledger is open and, if not, why.
func (s *slot) status() (open bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opened != nil, s.err
}

// handle is the open ledger, nil if it is not.
func (s *slot) handle() Handle {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opened
}

// keep opens the ledger, again and again if it closes by itself.
func (s *slot) keep(ctx context.Context) {
	defer s.closed()
	defer close(s.done)
	first := sync.OnceFunc(func() { close(s.first) })
	defer first()
	for try := 1; ctx.Err() == nil; try++ {
		opened := time.Now()
		h, err := s.open(ctx, s.name)
		if err == nil {
			s.set(h, nil)
			first()
			s.log.Debug("ledger opened", "took", time.Since(opened).Round(time.Millisecond))
			err = s.watch(ctx, h)
		}
		if ctx.Err() != nil {
			return
		}
		s.set(nil, err)
		if isDamage(err) {
			first()
		}
		if time.Since(opened) > slotCalm {
			try = 1
		}
		s.log.Warn("ledger is not open; trying again", "error", err)
		wait(ctx, s.pause(try, err))
	}
}

// watch waits until the ledger closes, and returns why; or stops it when the
// slot is released.
func (s *slot) watch(ctx context.Context, h Handle) error {
	select {
	case <-h.Done():
		return errors.Join(h.Err(), errClosed)
	case <-ctx.Done():
	}
	s.mu.Lock()
	stopCtx, cancel := context.WithTimeout(s.stopCtx, slotStop)
	s.mu.Unlock()
	defer cancel()
	if err := h.Stop(stopCtx); err != nil {
		s.log.Warn("ledger did not stop cleanly; what it had not committed is lost to it, not to those who sent it", "error", err)
	}
	s.set(nil, nil)
	return nil
}

func (s *slot) set(opened Handle, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened, s.err = opened, err
}

var errClosed = errors.New("the ledger closed itself")

const (
	slotCalm   = 30 * time.Second // open for longer: the next failure begins anew
	damageWait = 30 * time.Second // nothing mends it but an operator
	slotFirst  = 100 * time.Millisecond
	slotMost   = 5 * time.Second
	slotStop   = 30 * time.Second // a ledger that is released stops within
)

// pause before the next try. When another owner took the ledger over, the next
// beat tells whether the lease is still held, so none is made before.
func (s *slot) pause(try int, err error) time.Duration {
	if isDamage(err) {
		return damageWait
	}
	d := min(slotFirst<<min(try-1, 10), slotMost)
	if errors.Is(err, ErrStale) {
		d = max(d, 2*s.beat)
	}
	return d
}

func isDamage(err error) bool {
	var damage *DamageError
	return errors.As(err, &damage)
}

// wait waits for d or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
