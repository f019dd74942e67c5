package ledger

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/nats-io/nuid"
)

// verdict is what became of a commit whose answer was lost.
type verdict struct {
	landed  bool   // it is in the log, at seq
	seq     uint64 // of it, or of the barrier
	barrier header
	mark    []byte // the barrier's
	err     error  // ErrStale, or the context's
}

// resolve finds out what became of the commit under way. A commit can land
// after its writer gave up, so neither waiting nor reading alone decides. But
// only one frame can follow the newest: either it is the lost commit, or it is
// a barrier written for that purpose, and then the commit never comes.
func (l *Ledger) resolve(cause error) {
	f := l.flight
	f.unknown = true
	l.log.Warn("finding out what became of a commit", "ledger", l.name, "epoch", l.epoch, "after", l.seq, "cause", cause)
	l.full.Store(noRoom(cause))
	r := resolver{store: l.store, epoch: l.epoch, frame: f.frame, after: f.expected, full: &l.full}
	r.header = f.header
	r.header.count = 1
	l.env.spawn(func(ctx context.Context) func() {
		v := r.run(ctx)
		return func() { l.resolved(v) }
	})
}

func (l *Ledger) resolved(v verdict) {
	l.full.Store(false)
	switch {
	case l.closed:
	case v.err != nil:
		l.close(v.err)
	case v.landed:
		l.log.Info("the commit is in the log", "ledger", l.name, "seq", v.seq)
		l.committed(v.seq)
	default:
		l.log.Info("the commit is not in the log, and is sent again", "ledger", l.name)
		l.absent(v)
	}
}

// absent applies the barrier and sends the lost commit's records again.
func (l *Ledger) absent(v verdict) {
	f := l.flight
	l.begin(&v.barrier, v.seq)
	l.apply(&record{kind: kindBarrier, value: v.mark})
	l.end()
	l.flight = nil
	l.forward.committed(&v.barrier, f.forward)
	for i := range f.head {
		if f.head[i].kind == kindForget {
			l.stage.forget = append(l.stage.forget, f.head[i].name)
		}
	}
	if f.batch != nil {
		l.stage.batches = append([]*batch{f.batch}, l.stage.batches...)
	}
}

// resolver works outside of the ledger's goroutine.
type resolver struct {
	store  store
	epoch  uint64
	frame  []byte // lost
	after  uint64 // the sequence it was to follow
	header header // of a barrier in its place
	tried  []barrier
	full   *atomic.Bool // said while the log has no room
}

type barrier struct {
	frame, mark []byte
}

// run asks until it knows.
func (r *resolver) run(ctx context.Context) verdict {
	var wait backoff
	for {
		v, err := r.attempt(ctx)
		if err == nil {
			return v
		}
		if ctx.Err() != nil {
			return verdict{err: context.Cause(ctx)}
		}
		if noRoom(err) {
			r.full.Store(true)
		}
		if err := r.store.sleep(ctx, wait.next()); err != nil {
			return verdict{err: err}
		}
	}
}

var errOpen = errors.New("not known yet")

func (r *resolver) attempt(ctx context.Context) (verdict, error) {
	newest, err := r.store.newest(ctx)
	if err != nil {
		return verdict{}, err
	}
	if newest.seq < r.after {
		return verdict{}, errOpen // asked of a server that is behind
	}
	if newest.seq > r.after {
		return r.recognise(newest)
	}
	b := r.barrier()
	seq, err := r.store.append(ctx, r.after, b.frame)
	if err != nil {
		return verdict{}, err // whatever it says: the newest frame tells
	}
	return r.passed(b, seq), nil
}

// recognise says what the frame is that followed.
func (r *resolver) recognise(newest stored) (verdict, error) {
	if bytes.Equal(newest.data, r.frame) {
		return verdict{landed: true, seq: newest.seq}, nil
	}
	for _, b := range r.tried {
		if bytes.Equal(newest.data, b.frame) {
			return r.passed(b, newest.seq), nil
		}
	}
	h, _, err := decodeFrame(newest.data)
	if err == nil && h.epoch > r.epoch {
		return verdict{err: ErrStale}, nil
	}
	return verdict{}, errOpen
}

func (r *resolver) passed(b barrier, seq uint64) verdict {
	return verdict{seq: seq, barrier: r.header, mark: b.mark}
}

// barrier makes one that cannot be mistaken for another.
func (r *resolver) barrier() barrier {
	mark := []byte(nuid.Next())
	frame := appendHead(nil, &r.header)
	frame = appendRecord(frame, &record{kind: kindBarrier, value: mark})
	b := barrier{frame: sealFrame(frame), mark: mark}
	r.tried = append(r.tried, b)
	return b
}

// backoff grows from 20 ms to a second.
type backoff struct{ last time.Duration }

const (
	backoffFirst = 20 * time.Millisecond
	backoffMost  = time.Second
)

func (b *backoff) next() time.Duration {
	b.last = min(max(2*b.last, backoffFirst), backoffMost)
	return b.last
}
