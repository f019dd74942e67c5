package ledger

import (
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// Key names an entry in its ledger for good: the ordinal of the record that
// first accepted it. It is the entry's order too; it is kept when the entry is
// written forward.
type Key uint64

// Message is what does not change in a message's life. It belongs to the
// ledger once given to Accept, and is not changed by anybody after that.
type Message struct {
	ID          protocol.MessageID
	PublishedAt int64 // ns since the epoch
	Priority    uint8
	Group       string
	Headers     map[string][]string
	Body        []byte
	Publisher   string // as its publish named it, see protocol.PublisherOf; empty: not at all
	Story       []byte // what happened before this ledger accepted it, see StoryOf
	Extra       []byte // encoded fields this version does not know, kept
}

// Meta is what does.
type Meta struct {
	Queue        string // the queue's ledger name, see package scope
	Generation   uint32
	Attempt      uint32 // of the next delivery, 1-based
	Vanished     uint32
	Incomplete   uint32
	Due          int64 // not before, ns since the epoch; 0: at once
	FirstFailure int64 // ns since the epoch; 0: never failed
	LastFailure  int64
	Reason       protocol.Reason
	Error        string
	Source       string // the subscription of the last failure
	// Spans are those of the message's trace that what comes next refers to, as
	// its owners encode them; empty for a message that is not traced. They stay
	// in memory.
	Spans string
	Story []byte // what happened since this ledger accepted it, see Tell
	// Group is the GroupOf that counts in this queue instead of the message's; 0:
	// the message's does. It is said when the message is accepted, and stays.
	Group uint64
	Extra []byte
}

// Entry is a live message of a ledger as it stays in memory. It is read and
// changed by the ledger alone; an owner keeps what it needs in Slot.
type Entry struct {
	Key        Key
	ID         protocol.MessageID
	Queue      *Queue
	Due        int64
	Generation uint32
	Attempt    uint32
	Vanished   uint32
	Incomplete uint32
	// FirstFailure is the only time of Meta that stays in memory.
	FirstFailure int64
	Group        uint64 // Meta.Group, or GroupOf the message's
	Size         uint32 // bytes of headers and body
	Priority     uint8  // the message's
	Decided      bool   // handed over, or on its way: never to be delivered
	flags        flags
	nth          uint16 // of the recipients of the record in at
	Slot         any    // the owner's own

	at          *frame // the frame whose accept or carry states it
	stated      *frame // the frame of its latest restate or decide since then
	index       uint32 // of the record in at
	statedIndex uint32 // of the record in stated
	body        *body  // nil: not in memory
	out         *handover
}

type flags uint8

const (
	leaving flags = 1 << iota // a record that takes it away is staged
	gone                      // settled or done: only somebody's pointer is left
	bare                      // its Meta has nothing but what Entry holds
	grouped                   // its Group is Meta.Group
	shared                    // its message may be another entry's too, see frame.bodies
)

func (f flags) is(one flags) bool { return f&one != 0 }

// handover is where a decided entry is going.
type handover struct {
	dest     string
	number   uint64
	meta     *Meta // whole; nil: to be read
	progress progress
}

// Queue is what a ledger knows of one queue.
type Queue struct {
	Name     string
	Live     int64 // entries, decided ones included
	Bytes    int64
	Counters [NumCounters]uint64
	Slot     any // the owner's own

	counted *frame // states the counters, with the frames after it
	tallied uint64 // the last batch that counts for it
	tally   int    // where in there
}

// Options of Open.
type Options struct {
	// Conn is a connection of the ledger's own kind (ConnOptions): without a
	// reconnect buffer, or the client itself would send old commits later.
	Conn *nats.Conn
	// Stream holds the log; Name is the ledger, one subject token, such as
	// router-03.
	Stream, Name string
	// Owner is the instance, for people.
	Owner string
	// Bodies bounds the bodies kept in memory; shared by the ledgers of a
	// process. Nil: 64 MiB of its own.
	Bodies *Bodies
	// AcceptLoss is the operator's word to open a damaged ledger without what
	// cannot be read. Default false: Open returns a *DamageError.
	AcceptLoss bool
	Logger     *slog.Logger
	// Now is the clock; default time.Now.
	Now func() time.Time
}

// Owner is what a service does with a ledger it owns. Every method is called
// from the ledger's one goroutine, and only there may an owner call the
// methods of Ledger.
type Owner[E any] interface {
	// Opened is called once, after replay and before all else. The ledger's
	// live entries are in l.Entries, in order of Key.
	Opened(l *Ledger)
	// Handle takes what was sent with Send, in order.
	Handle(events []E)
	// Committed reports one staged record that is now in the log and applied.
	// c is valid during the call only. Entries written forward are not
	// reported: nothing changed.
	Committed(c *Commit)
	// Loaded reports a message asked for with Ledger.Load, and all of its
	// meta. m is nil if the entry was settled meanwhile; err is a *DamageError
	// if it cannot be read.
	Loaded(e *Entry, m *Message, meta Meta, err error)
	// Incoming is asked before a message handed over by another ledger is
	// accepted; it may change meta, or refuse with a coded error, which
	// leaves the message with its sender, who offers it again later.
	Incoming(m *Message, meta *Meta) error
	// Tick is called after each turn and when the time it returned last has
	// come; zero: not before something happens.
	Tick(now time.Time) time.Time
	// Closed is the last call: err is nil after Stop, ErrStale when another
	// owner took over. tags are those of records that were staged and
	// certainly not written; what was being written has no answer.
	Closed(err error, tags []any)
}

// Commit describes one record that was committed.
type Commit struct {
	Kind      Kind
	Entries   []*Entry // accept: one per recipient, in order; else the one
	Message   *Message // accept: the message
	Seq       uint64   // the log's sequence
	Handover  bool     // accept: it was handed over by another ledger
	Duplicate bool     // accept: nothing was stored, ID and Seq are the first one's
	ID        protocol.MessageID
	Tag       any
}

// Kind is a record's kind. The numbers are on disk: they are never reused.
type Kind uint8

// Kinds that are reported to an owner.
const (
	KindAccept  Kind = 2
	KindRestate Kind = 4 // meta changed, the entry stays
	KindDecide  Kind = 5 // meta changed, the entry is on its way to another ledger
	KindSettle  Kind = 6 // gone; Entries has it for the last time
	KindDone    Kind = 7 // a decided entry's handover is finished; gone
	KindNote    Kind = 8
)

// Kinds of the ledger's own.
const (
	kindEpoch   Kind = 1  // another owner begins
	kindCarry   Kind = 3  // an entry's whole state, written forward
	kindCounts  Kind = 9  // what to add to a queue's counters
	kindBarrier Kind = 10 // nothing; it proves that an earlier frame is absent
	kindForget  Kind = 11 // an empty queue's counters are added to others

	// Tables state a part of the state whole, so that the frames it grew from
	// are not needed any more.
	kindSecret   Kind = 16
	kindSender   Kind = 17
	kindReceiver Kind = 18
	kindCounters Kind = 19
	kindDedup    Kind = 20
)

// Counter is a counter kept per queue in the ledger, so that it survives a
// restart. Its name on the wire is String. The numbers are on disk: new ones
// are added at the end.
type Counter uint8

// Counters of a queue, as protocol names them.
const (
	Published Counter = iota // counted by Accept without a handover
	Deduplicated
	Delivered
	Acknowledged
	Filtered
	Failed
	Rejected
	Incomplete
	Retried
	DeadLettered
	Redriven
	Discarded
	Superseded
	Lost
	Vanished
	Refused
	Taken      // accepted from another ledger; counted by the ledger
	Sent       // decided for another ledger; counted by the ledger
	HandedBack // deliveries that a worker which shut down gave back
	WrittenOff // lost with a damaged part of the log, see Options.AcceptLoss
	Dropped    // also Discarded: nobody took it, and its broker keeps nothing
	NumCounters
)
