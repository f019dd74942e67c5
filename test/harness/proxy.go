package harness

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// Proxy is a network between a client and a mesh, or a mesh and a broker, that can
// fail.
type Proxy struct {
	target   string
	watch    func() func(way Direction, passes []byte)
	listener net.Listener
	ending   sync.WaitGroup

	mu      sync.Mutex
	changed *sync.Cond
	links   map[*link]struct{}
	refuse  bool
	stalled [2]bool
	swallow [2]bool
	closed  bool
}

// Direction is one of the two ways through a Proxy.
type Direction int

// The directions.
const (
	ToMesh Direction = iota
	FromMesh
)

type link struct{ client, mesh net.Conn }

func (l *link) close() {
	l.client.Close()
	l.mesh.Close()
}

// NewProxy stands in front of the NATS, or broker, at address until the test ends.
func NewProxy(t testing.TB, address string) *Proxy {
	t.Helper()
	return NewTap(t, address, func() func(Direction, []byte) { return func(Direction, []byte) {} })
}

// NewTap is a Proxy of which somebody is told what passes on each connection, a moment
// before it does. watch is called for each new one, and what it returns by two goroutines.
func NewTap(t testing.TB, address string, watch func() func(way Direction, passes []byte)) *Proxy {
	t.Helper()
	var listening net.ListenConfig
	listener, err := listening.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{target: strings.TrimPrefix(address, "nats://"), watch: watch, listener: listener, links: make(map[*link]struct{})}
	p.changed = sync.NewCond(&p.mu)
	p.ending.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// URL is where to connect to get to the mesh through the proxy.
func (p *Proxy) URL() string { return "nats://" + p.Address() }

// Address is HOST:PORT of the way through the proxy.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

// Cut closes every connection. What was on its way is lost; a new connection
// is let through.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut()
}

// Part is Cut, and new connections are refused until Join.
func (p *Proxy) Part() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = true
	p.cut()
}

// Join lets everything through again.
func (p *Proxy) Join() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = false
	p.stalled, p.swallow = [2]bool{}, [2]bool{}
	p.changed.Broadcast()
}

// Stall keeps what goes that way until Join, as a network does that drops
// packets and a peer that repeats them.
func (p *Proxy) Stall(way Direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stalled[way] = true
}

// Swallow loses what goes that way. It does not stop by itself to be a
// connection: Cut it, since a stream with a hole is none.
func (p *Proxy) Swallow(way Direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.swallow[way] = true
}

func (p *Proxy) cut() {
	for l := range p.links {
		l.close()
	}
	clear(p.links)
	p.swallow = [2]bool{}
	p.changed.Broadcast()
}

func (p *Proxy) close() {
	p.listener.Close()
	p.mu.Lock()
	p.closed = true
	p.cut()
	p.mu.Unlock()
	p.ending.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		if l := p.open(client); l != nil {
			told := p.watch()
			p.ending.Go(func() { p.pump(l, ToMesh, l.client, l.mesh, told) })
			p.ending.Go(func() { p.pump(l, FromMesh, l.mesh, l.client, told) })
		}
	}
}

// open connects a client to the mesh, or closes its connection.
func (p *Proxy) open(client net.Conn) *link {
	mesh, err := net.Dial("tcp", p.target)
	if err != nil {
		client.Close()
		return nil
	}
	l := &link{client: client, mesh: mesh}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuse || p.closed {
		l.close()
		return nil
	}
	p.links[l] = struct{}{}
	return l
}

func (p *Proxy) pump(l *link, way Direction, from io.Reader, to io.Writer, told func(Direction, []byte)) {
	defer p.gone(l)
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && p.lets(l, way) {
			told(way, buffer[:n])
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// lets waits while the way is stalled and says whether anything gets through.
func (p *Proxy) lets(l *link, way Direction) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.stalled[way] && !p.closed {
		if _, there := p.links[l]; !there {
			return false
		}
		p.changed.Wait()
	}
	return !p.swallow[way]
}

func (p *Proxy) gone(l *link) {
	l.close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
	p.changed.Broadcast()
}
