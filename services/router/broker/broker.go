// Package broker is the seam between the router's dispatcher, which is the same
// for every broker, and where a queue's messages are kept.
//
// Every queue has a lane: an event loop with one owner in the mesh, standing on
// a ledger, in which windows, timeouts, tokens, claims and verdicts are decided
// without locks. A Broker attaches to a lane a Store for the queues placed on
// it. The builtin Store is the lane's own ledger; another broker's keeps the
// messages there and the lane's ledger only counts them.
//
// What a Store is asked and what it answers is one state machine, whatever is
// behind it: a message that Arrived is the lane's to deliver until it is
// settled, handed over, or Lost. Handing over is decided durably before the
// next owner is told, so a message the lane was told has Left is never
// delivered here again.
package broker

import (
	"context"
	"iter"
	"time"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// What a lane keeps in memory of a message and its queue is the ledger's;
// another broker's Store makes its own, with keys of the lane's that rise in the
// order of the queue.
type (
	// Entry is a message as it stays in memory.
	Entry = ledger.Entry
	// Queue is what is known of a queue.
	Queue = ledger.Queue
	// Message is what does not change in a message's life.
	Message = ledger.Message
	// Meta is what does.
	Meta = ledger.Meta
	// Counter is a counter of a queue.
	Counter = ledger.Counter
)

// Broker keeps messages.
type Broker interface {
	// Name is how configuration and publish answers call it.
	Name() string
	Capabilities() Capabilities
	// Durability is the word of a publish answer (protocol.DurabilityFsync, …).
	Durability() string
	// Attach makes the broker's side of a lane, from the lane's goroutine. l
	// is the ledger the lane stands on.
	Attach(l *ledger.Ledger, lane Lane) Store
}

// Publish is a message to be stored in a queue, or in all queues that receive
// a topic: in all of them or in none.
type Publish struct {
	Message *Message
	Queue   string
	Topic   string // instead of Queue, with
	To      []Copy // of which there is at least one
	// Due is when it may be delivered, ns since the epoch; 0: at once.
	Due int64
	// Spans is Meta.Spans of a message that is traced and not due.
	Spans string
	// Dedup is the publisher's id; empty: none.
	Dedup string
	// Tag comes back with the receipt.
	Tag any
}

// Demand is what the consumers of a queue ask of its Store.
type Demand struct {
	// Window is how many messages the lane has room for: what a push broker takes
	// as its prefetch; 0 to stop consuming.
	Window int
	// FIFO says that the order counts, MaxPriority, if it is not 0, that
	// priorities up to it do.
	FIFO        bool
	MaxPriority uint8
}

// Copy is what one queue of a topic receives of a publish.
type Copy struct {
	Queue string
	// Group is the one that counts in this queue instead of the message's; 0: the
	// message's.
	Group uint64
	// Due, if it is later than the publish's, stands instead of it.
	Due int64
}

// Receipt says where a publish went.
type Receipt struct {
	Seq       uint64
	Duplicate bool
	ID        [16]byte // of the first publish, if this is a duplicate
}

// Store keeps the messages of a lane's queues on one broker. The lane calls it
// from its own goroutine only; it never blocks and answers through Lane.
type Store interface {
	// Publish stores a message: Lane.Stored answers once it is safe. An error
	// refuses it at once, nothing is stored.
	Publish(p Publish) error
	// Demand says what the queue's consumers ask for. The ledger has no use for
	// it.
	Demand(queue string, d Demand)
	// Message is the entry's message if it is in memory.
	Message(e *Entry) *Message
	// Load reads the messages of entries: Lane.Read answers for each.
	Load(entries []*Entry)
	// Meta is what is known of the entry without reading.
	Meta(e *Entry) Meta
	// Settle ends a message and counts it: how is Acknowledged, Filtered or
	// Discarded. It may be lazy: a lost settlement repeats a delivery.
	Settle(e *Entry, how Counter)
	// SettleNow is Settle for a message whose followers wait for its end:
	// Lane.Settled answers once it is recorded.
	SettleNow(e *Entry, how Counter)
	// Return records meta and keeps the entry: Lane.Returned answers. False:
	// the entry has left already.
	Return(e *Entry, meta Meta) bool
	// Retry hands the entry over to wait for meta.Due, DeadLetter to the dead
	// letters: Lane.Left answers once it is recorded, Lane.Handed once the
	// next owner has it. False: the entry has left already.
	Retry(e *Entry, meta Meta) bool
	DeadLetter(e *Entry, meta Meta) bool
}

// PlaceNote is the key of the note in a lane's ledger that a broker of that id has a
// queue. Stores write it when they first use the queue.
func PlaceNote(id, queue string) string { return "place/" + id + "\n" + queue }

// KeptNote is the key of the note in a lane's ledger about a message that stays in its
// place on a broker of that id.
func KeptNote(id, message string) string { return "kept/" + id + "\n" + message }

// Remembering is a Store that knows for a while what was published to it under an id
// (Publish.Dedup), so that the same is not stored elsewhere when its queue moves.
type Remembering interface{ Remembers(p Publish) bool }

// Hurrying is a Store of a broker on which messages wait for a time that they carry.
type Hurrying interface {
	// Hurry notes that they are due, whatever they say, and calls done, in the lane's
	// goroutine, when that is in the log, or cannot be.
	Hurry(all []Letter, by string, done func(err error))
}

// Keys are those of the entries of a lane that are on brokers.
type Keys interface {
	// Key is one for an entry that has arrived, higher than any before, whatever
	// broker that was on.
	Key() ledger.Key
}

// Answers are those to what a Store was asked.
type Answers interface {
	// Stored answers a Publish.
	Stored(tag any, r Receipt)
	// Refused answers a Publish that came to nothing, or of which nobody knows.
	Refused(tag any, err error)
	// Read answers Load. m is nil if the entry is gone; err if it cannot be
	// read.
	Read(e *Entry, m *Message, err error)
	// Returned says that the entry may be delivered again, from e.Due on.
	Returned(e *Entry)
	// Settled answers SettleNow.
	Settled(e *Entry)
	// Left says that the entry is recorded to be on its way elsewhere.
	Left(e *Entry)
	// Handed says that it has got there.
	Handed(e *Entry)
}

// Lane is what a Store tells the dispatcher, in the lane's goroutine.
type Lane interface {
	Keys
	Answers
	// Post runs f in the lane's goroutine, soon; false once the lane is
	// closed. It alone may be called from any goroutine.
	Post(f func()) bool
	// Arrived gives the lane an entry to deliver. m may be nil.
	Arrived(e *Entry, m *Message)
	// Lost says that the broker has taken the entry back, with its connection
	// or consumer: it arrives again as another entry, and settling this one is
	// withheld and counted superseded.
	Lost(e *Entry)
	// Ended says whether the entry's handler has, and what follows is not recorded yet. The
	// broker's Store keeps such an entry, if it will know its message again, and does then
	// what it is asked.
	Ended(e *Entry) bool
	// Leaves has an entry that has arrived be away until it has Left or is Lost: what
	// follows its handler's end is known, and nobody is given it.
	Leaves(e *Entry)
}

// RemoteKey is set in the keys of entries that are not in the lane's ledger, so
// that a key tells whose it is.
const RemoteKey ledger.Key = 1 << 63

// Remote is a Broker outside of the mesh: messages of its queues are in no
// ledger.
type Remote interface {
	Broker
	// Open connects. UNAVAILABLE, with the broker's address: it cannot be
	// reached. Once open, a connection that is lost is made again.
	Open(ctx context.Context) error
	// Close gives back what was not settled, and disconnects.
	Close(ctx context.Context) error
	// Away says why the broker cannot be used now; nil: it can.
	Away() error
	Letters
}

// Naming is a Remote that cannot have every queue.
type Naming interface {
	// CheckName refuses a queue that the broker has no name for.
	CheckName(queue string) error
}

// Hearing is a Remote that may be asked while it takes nothing (Remote.Away).
type Hearing interface {
	// Unheard says why it cannot be asked now; nil: it can.
	Unheard() error
}

// Comparing is a Remote that knows itself again.
type Comparing interface {
	// Same says whether other is the same broker, under another address maybe, so that
	// queues are the same there and here. Both are open.
	Same(ctx context.Context, other Remote) (bool, error)
}

// Defaulting is a Remote that is configured with defaults of its own.
type Defaulting interface{ Defaults() Defaults }

// Prioritized is a Store whose queues are made with priorities, or without.
type Prioritized interface {
	// Priorities is the highest that the queue was made with; 0: it has none.
	Priorities(queue string) uint8
}

// Defaults hold for subscribers of a broker's queues that say nothing.
type Defaults struct {
	MaxRetries, Concurrency int
	// PriorityField is the member of a message's data that is its priority, where
	// its queue has priorities and its publisher says none; empty: none is.
	PriorityField string
	// RetryDelay is how long every failed message waits where Capabilities.Delay is
	// DelayFixed.
	RetryDelay time.Duration
}

// RemoteStore is the Store of a Remote. What the broker delivers twice because a
// settlement was lost on its way to it is settled again, and not delivered.
type RemoteStore interface {
	Store
	RemoteQueues
	// Entry is the live entry of that key, nil if there is none.
	Entry(k ledger.Key) *Entry
	// Entries are those that are live, Live is how many of them a queue has.
	Entries() iter.Seq[*Entry]
	Live(queue string) int
	// Leave gives an entry to whom keep gives it, who calls kept, in the lane's
	// goroutine, once it is safe there: then the broker's is settled, and the lane is
	// told that it has Left and is Handed over. Nothing is counted. False: keep said
	// so and the entry stays, or it has left already.
	Leave(e *Entry, keep func(kept func()) bool) bool
	// GiveBack returns an entry that nobody has, unspent, to its queue.
	GiveBack(e *Entry)
	// Close gives up what is not settled: the lane has another owner.
	Close()
}

// RemoteQueues are the queues of a lane that a Remote has.
type RemoteQueues interface {
	// Queues are those that were ever used in this lane and not forgotten, with
	// the delays for which their messages may wait, in milliseconds.
	Queues() iter.Seq2[string, []int64]
	// Has says whether Queues has the queue.
	Has(queue string) bool
	// Comes is how many messages may be on their way to the queue that Letters.Depth
	// does not count, because their delay has passed and the broker moves them.
	Comes(queue string) int
	// Rest is a demand for nothing, after which done is called once nothing more comes, in
	// the lane's goroutine. still: nothing has come since, and all that went back before is
	// in Letters.Depth.
	Rest(queue string, done func(still bool))
	// Bind has the queue receive the topic, and says in the lane's goroutine when
	// it does. Unbind ends that.
	Bind(queue, topic string, done func())
	Unbind(queue, topic string)
	// Forget removes the queue from the broker with all that it holds, waiting
	// and dead messages too.
	Forget(queue string)
}

// Noted is a tag of a note in the lane's ledger whose store wants to know when it
// is in the log.
type Noted interface{ Noted() }

// Letters are the dead letters that a Remote keeps, and what else is in its
// queues. Each call takes a queue's ledger name.
type Letters interface {
	// Depth says how much the broker has of a queue whose messages may wait for
	// these delays, in milliseconds.
	Depth(ctx context.Context, queue string, delays []int64) (Depth, error)
	// Browse reads the oldest n dead letters, in their order, and leaves them as
	// they are; with an id, the one of that message wherever it is.
	Browse(ctx context.Context, queue string, n int, id protocol.MessageID) ([]Letter, error)
	// Act redrives or discards the dead letters there are, or of these the one
	// with an id, and says how many.
	Act(ctx context.Context, queue string, a Action) (int64, error)
}

// WithoutLetters is a Remote that has no dead letters, and words of its own for that.
type WithoutLetters interface{ NoLetters() error }

// Shelves is a Remote that can show what it holds besides dead letters.
type Shelves interface {
	// Waiting reads some of the messages of a queue that wait for these delays, in
	// milliseconds: n of each, at most, and with an id that one alone.
	Waiting(ctx context.Context, queue string, delays []int64, n int, id protocol.MessageID) ([]Letter, error)
	// ActWaiting lets messages go before their time, or discards them, and says how
	// many.
	ActWaiting(ctx context.Context, queue string, delays []int64, a Action) (int64, error)
	// Ready looks for a message in a queue that nobody consumes.
	Ready(ctx context.Context, queue string, id protocol.MessageID) ([]Letter, error)
}

// Depth is how many messages the broker has of a queue.
type Depth struct {
	Ready   int64 // in the queue, and delivered to nobody
	Waiting int64 // for their next attempt
	Dead    int64
	// Taken is how many have, or may have, anything of the queue that is neither: its
	// consumers, or the messages that are delivered and not settled. It is of the same
	// moment as Ready.
	Taken int64
}

// Letter is a dead letter, or another message that a broker holds.
type Letter struct {
	Message *Message
	Meta    Meta
	Place   string // the broker's name of where it is
	// Size is that of the body, where Message does not have it.
	Size int
}

// SizeBytes is how large the message's body is.
func (l *Letter) SizeBytes() int { return max(l.Size, len(l.Message.Body)) }

// Action is what is done with dead letters, or with what waits.
type Action struct {
	Redrive bool // or let go; else they are discarded
	// ID is the message meant; zero: all.
	ID protocol.MessageID
	// By is who asked.
	By string
	// Hurry, of what waits, has whoever owns the lane take messages that are let go as
	// due, though the time that they were to wait for is in them. It returns when that
	// is safe.
	Hurry func(ctx context.Context, all []Letter) error
}
