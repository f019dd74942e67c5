package artemis_test

import (
	"maps"
	"net"
	"net/url"
	"slices"
	"sync"
	"testing"

	"github.com/go-stomp/stomp/v3/frame"

	"github.com/waybill-mq/waybill/services/router/broker/brokertest/live"
)

// wiretap stands between a mesh and its broker, and sees every frame.
type wiretap struct {
	listener net.Listener
	target   *url.URL
	passing  sync.WaitGroup

	mu      sync.Mutex
	calls   []*call
	holding func(*call, *frame.Frame) bool // what does not get through
	refuses bool                           // new connections
	forgets bool                           // the frames that it has seen
	waiting func(*frame.Frame) bool        // what somebody wants to see
	told    chan struct{}
}

// call is one connection.
type call struct {
	ends   [2]net.Conn
	frames []*frame.Frame    // the client's and the broker's, as they came
	open   map[string]string // subscriptions of deliveries by the id that acknowledges them
	stale  []string          // what this connection should not have said
	left   bool              // the client has said that it goes
	ended  bool

	sending sync.Mutex
	broker  *frame.Writer
}

// send sends a frame to the broker.
func (c *call) send(f *frame.Frame) error {
	c.sending.Lock()
	defer c.sending.Unlock()
	return c.broker.Write(f)
}

func newTap(t *testing.T, server *live.Artemis) *wiretap {
	t.Helper()
	target, err := url.Parse(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &wiretap{listener: l, target: target}
	p.passing.Go(p.accept)
	t.Cleanup(func() {
		l.Close()
		p.cut()
		p.passing.Wait()
	})
	return p
}

// url is that of the broker, through the tap.
func (p *wiretap) url() string {
	at := *p.target
	at.Host = p.listener.Addr().String()
	return at.String()
}

func (p *wiretap) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		broker, err := net.Dial("tcp", p.target.Host)
		if err != nil || !p.connect(conn, broker) {
			conn.Close()
		}
	}
}

// connect is false if the connection is refused.
func (p *wiretap) connect(conn, broker net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuses {
		broker.Close()
		return false
	}
	c := &call{ends: [2]net.Conn{conn, broker}, open: map[string]string{}, broker: frame.NewWriter(broker)}
	p.calls = append(p.calls, c)
	p.passing.Go(func() { p.pass(c, conn, c.send) })
	p.passing.Go(func() { p.pass(c, broker, frame.NewWriter(conn).Write) })
	return true
}

// pass passes frames on until either end is closed.
func (p *wiretap) pass(c *call, from net.Conn, send func(*frame.Frame) error) {
	defer p.end(c)
	in := frame.NewReader(from)
	for {
		f, err := in.Read()
		if err != nil {
			return
		}
		if f != nil && !p.note(c, f) {
			continue
		}
		if send(f) != nil {
			return
		}
	}
}

func (p *wiretap) end(c *call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.ended = true
	for _, end := range c.ends {
		end.Close()
	}
}

// note says whether the frame gets through.
func (p *wiretap) note(c *call, f *frame.Frame) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.holding != nil && p.holding(c, f) {
		return false
	}
	if !p.forgets {
		c.frames = append(c.frames, f)
	}
	if p.waiting != nil && p.waiting(f) {
		close(p.told)
		p.waiting = nil
	}
	if c.left && f.Command != frame.RECEIPT && f.Command != frame.MESSAGE {
		c.stale = append(c.stale, f.Command+" after it had taken leave")
	}
	switch f.Command {
	case frame.MESSAGE:
		c.open[f.Header.Get(frame.Ack)] = f.Header.Get(frame.Subscription)
	case frame.ACK:
		id := f.Header.Get(frame.Id)
		if c.open[id] == "" {
			c.stale = append(c.stale, "ACK of "+id)
		}
		delete(c.open, id)
	case frame.DISCONNECT:
		c.left = true
	}
	return true
}

// reissue has the broker take back what it has delivered from a queue, and deliver
// it again to the same subscription.
func (p *wiretap) reissue(t *testing.T, destination string) {
	t.Helper()
	c, subscribe := p.subscription(destination)
	if c == nil {
		t.Fatalf("nobody is subscribed to %s", destination)
	}
	for _, f := range []*frame.Frame{frame.New(frame.UNSUBSCRIBE, frame.Id, subscribe.Header.Get(frame.Id)), subscribe} {
		if err := c.send(f); err != nil {
			t.Fatal(err)
		}
	}
}

// subscription is the newest to a queue, of which nothing may be acknowledged any
// more.
func (p *wiretap) subscription(destination string) (at *call, subscribe *frame.Frame) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.calls {
		for _, f := range c.frames {
			if f.Command == frame.SUBSCRIBE && f.Header.Get(frame.Destination) == destination {
				at, subscribe = c, f
			}
		}
	}
	if at != nil {
		id := subscribe.Header.Get(frame.Id)
		maps.DeleteFunc(at.open, func(_, subscription string) bool { return subscription == id })
	}
	return at, subscribe
}

// stop keeps back the next of such messages on its way to the broker, or its receipt,
// and says so.
func (p *wiretap) stop(command string, which func(*frame.Frame) bool) <-chan struct{} {
	stopped := make(chan struct{})
	var sender *call
	receipt := ""
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holding = func(c *call, f *frame.Frame) bool {
		if f.Command == frame.SEND && which(f) {
			sender, receipt = c, f.Header.Get(frame.Receipt)
		}
		if f.Command != command || c != sender || f.Header.Get(frame.Receipt)+f.Header.Get(frame.ReceiptId) != receipt {
			return false
		}
		close(stopped)
		p.holding = nil // mu is held
		return true
	}
	return stopped
}

// forget has the tap not keep frames.
func (p *wiretap) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forgets = true
}

// seen is closed when the next such frame comes by.
func (p *wiretap) seen(which func(*frame.Frame) bool) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting, p.told = which, make(chan struct{})
	return p.told
}

// cut ends every connection and refuses new ones, until mend.
func (p *wiretap) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuses = true
	for _, c := range p.calls {
		for _, end := range c.ends {
			end.Close()
		}
	}
}

func (p *wiretap) mend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuses = false
}

// made is how many connections there ever were.
func (p *wiretap) made() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.calls)
}

// frames are those of these commands, of all connections.
func (p *wiretap) frames(commands ...string) (found []*frame.Frame) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.calls {
		for _, f := range c.frames {
			if slices.Contains(commands, f.Command) {
				found = append(found, f)
			}
		}
	}
	return found
}

// torn is how many connections ended of which the mesh has not taken leave.
func (p *wiretap) torn() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.calls {
		if c.ended && !c.left {
			n++
		}
	}
	return n
}

// stale is what the broker answers with an ERROR.
func (p *wiretap) stale() (ids []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.calls {
		ids = append(ids, c.stale...)
	}
	return ids
}
