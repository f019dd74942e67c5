//go:build !no_artemis

package artemis

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-stomp/stomp/v3/frame"

	"github.com/waybill-mq/waybill/services/router/broker/remote"
)

const (
	dialTimeout = 5 * time.Second
	// beatPromised is how often the broker hears of us at least; it gives us up
	// after twice that. It does every beatEvery, so that a late one is in time.
	beatPromised = 4 * time.Second
	beatEvery    = time.Second
	// beatAsked is how often we hear of the broker. One that is silent for deadAfter
	// is gone.
	beatAsked = 3 * time.Second
	deadAfter = 9 * time.Second
	// receiptWait is how long the broker may take to confirm.
	receiptWait = 30 * time.Second
)

var (
	errClosed  = errors.New("the connection was closed")
	errSilent  = fmt.Errorf("the broker said nothing for %v", deadAfter)
	errReceipt = fmt.Errorf("the broker has not confirmed within %v", receiptWait)
)

// connection is one STOMP connection. Frames are written in the order in which
// they are given, without waiting for one to be confirmed before the next: the
// library's own connection waits.
type connection struct {
	nc      net.Conn
	in      *frame.Reader
	server  string // what the broker calls itself
	running sync.WaitGroup
	done    chan struct{} // closed when it has ended
	wake    chan struct{}

	mu      sync.Mutex
	err     error // why it has ended
	left    bool  // DISCONNECT was sent, after which nothing may be
	waiting []*outgoing
	pending map[string]*outgoing // written, by receipt
	taking  map[string]func(f *frame.Frame)
	last    uint64 // number given
}

// outgoing is a frame to be written. done, if there is one, is called once, from
// any goroutine: with nil when the broker has confirmed it.
type outgoing struct {
	frame *frame.Frame
	done  func(err error)
	at    time.Time
}

// dial makes a connection. Who dials waits for its running in the end.
func (b *Broker) dial(ctx context.Context, role string) (*connection, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	nc, err := b.connect(ctx)
	if err != nil {
		return nil, err
	}
	c := &connection{
		nc: nc, in: frame.NewReaderSize(nc, 64<<10), done: make(chan struct{}), wake: make(chan struct{}, 1),
		pending: make(map[string]*outgoing), taking: make(map[string]func(f *frame.Frame)),
	}
	if err := c.greet(ctx, b.hello(role)); err != nil {
		return nil, errors.Join(err, nc.Close())
	}
	c.running.Go(c.read)
	c.running.Go(c.write)
	return c, nil
}

func (b *Broker) connect(ctx context.Context) (net.Conn, error) {
	if b.secure {
		var d tls.Dialer
		return d.DialContext(ctx, "tcp", b.address)
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", b.address)
}

func (b *Broker) hello(role string) *frame.Frame {
	host, _, err := net.SplitHostPort(b.address)
	if err != nil {
		host = b.address
	}
	f := frame.New(frame.CONNECT,
		frame.AcceptVersion, "1.2", frame.Host, host, "client", "waybill "+role,
		frame.HeartBeat, fmt.Sprintf("%d,%d", beatPromised.Milliseconds(), beatAsked.Milliseconds()),
	)
	if password, has := b.user.Password(); has || b.user.Username() != "" {
		f.Header.Add(frame.Login, b.user.Username())
		f.Header.Add(frame.Passcode, password)
	}
	return f
}

// greet begins the conversation.
func (c *connection) greet(ctx context.Context, hello *frame.Frame) error {
	stop := context.AfterFunc(ctx, func() { c.nc.SetDeadline(time.Now()) }) //nolint:errcheck // it only hurries
	defer stop()
	if err := frame.NewWriter(c.nc).Write(hello); err != nil {
		return err
	}
	answer, err := c.in.Read()
	switch {
	case err != nil:
		return err
	case answer == nil:
		return saidBy(answer)
	case answer.Command == frame.ERROR:
		return refused{saidBy(answer)}
	}
	c.server = answer.Header.Get(frame.Server)
	return nil
}

// refused is what a broker says that ends a conversation before it begins.
type refused struct{ error }

// saidBy is the error that a frame tells, without what it quotes of a message.
func saidBy(f *frame.Frame) error {
	if f == nil {
		return errors.New("the broker does not speak STOMP")
	}
	said, _, _ := strings.Cut(f.Header.Get(frame.Message), "CoreMessage[")
	if said == "" {
		said = string(f.Body)
	}
	const most = 200
	if len(said) > most {
		said = said[:most] + "…"
	}
	return errors.New(strings.ToValidUTF8(said, "?"))
}

// number is one that this connection has not given before.
func (c *connection) number() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	return strconv.FormatUint(c.last, 10)
}

