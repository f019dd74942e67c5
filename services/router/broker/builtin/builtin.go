// Package builtin is the broker that needs no broker: a queue's messages are in
// the ledger its lane stands on.
package builtin

import (
	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker"
)

// Name is the broker's name.
const Name = "builtin"

// Capabilities of the ledger: all of them.
var Capabilities = broker.Capabilities{
	Durable: true, Retries: true, Delay: broker.DelayExact, DeadLetters: true, Waiting: true,
	FIFO: true, Priorities: true, Schedules: true,
	Dedup: protocol.DedupWindow, Resumes: true,
}

// Broker keeps queues in ledgers.
type Broker struct {
	durability string
	next       Next
}

// Next names the ledgers that a lane's messages leave to. It is "" while it is
// not known: nothing leaves then.
type Next func(lane string) (retry, dlq string)

// New makes the broker; durability is the word of its publish answers.
func New(durability string, next Next) *Broker {
	return &Broker{durability: durability, next: next}
}

// Name is builtin.
func (b *Broker) Name() string { return Name }

// Durability says what held when a publish was answered.
func (b *Broker) Durability() string { return b.durability }

// Capabilities are the ledger's.
func (b *Broker) Capabilities() broker.Capabilities { return Capabilities }

// Attach makes the store of a lane; Lane.Stored and the others are called from
// Committed and Loaded, which the lane passes on from its ledger.
func (b *Broker) Attach(l *ledger.Ledger, lane broker.Lane) broker.Store { return b.Open(l, lane) }

// Open is Attach with the type that takes the ledger's own reports.
func (b *Broker) Open(l *ledger.Ledger, lane broker.Lane) *Store {
	return &Store{ledger: l, lane: lane, next: b.next}
}
