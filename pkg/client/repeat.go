package client

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

const (
	// repeatFirst and repeatMost are the pauses before a publish is repeated that
	// the mesh could not take.
	repeatFirst = 20 * time.Millisecond
	repeatMost  = time.Second
	// repeatSilence is how long the first answer may take: the router that had the
	// publish may be dead. Each further one may take twice as long.
	repeatSilence = 2 * time.Second
)

// repeating is one message on its way, however often.
type repeating struct {
	c       *Client
	m       Message
	own     bool // the DedupID is the client's
	until   time.Time
	wait    time.Duration // before the next try
	silence time.Duration // at which an answer is not waited for any more
	unknown bool          // a try may have been stored
}

// repeat publishes until something is known for good, or ctx ends.
func (c *Client) repeat(ctx context.Context, m Message) (*Receipt, error) {
	r := repeating{c: c, m: m, own: m.DedupID == "", wait: repeatFirst, silence: repeatSilence}
	if r.own {
		r.m.DedupID = c.sender.nextID()
	}
	var given bool
	if r.until, given = ctx.Deadline(); !given {
		r.until = time.Now().Add(answerTimeout)
	}
	for {
		receipt, err := r.try(ctx)
		if err == nil {
			receipt.Duplicate = receipt.Duplicate && !r.own
			return receipt, nil
		}
		if err = c.unserved(ctx, m.To, err); !r.again(ctx, err) {
			return nil, r.end(ctx, err)
		}
	}
}

// try publishes once. Nothing was sent if the sender takes no more.
func (r *repeating) try(ctx context.Context) (*Receipt, error) {
	until := r.until
	if at := time.Now().Add(r.silence); r.m.DedupID != "" && at.Before(until) {
		until = at
	}
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	f, err := r.c.sender.Publish(ctx, r.m)
	if err != nil {
		return nil, err
	}
	receipt, err := r.c.sender.waitOrForget(ctx, f)
	switch code := protocol.CodeOf(err); {
	case err == nil:
	case code == protocol.CodeTimeout, code == "", errors.Is(err, errAnswerLost):
		r.unknown = true
	}
	return receipt, err
}

// again says whether there is to be another try, and waits until it is time.
func (r *repeating) again(ctx context.Context, err error) bool {
	if ctx.Err() != nil || !time.Now().Before(r.until) || r.c.open() != nil {
		return false
	}
	switch protocol.CodeOf(err) {
	case protocol.CodeTimeout:
		r.silence *= 2
		return true
	case protocol.CodeUnavailable:
		if time.Until(r.until) <= r.wait {
			return false // before its answer the time would be over
		}
		pause(ctx, r.wait)
		r.wait = min(2*r.wait, repeatMost)
		return true
	case protocol.CodeLimitExceeded:
		// More ids than the mesh remembers: without one it is tried once.
		again := r.own && !r.unknown && r.m.DedupID != ""
		r.m.DedupID = ""
		return again
	default:
		return false
	}
}

// end is how it ends in vain: if any try may have been stored, it says so.
func (r *repeating) end(ctx context.Context, last error) error {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	case r.unknown:
		return protocol.Errorf(protocol.CodeTimeout, "no answer to the publish in time: %s", unknownOutcome)
	default:
		return last
	}
}

// pause waits, at most until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// nextID is a DedupID that nobody else has: the sender's inbox with a number.
func (p *Publisher) nextID() string {
	return p.inbox + strconv.FormatUint(p.ids.Add(1), 36)
}
