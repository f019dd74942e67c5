package client

import (
	"context"
	"errors"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// senderWindow is how many publishes of Publish and PublishMany may be
// unanswered at once.
const senderWindow = 16384

// Receipt answers a publish: the message is committed.
type Receipt = protocol.PublishAck

// Result is what became of one message of PublishMany.
type Result struct {
	Receipt *Receipt // nil with an error
	Err     error
}

// Publish publishes one message and returns when it is committed. While the mesh
// cannot take it, or does not answer, it is published again until ctx ends, or
// for 10 s if ctx has no deadline; with the same DedupID, one of its own if it was
// given none, so that it is stored once.
//
// Its errors are coded. UNAVAILABLE: nothing was stored. TIMEOUT: that is not
// known, and publishing the message again is safe with a DedupID of yours.
func (c *Client) Publish(ctx context.Context, to Destination, data []byte, opts ...PublishOption) (*Receipt, error) {
	m := Message{To: to, Data: data}
	for _, opt := range opts {
		opt(&m)
	}
	return c.repeat(ctx, m)
}

// PublishMany publishes messages without waiting for each in turn, and returns
// what became of each, in their order, when all are answered. Messages to one
// queue keep their order. The error is that of the first message that failed;
// the others are published all the same.
func (c *Client) PublishMany(ctx context.Context, messages []Message) ([]Result, error) {
	futures := make([]*Future, len(messages))
	results := make([]Result, len(messages))
	var down error // nothing can be sent: do not wait for it with each message
	for i, m := range messages {
		if results[i].Err = down; down == nil {
			futures[i], results[i].Err = c.sender.Publish(ctx, m)
			down = unsendable(ctx, results[i].Err)
		}
	}
	var first error
	for i, f := range futures {
		if results[i].Err == nil {
			results[i].Receipt, results[i].Err = c.sender.waitOrForget(ctx, f)
		}
		if first == nil {
			first = results[i].Err
		}
	}
	return results, first
}

// unsendable is err if the next message would meet the same.
func unsendable(ctx context.Context, err error) error {
	if ctx.Err() != nil || protocol.CodeOf(err) == protocol.CodeUnavailable {
		return err
	}
	return nil
}

// contextError is ctx's end, as the error of something whose outcome is not
// known.
func contextError(ctx context.Context, what string) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return protocol.Errorf(protocol.CodeTimeout, "%s", what)
	}
	return ctx.Err()
}
