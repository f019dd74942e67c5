package ledger

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"
)

// world is a deterministic simulation: a log with the server's semantics, a
// network that delays and loses, and processes that own ledgers, crash, pause
// and come back. One seed is one history.
type world struct {
	rng    *rand.Rand
	clock  int64
	all    []simFrame // the stream, from sequence 1 on, purged ones too
	first  uint64     // the first sequence that is not purged
	wire   []*simPublish
	calls  []*simOffer
	procs  []*proc
	names  []string
	faults bool
	rate   int  // of 1000 steps, how many are faults
	tidy   bool // most faults are purges and writing forward
	manual bool // processes begin and wake by hand
	oracle *oracle
	steps  int
	trace  []string // the last things that happened

	current *coro // the one that runs
}

type simFrame struct {
	ledger string
	data   []byte
}

// simPublish is a frame on its way to the log. It outlives its writer.
type simPublish struct {
	ledger   string
	expected uint64
	data     []byte
	answer   func(uint64, error) // called when the answer arrives; it may be lost
}

type simOffer struct {
	dest   string
	data   []byte
	answer func([]byte)
}

func newWorld(seed uint64, ledgers int) *world {
	w := &world{rng: rand.New(rand.NewPCG(seed, 1)), clock: 1_000_000, first: 1, faults: true}
	for i := range ledgers {
		w.names = append(w.names, fmt.Sprintf("sim-%02d", i))
	}
	w.oracle = newOracle()
	w.rate = []int{15, 15, 60, 120}[seed/3%4]
	w.tidy = w.rate > 15
	return w
}

func (w *world) chance(p float64) bool { return w.rng.Float64() < p }

func (w *world) notef(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%d: ", w.steps)+fmt.Sprintf(format, args...))
	if len(w.trace) > 400 {
		w.trace = w.trace[200:]
	}
}

// lastOf is the sequence of a ledger's newest frame that is not purged; 0: none.
func (w *world) lastOf(ledger string) uint64 {
	for i := len(w.all); uint64(i) >= w.first; i-- {
		if w.all[i-1].ledger == ledger {
			return uint64(i)
		}
	}
	return 0
}

// store takes a frame as JetStream does: if the expected sequence is that of
// the subject's last message.
func (w *world) store(p *simPublish) (uint64, error) {
	if w.lastOf(p.ledger) != p.expected {
		return 0, &fencedError{}
	}
	w.all = append(w.all, simFrame{p.ledger, p.data})
	w.notef("log %d: frame of %s after %d", len(w.all), p.ledger, p.expected)
	return uint64(len(w.all)), nil
}

// arrive delivers a publish that is on the wire.
func (w *world) arrive(i int) {
	p := w.wire[i]
	w.wire = slices.Delete(w.wire, i, i+1)
	if w.faults && w.chance(0.03) {
		w.notef("a frame of %s is lost", p.ledger)
		return
	}
	seq, err := w.store(p)
	switch {
	case w.faults && w.chance(0.05):
		w.notef("the answer to a frame of %s is lost: %d %v", p.ledger, seq, err)
	case w.faults && w.chance(0.02):
		p.answer(0, errors.New("wrong last sequence (10164)"))
	default:
		p.answer(seq, err)
	}
}

// purge drops what no ledger needs, as the janitor does.
func (w *world) purge() {
	low := uint64(len(w.all)) + 1
	for _, name := range w.names {
		last := w.lastOf(name)
		if last == 0 {
			continue
		}
		h, _, err := decodeFrame(w.all[last-1].data)
		if err != nil {
			panic(err)
		}
		if h.floorSeq == 0 {
			return
		}
		low = min(low, h.floorSeq)
	}
	if low > w.first && low <= uint64(len(w.all)) {
		w.notef("purge to %d", low)
		w.first = low
	}
}

// proc is one process's ownership of one ledger.
type proc struct {
	w      *world
	ledger string
	id     int
	l      *Ledger // nil while it takes over
	owner  *simOwner
	posts  []func()
	coros  []*coro
	wake   int64 // 0: nothing is due
	paused bool
	dead   bool
	reads  int // frames it was given
	bodies *Bodies
}

// coro is work outside of a ledger's goroutine. It runs between two calls to
// yield, when the world lets it.
type coro struct {
	resume func() (struct{}, bool)
	stop   func()
	yield  func(struct{}) bool
	until  int64 // it sleeps
}

type crashed struct{}

// start runs f as a coroutine of p. What it returns is posted.
func (p *proc) start(f func() func()) {
	c := &coro{}
	c.resume, c.stop = iter.Pull(func(yield func(struct{}) bool) {
		defer func() {
			if r := recover(); r != nil {
				if _, ok := r.(crashed); !ok {
					panic(r)
				}
			}
		}()
		c.yield = yield
		then := f()
		p.posts = append(p.posts, then)
	})
	p.coros = append(p.coros, c)
}

// run lets a coroutine go on until it waits again.
func (p *proc) run(c *coro) {
	p.w.current = c
	if _, more := c.resume(); !more {
		p.coros = slices.DeleteFunc(p.coros, func(d *coro) bool { return c == d })
	}
}

