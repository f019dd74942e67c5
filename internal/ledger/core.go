package ledger

import (
	"cmp"
	"context"
	"iter"
	"log/slog"
	"maps"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

// Ledger is an open ledger as its owner sees it. Its methods are called from
// the ledger's goroutine only, that is from the Owner's methods.
type Ledger struct {
	*state
	name  string
	env   env
	store store
	owner hooks
	log   *slog.Logger

	bodies   *Bodies
	fetcher  fetcher
	maxBatch int // bytes of a commit's records; as many again are for what is written forward

	stage   stage
	flight  *flight // the commit under way; nil: none
	serial  uint64  // counts the commits
	told    Commit  // scratch of tell
	outbox  map[string]*outbox
	arrival map[arrival][]*offer // handovers staged
	asked   []*reading           // to be loaded
	forward forward
	closing bool
	closed  bool
	err     error
	done    func(error) // tells Running
	backlog atomic.Int64
	full    atomic.Bool // the log has no room for the commit under way
}

// env is what a ledger needs of what runs it.
type env interface {
	now() time.Time
	// spawn calls work outside of the ledger's goroutine, then what it
	// returned inside. work's context ends with the ledger.
	spawn(work func(context.Context) func())
}

// hooks is Owner without its events.
type hooks interface {
	Opened(l *Ledger)
	Committed(c *Commit)
	Loaded(e *Entry, m *Message, meta Meta, err error)
	Incoming(m *Message, meta *Meta) error
	Tick(now time.Time) time.Time
	Closed(err error, tags []any)
}

func newLedger(name string, s *state, st store, e env, bodies *Bodies, log *slog.Logger) *Ledger {
	l := &Ledger{
		state: s, name: name, env: e, store: st, log: log, bodies: bodies,
		fetcher:  fetcher{store: st, ledger: name, bodies: bodies},
		maxBatch: st.maxFrame()/2 - headroom,
		outbox:   map[string]*outbox{},
		arrival:  map[arrival][]*offer{},
		done:     func(error) {},
	}
	l.stage.init()
	return l
}

// opened tells the owner, and takes up what the last owner had decided.
func (l *Ledger) opened() {
	for _, s := range l.senders {
		l.stage.numbers[s.dest] = s.last + l.stage.leap
	}
	var decided []*Entry
	for _, e := range l.entries {
		if e.Decided {
			decided = append(decided, e)
		}
	}
	slices.SortFunc(decided, func(a, b *Entry) int { return cmp.Compare(a.out.number, b.out.number) })
	for _, e := range decided {
		l.post(e)
	}
	l.owner.Opened(l)
}

// turn does what there is to do and returns when the next turn is due at the
// latest.
func (l *Ledger) turn() time.Time {
	if l.closed {
		return time.Time{}
	}
	now := l.env.now()
	l.report()
	wake := l.owner.Tick(now)
	l.report()
	wake = sooner(wake, l.courier(now))
	l.writeForward()
	wake = sooner(wake, l.write(now))
	if l.closing && l.idle() && !l.forward.mending {
		l.close(nil)
	}
	return wake
}

// report answers what needs no commit: publishes that are duplicates, and
// messages that were asked for.
func (l *Ledger) report() {
	for len(l.stage.answers) > 0 || len(l.asked) > 0 {
		answers, asked := l.stage.answers, l.asked
		l.stage.answers, l.asked = nil, nil
		for i := range answers {
			l.owner.Committed(&answers[i])
		}
		l.load(asked)
	}
}

// idle says that nothing is staged and nothing under way.
func (l *Ledger) idle() bool {
	return l.flight == nil && l.stage.empty()
}

// close ends the ledger. What is staged is certainly not written.
func (l *Ledger) close(err error) {
	if l.closed {
		return
	}
	l.report()
	l.closed, l.err = true, err
	for _, offers := range l.arrival {
		for _, o := range offers {
			o.abandon()
		}
	}
	l.owner.Closed(err, l.stage.tags())
	for _, e := range l.entries {
		l.dropBody(e)
		l.dropOut(e)
	}
	l.done(err)
}

func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Name is the ledger's name.
func (l *Ledger) Name() string { return l.name }

// Epoch counts the ledger's owners; it is this one's.
func (l *Ledger) Epoch() uint64 { return l.epoch }

// Secret is the ledger's own random number, the same for every owner.
func (l *Ledger) Secret() Secret { return l.secret.value }

// Live counts the live messages, decided ones included, and the bytes of their
// headers and bodies: a message that was accepted for several queues is one for
// each of them, with the bytes of one.
func (l *Ledger) Live() (messages, bytes int64) { return l.messages, l.state.bytes }

// Entry finds a live entry; nil when there is none.
func (l *Ledger) Entry(k Key) *Entry { return l.entries[k] }

// Entries are the live entries in order of Key.
func (l *Ledger) Entries() iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		for _, e := range l.inOrder() {
			if !e.flags.is(gone) && !yield(e) {
				return
			}
		}
	}
}

