package remote

import (
	"context"

	"github.com/waybill-mq/waybill/services/router/broker"
)

// Side is a broker as the store of one lane uses it. Only Sink is called back
// from its goroutines; what takes a while takes a context.
type Side interface {
	// Away says why the broker cannot be used now; nil: it can.
	Away() error
	// Spot is what the broker has of a queue. An error refuses its name.
	Spot(queue string) (Spot, error)
	// Encode makes w ready to be written. An error refuses the message.
	Encode(w *Writing) error
	// Write has w written after what was given before, and calls w.Done once,
	// from any goroutine.
	Write(w *Writing)
	// Backlog is how many bytes are on their way.
	Backlog() int64
	// Take begins to consume a queue, for as long as ctx lives.
	Take(ctx context.Context, spot Spot, sink Sink) Consumption
}

// Spot is a queue on the broker. Its methods may be called again and again.
type Spot interface {
	// Name is what it is called there.
	Name() string
	// Establish makes it, and has it receive the topic if that is not empty.
	Establish(ctx context.Context, made Made, topic string) error
	// EstablishDead makes the place of its dead letters.
	EstablishDead(ctx context.Context) error
	Unbind(ctx context.Context, topic string) error
	// Remove removes it with all it holds, waiting and dead messages too.
	Remove(ctx context.Context) error
}

// Made is what a queue is.
type Made struct {
	Known       bool  `json:"known,omitempty"`
	FIFO        bool  `json:"fifo,omitempty"`         // from then on
	MaxPriority uint8 `json:"max_priority,omitempty"` // 0: it has none
}

// Kind is where a Writing goes.
type Kind int

// Kinds.
const (
	Fresh   Kind = iota // to its queue or topic, just published
	Waiting             // to its queue, once Meta.Due has come
	Dead                // to the dead letters of its queue
)

// Writing is a message on its way to the broker.
type Writing struct {
	Kind    Kind
	Spot    Spot   // its queue; nil:
	Topic   string // goes to one
	To      []Spot // with a topic: the queues that receive it
	Made    Made   // what its queue is
	Plain   bool   // with a topic: some of the queues have no priorities
	Queue   string // its ledger name
	Message *broker.Message
	Meta    *broker.Meta
	Copy    uint32 // the how manieth copy of the message this is, in its generation
	Delay   int64  // of Kind Waiting, beside a queue that is Holding: in milliseconds
	Tries   int    // that have failed
	// Done is told nil once the broker has it for good, or one of the errors of
	// this package.
	Done func(err error)
	// Encoded is the Side's.
	Encoded any
}

// Consumption is what takes a queue's messages. It goes on over lost
// connections.
type Consumption interface {
	// Want says how many messages the lane has room for, and what the queue is.
	Want(d broker.Demand, made Made)
	// Receive says which topic the queue receives.
	Receive(topic string)
	// Stop has it end, Wait waits until it has and the broker has back what was not
	// settled.
	Stop()
	Wait()
}

// Sink is who takes what is delivered. Its methods may be called from any
// goroutine.
type Sink interface {
	Arrived(x Session, batch []Delivery)
	// Lost says that the broker has back what x has not settled.
	Lost(x Session)
}

// Session is the time for which deliveries can be settled: the life of a
// connection, a channel or a subscription.
type Session interface {
	// Gone says that nothing is settled in it any more.
	Gone() bool
	// Settle settles a delivery. done, if there is one, is called once from any
	// goroutine with whether the settlement was written.
	Settle(tag string, done func(taken bool))
	// GiveBack has a delivery be its queue's again.
	GiveBack(tag string)
}

// Delivery is what a broker delivers.
type Delivery struct {
	Message *broker.Message
	Meta    broker.Meta // without its queue
	Own     bool        // it is the mesh's own message
	Copy    uint32      // Writing.Copy
	Again   bool        // it may have been delivered before
	Tag     string      // settles it
	// Place tells this message in the queue from every other, however often it is
	// delivered; empty if the broker does not say.
	Place string
}
