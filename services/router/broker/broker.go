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
	"github.com/waybill-mq/waybill/internal/ledger"
)

// What a lane keeps in memory of a message and its queue is the ledger's;
// another broker's Store makes its own, with keys that rise in the order of
// the queue.
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
	// Window says how many messages of the queue the lane has room for: what a
	// push broker takes as its prefetch, 0 to stop consuming. The ledger has
	// no use for it.
	Window(queue string, n int)
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

// Lane is what a Store tells the dispatcher, in the lane's goroutine.
type Lane interface {
	// Post runs f in the lane's goroutine, soon; false once the lane is
	// closed. It alone may be called from any goroutine.
	Post(f func()) bool
	// Stored answers a Publish.
	Stored(tag any, r Receipt)
	// Arrived gives the lane an entry to deliver. m may be nil.
	Arrived(e *Entry, m *Message)
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
	// Lost says that the broker has taken the entry back, with its connection
	// or consumer: it arrives again as another entry, and settling this one is
	// withheld and counted superseded.
	Lost(e *Entry)
}