// send has a frame written. done is as in outgoing; nil asks for no receipt.
func (c *connection) send(f *frame.Frame, done func(err error)) {
	c.mu.Lock()
	if err := c.endedLocked(); err != nil {
		c.mu.Unlock()
		if done != nil {
			done(fmt.Errorf("%w (%w)", remote.ErrNotWritten, err))
		}
		return
	}
	c.left = f.Command == frame.DISCONNECT
	c.waiting = append(c.waiting, &outgoing{frame: f, done: done})
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// do sends a frame and waits until the broker has done what it says.
func (c *connection) do(ctx context.Context, f *frame.Frame) error {
	said := make(chan error, 1)
	c.send(f, func(err error) { said <- err })
	select {
	case err := <-said:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// take has f called, in the goroutine that reads, with what a subscription
// delivers; nil ends that.
func (c *connection) take(subscription string, f func(f *frame.Frame)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f == nil {
		delete(c.taking, subscription)
		return
	}
	c.taking[subscription] = f
}

func (c *connection) write() {
	socket := bufio.NewWriterSize(c.nc, 64<<10)
	out := frame.NewWriter(socket)
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	for {
		var err error
		select {
		case <-c.wake:
			err = c.writeAll(out)
		case <-beat.C:
			c.overdue(time.Now())
			err = out.Write(nil)
		case <-c.done:
			return
		}
		if err = errors.Join(err, socket.Flush()); err != nil {
			c.end(err, "")
			return
		}
	}
}

func (c *connection) writeAll(out *frame.Writer) error {
	for all := c.next(); len(all) > 0; all = c.next() {
		for _, o := range all {
			if err := out.Write(o.frame); err != nil {
				return err
			}
		}
	}
	return nil
}

// next are the frames to be written. From now on the broker may have them.
func (c *connection) next() []*outgoing {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return nil
	}
	all := c.waiting
	c.waiting = nil
	now := time.Now()
	for _, o := range all {
		if o.done != nil {
			c.last++
			receipt := strconv.FormatUint(c.last, 10)
			o.frame.Header.Set(frame.Receipt, receipt)
			o.at, c.pending[receipt] = now, o
		}
	}
	return all
}

// overdue ends the connection if a receipt does not come.
func (c *connection) overdue(now time.Time) {
	c.mu.Lock()
	late := false
	for _, o := range c.pending {
		late = late || now.Sub(o.at) > receiptWait
	}
	c.mu.Unlock()
	if late {
		c.end(errReceipt, "")
	}
}

func (c *connection) read() {
	for {
		if err := c.nc.SetReadDeadline(time.Now().Add(deadAfter)); err != nil {
			c.end(err, "")
			return
		}
		f, err := c.in.Read()
		if err != nil {
			if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
				err = errSilent
			}
			c.end(err, "")
			return
		}
		if f == nil { // a heart-beat
			c.overdue(time.Now())
			continue
		}
		switch f.Command {
		case frame.MESSAGE:
			c.deliver(f)
		case frame.RECEIPT:
			c.confirmed(f.Header.Get(frame.ReceiptId))
		case frame.ERROR:
			c.end(saidBy(f), f.Header.Get(frame.ReceiptId))
			return
		}
	}
}

func (c *connection) deliver(f *frame.Frame) {
	c.mu.Lock()
	taker := c.taking[f.Header.Get(frame.Subscription)]
	c.mu.Unlock()
	if taker != nil { // else the subscription has ended, and the broker has the message back
		taker(f)
	}
}

func (c *connection) confirmed(receipt string) {
	c.mu.Lock()
	o := c.pending[receipt]
	delete(c.pending, receipt)
	c.mu.Unlock()
	if o != nil {
		o.done(nil)
	}
}

// end ends the connection. The frame with the receipt refused is the one that the
// broker did not like; of what else was written nobody knows.
func (c *connection) end(err error, refused string) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = err
	waiting, pending := c.waiting, c.pending
	c.waiting, c.pending = nil, nil
	c.mu.Unlock()
	close(c.done)
	c.nc.Close() //nolint:errcheck // it is given up
	for receipt, o := range pending {
		if receipt == refused {
			o.done(fmt.Errorf("%w: %w", remote.ErrRefused, err))
			continue
		}
		o.done(fmt.Errorf("%w (%w)", remote.ErrUnknown, err))
	}
	for _, o := range waiting {
		if o.done != nil {
			o.done(fmt.Errorf("%w (%w)", remote.ErrNotWritten, err))
		}
	}
}

// ended is why nothing can be sent any more.
func (c *connection) ended() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.endedLocked()
}

func (c *connection) endedLocked() error {
	if c.err == nil && c.left {
		return errClosed
	}
	return c.err
}

// close takes leave and waits until everything has ended. What was sent before is
// done first.
func (c *connection) close() {
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	c.do(ctx, frame.New(frame.DISCONNECT)) //nolint:errcheck // it ends either way
	c.end(errClosed, "")
	c.running.Wait()
}
