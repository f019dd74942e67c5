package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/waybill-mq/waybill/internal/ledger"
)

// process is a nats-server in a process of its own.
type process struct {
	t    *testing.T
	port int
	dir  string
	cmd  *exec.Cmd
	in   io.Closer
}

func startProcess(t *testing.T) *process {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, port: l.Addr().(*net.TCPAddr).Port, dir: t.TempDir()}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	p.start()
	t.Cleanup(p.kill)
	return p
}

func (p *process) start() {
	p.t.Helper()
	p.cmd = exec.Command(os.Args[0], "-test.run=^$")
	p.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s", ledger.EnvServer, p.port, p.dir))
	in, err := p.cmd.StdinPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	p.in = in
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
}

// kill is kill -9.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait() // says that it was killed
	_ = p.in.Close()
}

func (p *process) url() string { return fmt.Sprintf("nats://127.0.0.1:%d", p.port) }

// patient connects to a server that may not be there yet.
func patient(t *testing.T, address string) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(address, nats.ReconnectBufSize(-1), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.RetryOnFailedConnect(true))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	deadline := time.NewTimer(guard)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !nc.IsConnected() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatal("not connected")
		}
	}
	return nc
}

// answered publishes in the background, a few at a time, until stopped; it
// returns the ids whose publishes were answered.
type publisher struct {
	l    *live
	stop chan struct{}
	done chan struct{}
}

func startPublishing(l *live) *publisher {
	p := &publisher{l: l, stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(p.done)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-p.stop:
				return
			case <-tick.C:
			}
			l.Send(func(led *ledger.Ledger) {
				m := message(strconv.Itoa(i))
				_ = led.Accept(m, []ledger.Meta{{Queue: "q", Attempt: 1}}, nil, m.ID)
			})
		}
	}()
	return p
}

func (p *publisher) end() {
	close(p.stop)
	<-p.done
}

// check compares what was answered with what is in the ledger.
func (l *live) check(want map[uuid.UUID]bool) {
	l.t.Helper()
	l.do(func(led *ledger.Ledger) {
		have := map[uuid.UUID]bool{}
		for e := range led.Entries() {
			if have[e.ID] {
				l.t.Errorf("%s is there twice", e.ID)
			}
			have[e.ID] = true
		}
		for id := range want {
			if !have[id] {
				l.t.Errorf("%s was answered and is lost", id)
			}
		}
		l.t.Logf("%d answered, %d stored", len(want), len(have))
	})
}

func (o *owner) answered() map[uuid.UUID]bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	ids := map[uuid.UUID]bool{}
	for _, c := range o.committed {
		if c.Kind == ledger.KindAccept {
			ids[c.ID] = true
		}
	}
	return ids
}

// TestTheServerIsKilled kills the server again and again under load. The
// ledger lives on; what was answered is there, once.
func TestTheServerIsKilled(t *testing.T) {
	p := startProcess(t)
	nc := patient(t, p.url())
	makeStream(t, nc)
	l := openLedger(t, nc, "test-00")
	load := startPublishing(l)
	for range 5 {
		n := len(l.answered())
		l.until(t, "publishes", func() bool { return l.commits(ledger.KindAccept) >= n+50 })
		p.kill()
		p.start()
	}
	n := len(l.answered())
	l.until(t, "publishes", func() bool { return l.commits(ledger.KindAccept) >= n+50 })
	load.end()
	l.stop()
	want := l.answered()
	l.check2(nc, want)
}

// check2 opens the ledger again and checks it.
func (l *live) check2(nc *nats.Conn, want map[uuid.UUID]bool) {
	l.t.Helper()
	again := openLedger(l.t, nc, "test-00")
	again.check(want)
	again.stop()
}

// proxy stands between a client and the server, and cuts.
type proxy struct {
	t      *testing.T
	to     string
	l      net.Listener
	wg     sync.WaitGroup
	mu     sync.Mutex
	conns  []net.Conn
	deaf   bool // what the server says is dropped
	closed bool
}

func startProxy(t *testing.T, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{t: t, to: u.Host, l: l}
	p.wg.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

func (p *proxy) accept() {
	for {
		c, err := p.l.Accept()
		if err != nil {
			return
		}
		s, err := net.Dial("tcp", p.to)
		if err != nil {
			_ = c.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, c, s)
		p.deaf = false
		if p.closed {
			_, _ = c.Close(), s.Close()
		}
		p.mu.Unlock()
		p.wg.Go(func() { _, _ = io.Copy(s, c); _ = s.Close() })
		p.wg.Go(func() { p.back(c, s) })
	}
}

// back carries the server's words, unless it is deaf.
func (p *proxy) back(c, s net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := s.Read(buf)
		p.mu.Lock()
		deaf := p.deaf
		p.mu.Unlock()
		if n > 0 && !deaf {
			_, err = c.Write(buf[:n])
		}
		if err != nil {
			_ = c.Close()
			return
		}
	}
}

// silence drops all answers from now on, until the next connection.
func (p *proxy) silence() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deaf = true
}

func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}

func (p *proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.l.Close()
	p.cut()
	p.wg.Wait()
}

// TestAnswersAreLost cuts the connection in the middle of commits whose answers
// were dropped: each is found to be in the log or not, and nothing is stored
// twice.
func TestAnswersAreLost(t *testing.T) {
	s := runServer(t, t.TempDir())
	direct := connect(t, s.ClientURL())
	stream := makeStream(t, direct)
	p := startProxy(t, s.ClientURL())
	nc := patient(t, "nats://"+p.l.Addr().String())
	l := openLedger(t, nc, "test-00")
	load := startPublishing(l)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		n := len(l.answered())
		l.until(t, "publishes", func() bool { return l.commits(ledger.KindAccept) >= n+1+rng.IntN(30) })
		p.silence()
		stored := streamLast(t, stream)
		for tries := 0; tries < 20 && streamLast(t, stream) == stored; tries++ {
			continue // a commit lands whose answer is dropped
		}
		p.cut()
	}
	n := len(l.answered())
	l.until(t, "publishes", func() bool { return l.commits(ledger.KindAccept) >= n+20 })
	load.end()
	l.stop()
	l.check2(direct, l.answered())
}

func streamLast(t *testing.T, s jetstream.Stream) uint64 {
	t.Helper()
	info, err := s.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return info.State.LastSeq
}

// TestStopWithoutAServer gives up when its context ends.
func TestStopWithoutAServer(t *testing.T) {
	s := runServer(t, t.TempDir())
	nc := connect(t, s.ClientURL())
	makeStream(t, nc)
	l := openLedger(t, nc, "test-00")
	stopServer(s)
	l.Send(func(led *ledger.Ledger) {
		_ = led.Accept(message("x"), []ledger.Meta{{Queue: "q"}}, nil, "x")
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := l.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("it stopped with %v", err)
	}
	if l.Send(func(*ledger.Ledger) {}) {
		t.Error("it takes events after its end")
	}
}