// crash ends a process at once. What it sent is still on the wire.
func (p *proc) crash() {
	p.w.notef("%s#%d crashes", p.ledger, p.id)
	p.dead = true
	for _, c := range p.coros {
		c.stop()
	}
	p.coros, p.posts = nil, nil
	p.w.procs = slices.DeleteFunc(p.w.procs, func(q *proc) bool { return q == p })
}

// The env of a ledger.
func (p *proc) now() time.Time { return time.Unix(0, p.w.clock) }

func (p *proc) spawn(work func(context.Context) func()) {
	p.start(func() func() { return work(context.Background()) })
}

// The store of a ledger.

func (p *proc) publish(expected uint64, frame []byte, done func(uint64, error)) {
	p.w.wire = append(p.w.wire, &simPublish{
		ledger: p.ledger, expected: expected, data: slices.Clone(frame),
		answer: func(seq uint64, err error) {
			if !p.dead {
				p.posts = append(p.posts, func() { done(seq, err) })
			}
		},
	})
}

func (p *proc) broken() bool { return false }

var errTimeout = errors.New("simulated timeout")

func (p *proc) append(_ context.Context, expected uint64, frame []byte) (uint64, error) {
	type answer struct {
		seq uint64
		err error
	}
	var got *answer
	p.w.wire = append(p.w.wire, &simPublish{
		ledger: p.ledger, expected: expected, data: slices.Clone(frame),
		answer: func(seq uint64, err error) { got = &answer{seq, err} },
	})
	for tries := 0; got == nil; tries++ {
		if tries > 30 {
			return 0, errTimeout
		}
		p.pause()
	}
	return got.seq, got.err
}

// pause lets the world go on, in a coroutine.
func (p *proc) pause() {
	if !p.w.current.yield(struct{}{}) {
		panic(crashed{})
	}
}

func (p *proc) missing(context.Context, uint64) ([]uint64, error) { return nil, nil }

func (p *proc) newest(context.Context) (stored, error) {
	p.pause()
	if p.w.faults && p.w.chance(0.05) {
		return stored{}, errTimeout
	}
	last := p.w.lastOf(p.ledger)
	if last == 0 {
		return stored{}, nil
	}
	return stored{last, p.w.all[last-1].data}, nil
}

// read may be answered by a replica that is behind, and the log may be purged
// while it goes on.
func (p *proc) read(_ context.Context, from uint64, n int, f func(stored) bool) error {
	p.pause()
	end := uint64(len(p.w.all))
	if p.w.faults && p.w.chance(0.1) && end > 0 {
		end -= p.w.rng.Uint64N(min(end, 4))
	}
	for seq := max(from, p.w.first); seq <= end && n > 0; seq = max(seq+1, p.w.first) {
		if p.w.all[seq-1].ledger != p.ledger {
			continue
		}
		p.reads++
		if !f(stored{seq, p.w.all[seq-1].data}) {
			return nil
		}
		n--
		if p.w.chance(0.2) {
			p.pause()
		}
	}
	return nil
}

func (p *proc) offer(_ context.Context, dest string, batch []byte) ([]byte, error) {
	var got []byte
	p.w.calls = append(p.w.calls, &simOffer{dest: dest, data: slices.Clone(batch), answer: func(b []byte) { got = b }})
	for tries := 0; got == nil; tries++ {
		if tries > 60 {
			return nil, errTimeout
		}
		p.pause()
	}
	return got, nil
}

func (p *proc) sleep(_ context.Context, d time.Duration) error {
	p.w.current.until = p.w.clock + int64(d)
	p.pause()
	return nil
}

func (p *proc) maxFrame() int { return 8 << 10 }

// begin starts a process that takes the ledger over.
func (w *world) begin(name string) *proc {
	w.oracle.procs++
	p := &proc{w: w, ledger: name, id: w.oracle.procs, bodies: NewBodies(int64(w.rng.IntN(20_000)))}
	w.notef("%s#%d begins", name, p.id)
	w.procs = append(w.procs, p)
	t := &takeover{store: p, ledger: name, owner: "sim", now: p.now, log: slog.New(slog.DiscardHandler)}
	p.start(func() func() {
		err := t.run(context.Background())
		return func() { p.tookOver(t, err) }
	})
	return p
}

func (p *proc) tookOver(t *takeover, err error) {
	if err != nil {
		panic(fmt.Sprintf("%s#%d cannot open: %v", p.ledger, p.id, err))
	}
	p.w.notef("%s#%d owns epoch %d", p.ledger, p.id, t.state.epoch)
	p.owner = &simOwner{p: p}
	p.l = newLedger(p.ledger, t.state, p, p, p.bodies, slog.New(slog.DiscardHandler))
	p.l.owner = p.owner
	p.l.opened()
}

// turn is what Running.turn does.
func (p *proc) turn() {
	posts := p.posts
	p.posts = nil
	for _, f := range posts {
		if p.l == nil || !p.l.closed {
			f()
		}
	}
	if p.l == nil {
		return
	}
	if !p.l.closed && p.w.faults {
		p.owner.act()
	}
	wake := p.l.turn()
	p.wake = 0
	if !wake.IsZero() {
		p.wake = wake.UnixNano()
	}
	if p.l.closed {
		p.w.notef("%s#%d closed: %v", p.ledger, p.id, p.l.err)
		p.crash()
	}
}