// EntriesIn are the live entries of the queues that in chooses, in no order.
func (l *Ledger) EntriesIn(in func(q *Queue) bool) iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		for _, e := range l.entries {
			if !e.flags.is(gone) && in(e.Queue) && !yield(e) {
				return
			}
		}
	}
}

// Queue finds a queue; nil when nothing was ever in it, or it was forgotten.
// The queue "" counts what belongs to no queue.
func (l *Ledger) Queue(name string) *Queue { return l.queues[name] }

// Queues are the queues, in no order, without those that only count.
func (l *Ledger) Queues() iter.Seq[*Queue] {
	return func(yield func(*Queue) bool) {
		for name, q := range l.queues {
			if !onlyCounts(name) && !yield(q) {
				return
			}
		}
	}
}

// Counting are all that have counters: queues, what is left of those that were
// forgotten, under scope.Folded names, and "".
func (l *Ledger) Counting() iter.Seq[*Queue] { return maps.Values(l.queues) }

func onlyCounts(name string) bool { return name == "" || scope.IsFolded(name) }

// Note is the value of an owner's note; nil when there is none. It is not to
// be changed.
func (l *Ledger) Note(key string) []byte {
	if n := l.notes[key]; n != nil {
		return n.value
	}
	return nil
}

// Notes are the owner's notes, in no order.
func (l *Ledger) Notes() iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		for key, n := range maps.All(l.notes) {
			if !yield(key, n.value) {
				return
			}
		}
	}
}

// Meta is what stays in memory of an entry's meta: all but Reason, Error,
// Source and LastFailure, which Load has.
func (l *Ledger) Meta(e *Entry) Meta {
	return Meta{
		Queue: e.Queue.Name, Generation: e.Generation, Attempt: e.Attempt,
		Vanished: e.Vanished, Incomplete: e.Incomplete,
		Due: e.Due, FirstFailure: e.FirstFailure, Group: e.ownGroup(), Spans: l.traced[e.Key].spans, Story: l.stories[e.Key], Extra: l.extras[e.Key],
	}
}

// Traced is Meta.Spans of an entry, with the Meta.LastFailure that they were
// recorded with; empty for one that is not traced.
func (l *Ledger) Traced(e *Entry) (spans string, lastFailure int64) {
	if len(l.traced) == 0 {
		return "", 0
	}
	t := l.traced[e.Key]
	return t.spans, t.lastFailure
}

// Message is the entry's message if it is in memory, else nil: see Load.
func (l *Ledger) Message(e *Entry) *Message {
	if e.body == nil {
		return nil
	}
	return e.body.message
}

// keepBody keeps a message in memory while it has room.
func (l *Ledger) keepBody(m *Message, size uint32, overhead int64, entries []*Entry) {
	b := &body{message: m, cost: int64(size) + int64(len(m.Story)) + overhead}
	if !l.bodies.keep(b.cost) {
		return
	}
	for _, e := range entries {
		e.body = b
		b.refs++
	}
}

func (l *Ledger) dropBody(e *Entry) {
	b := e.body
	if b == nil {
		return
	}
	e.body = nil
	b.refs--
	if b.refs == 0 {
		l.bodies.release(b.cost)
	}
}

// String is the counter's name on the wire.
func (c Counter) String() string {
	if c < NumCounters {
		return counterNames[c]
	}
	return "unknown"
}

var counterNames = [NumCounters]string{
	Published: protocol.CountPublished, Deduplicated: protocol.CountDeduplicated,
	Delivered: protocol.CountDelivered, Acknowledged: protocol.CountAcknowledged,
	Filtered: protocol.CountFiltered, Failed: protocol.CountFailed,
	Rejected: protocol.CountRejected, Incomplete: protocol.CountIncomplete,
	Retried: protocol.CountRetried, DeadLettered: protocol.CountDeadLettered,
	Redriven: protocol.CountRedriven, Discarded: protocol.CountDiscarded,
	Superseded: protocol.CountSuperseded, Lost: protocol.CountLost,
	Vanished: protocol.CountVanished, Refused: protocol.CountRefused,
	Taken: protocol.CountTaken, Sent: protocol.CountSent,
	HandedBack: protocol.CountHandedBack, WrittenOff: protocol.CountWrittenOff,
	Dropped: protocol.CountDropped,
}

// Named are the counters that are not 0, by name.
func Named(c *[NumCounters]uint64) map[string]uint64 {
	named := make(map[string]uint64)
	for i, n := range c {
		if n > 0 {
			named[Counter(i).String()] = n
		}
	}
	return named
}

// Shown are those of them that say something of a queue, and not of where its
// messages are kept; nil if there are none.
func Shown(c *[NumCounters]uint64) map[string]uint64 {
	shown := *c
	shown[Taken], shown[Sent] = 0, 0
	if shown == [NumCounters]uint64{} {
		return nil
	}
	return Named(&shown)
}

// maxRecipients of one Accept.
const maxRecipients = math.MaxUint16
