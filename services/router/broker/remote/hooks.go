package remote

import (
	"context"
	"time"

	"github.com/waybill-mq/waybill/services/router/broker"
)

// What only some brokers need: a Side, Spot or Consumption is asked whether it is one
// of these.

// Fixing is a Side whose queues stay what they were made as.
type Fixing interface {
	// Differs takes note of what consumers ask for that the queue may not be.
	Differs(at Spot, made Made, d broker.Demand)
}

// Holding is a Spot beside which messages wait in places of their own, one for each
// delay. Elsewhere Side.Write has them wait in their queue.
type Holding interface {
	// Delay is for how long a message waits, in milliseconds; 0: not at all.
	Delay(meta *broker.Meta, now time.Time) int64
	// EstablishHolding makes the place for a delay, so that it stays longer than its
	// messages for an hour from now on. ErrElsewhere: that cannot be had.
	EstablishHolding(ctx context.Context, delay int64) error
	// RemoveHoldings removes them with all they hold, before the queue is removed.
	RemoveHoldings(ctx context.Context, delays []int64) error
}

// Tidying is a Spot whose dead letters may be there twice: a letter was written, and
// nobody knew.
type Tidying interface {
	// Tidy takes away what was written twice.
	Tidy(ctx context.Context) error
}

// Shelving is a Consumption that keeps what was given back for a while, until it can
// go back in its order.
type Shelving interface {
	// Shelved is how many messages it keeps.
	Shelved() int
}

// Resting is a Consumption that knows when nothing more comes, after a demand with no
// window.
type Resting interface {
	// Rest returns then, with whether what went back before is where the broker counts it.
	Rest(ctx context.Context) bool
}
