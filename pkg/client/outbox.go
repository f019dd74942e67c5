package client

import (
	"context"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/protocol/frame"
)

// outboxBytes is when an outbox is emptied without waiting for its goroutine.
const outboxBytes = 64 << 10

// outbox sends outcomes to lanes that take them in frames: those that end while
// others are being sent go together.
type outbox struct {
	nc   *nats.Conn
	wake chan struct{}

	sending sync.Mutex // before mu
	mu      sync.Mutex
	lanes   map[string]*letters
	full    []*letters // those that hold something
}

// letters are one lane's outcomes.
type letters struct {
	subject      string
	frame, spare []byte
}

func newOutbox(nc *nats.Conn) *outbox {
	return &outbox{nc: nc, wake: make(chan struct{}, 1), lanes: make(map[string]*letters)}
}

// put leaves an outcome to be sent soon.
func (o *outbox) put(lane string, outcome *frame.Outcome) {
	if o.append(lane, outcome) >= outboxBytes {
		o.flush()
		return
	}
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// append says how much there is for the lane.
func (o *outbox) append(lane string, outcome *frame.Outcome) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	x := o.lanes[lane]
	if x == nil {
		x = &letters{subject: protocol.SubjectOutcome + lane + "." + protocol.OutcomeFrame}
		o.lanes[lane] = x
	}
	if len(x.frame) == 0 {
		o.full = append(o.full, x)
	}
	x.frame = frame.AppendOutcome(x.frame, outcome)
	return len(x.frame)
}

// run sends what is put until ctx ends.
func (o *outbox) run(ctx context.Context) {
	for {
		select {
		case <-o.wake:
			o.flush()
		case <-ctx.Done():
			return
		}
	}
}

// flush returns when everything put before is with the connection. What cannot
// be sent is remembered by others, and sent when the connection is back.
func (o *outbox) flush() {
	o.sending.Lock()
	defer o.sending.Unlock()
	for x := o.next(); x != nil; x = o.next() {
		_ = o.nc.Publish(x.subject, x.spare)
	}
}

// next takes a lane's outcomes, which are then its spare.
func (o *outbox) next() *letters {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(o.full)
	if n == 0 {
		return nil
	}
	x := o.full[n-1]
	o.full = o.full[:n-1]
	x.frame, x.spare = x.spare[:0], x.frame
	return x
}
