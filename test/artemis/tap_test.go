package artemis_test

import (
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
	holding func(*frame.Frame) bool // what does not get through
	refuses bool                    // new connections
}

// call is one connection.
type call struct {
	ends   [2]net.Conn
	frames []*frame.Frame  // the client's and the broker's, as they came
	open   map[string]bool // deliveries by the id that acknowledges them
	stale  []string        // acknowledgements of what this connection did not hold
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
	c := &call{ends: [2]net.Conn{conn, broker}, open: map[string]bool{}}
	p.calls = append(p.calls, c)
	p.passing.Go(func() { p.pass(c, conn, broker) })
	p.passing.Go(func() { p.pass(c, broker, conn) })
	return true
}

// pass passes frames on until either end is closed.
func (p *wiretap) pass(c *call, from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	in, out := frame.NewReader(from), frame.NewWriter(to)
	for {
		f, err := in.Read()
		if err != nil {
			return
		}
		if f != nil && !p.note(c, f) {
			continue
		}
		if out.Write(f) != nil {
			return
		}
	}
}

// note says whether the frame gets through.
func (p *wiretap) note(c *call, f *frame.Frame) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.holding != nil && p.holding(f) {
		return false
	}
	c.frames = append(c.frames, f)
	switch f.Command {
	case frame.MESSAGE:
		c.open[f.Header.Get(frame.Ack)] = true
	case frame.ACK:
		id := f.Header.Get(frame.Id)
		if !c.open[id] {
			c.stale = append(c.stale, id)
		}
		delete(c.open, id)
	}
	return true
}

// hold keeps the frames back that it is said of; nil: none.
func (p *wiretap) hold(which func(*frame.Frame) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holding = which
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

// stale are acknowledgements that the broker answers with an ERROR.
func (p *wiretap) stale() (ids []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.calls {
		ids = append(ids, c.stale...)
	}
	return ids
}
