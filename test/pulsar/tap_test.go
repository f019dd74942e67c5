package pulsar_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"net"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/waybill-mq/waybill/services/router/broker/brokertest/live"
)

// What is said in Pulsar's own protocol, by its numbers.
const (
	subscribes  = 4
	sends       = 6
	receipt     = 7
	delivers    = 9
	settles     = 10
	closes      = 16 // a consumer
	wantsAgain  = 20
	bytesOfSize = 4
)

// said is a frame of that protocol.
type said struct {
	what     int
	by       uint64 // the producer's or consumer's number in its connection
	sequence uint64 // of a message that is sent, and of its receipt
	topic    string // that is subscribed to
	messages []string
	frame    []byte // without the size that goes before
}

// carries says whether the message in it has a property.
func (s *said) carries(property, value string) bool {
	text := protowire.AppendTag(nil, 1, protowire.BytesType)
	text = protowire.AppendString(text, property)
	text = protowire.AppendTag(text, 2, protowire.BytesType)
	return bytes.Contains(s.frame, protowire.AppendString(text, value))
}

// fields are those of a message of protocol buffers, numbers and the rest.
func fields(b []byte) (numbers map[protowire.Number]uint64, rest map[protowire.Number][][]byte) {
	numbers, rest = map[protowire.Number]uint64{}, map[protowire.Number][][]byte{}
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return numbers, rest
		}
		b = b[n:]
		switch kind {
		case protowire.VarintType:
			numbers[number], n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			var value []byte
			value, n = protowire.ConsumeBytes(b)
			rest[number] = append(rest[number], value)
		default:
			n = protowire.ConsumeFieldValue(number, kind, b)
		}
		if n < 0 {
			return numbers, rest
		}
		b = b[n:]
	}
	return numbers, rest
}

func hear(frame []byte) *said {
	s := &said{frame: frame}
	size := min(int(binary.BigEndian.Uint32(frame)), len(frame)-bytesOfSize)
	numbers, rest := fields(frame[bytesOfSize : bytesOfSize+size])
	s.what = int(numbers[1])
	command := rest[protowire.Number(s.what)]
	if len(command) == 0 {
		return s
	}
	numbers, rest = fields(command[0])
	s.by, s.sequence = numbers[1], numbers[2]
	ids := rest[3]
	switch s.what {
	case subscribes:
		s.by, s.topic = numbers[4], string(rest[1][0])
		return s
	case delivers:
		ids = rest[2]
	case settles:
	default:
		return s
	}
	for _, id := range ids {
		at, _ := fields(id)
		s.messages = append(s.messages, fmt.Sprint(s.by, ":", at[1], ":", at[2]))
	}
	return s
}

// wiretap stands between a mesh and its broker, and hears everything.
type wiretap struct {
	listener net.Listener
	passing  sync.WaitGroup
	broker   string

	mu      sync.Mutex
	calls   []*call
	holding func(*said) bool // what does not get through
	refuses bool             // new connections
}

// The ends of a connection.
const (
	toClient = iota
	toBroker
)

// call is one connection.
type call struct {
	ends   [2]net.Conn
	topics map[uint64]string // of its consumers
	open   map[string]bool   // deliveries that may be settled
	stale  []string          // what this connection should not have settled

	sending [2]sync.Mutex // to the client and to the broker
}

func newTap(t *testing.T, server *live.Pulsar) *wiretap {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &wiretap{listener: l, broker: server.Address()}
	p.passing.Go(p.accept)
	t.Cleanup(func() {
		l.Close()
		p.cut()
		p.passing.Wait()
	})
	return p
}

// url is that of the broker through the tap. A standalone has its clients come
// for everything to where they came first.
func (p *wiretap) url() string { return "pulsar://" + p.listener.Addr().String() }

func (p *wiretap) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		broker, err := net.Dial("tcp", p.broker)
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
	c := &call{ends: [2]net.Conn{conn, broker}, topics: map[uint64]string{}, open: map[string]bool{}}
	p.calls = append(p.calls, c)
	p.passing.Go(func() { p.pass(c, conn, toBroker) })
	p.passing.Go(func() { p.pass(c, broker, toClient) })
	return true
}

// pass passes frames on until either end is closed.
func (p *wiretap) pass(c *call, from io.Reader, to int) {
	defer p.end(c)
	for {
		var size [bytesOfSize]byte
		if _, err := io.ReadFull(from, size[:]); err != nil {
			return
		}
		frame := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(from, frame); err != nil || len(frame) < bytesOfSize {
			return
		}
		if p.note(c, hear(frame)) && c.send(to, frame) != nil {
			return
		}
	}
}

func (c *call) send(to int, frame []byte) error {
	c.sending[to].Lock()
	defer c.sending[to].Unlock()
	_, err := c.ends[to].Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...))
	return err
}

func (p *wiretap) end(c *call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, end := range c.ends {
		end.Close()
	}
}

// note says whether the frame gets through.
func (p *wiretap) note(c *call, s *said) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.holding != nil && p.holding(s) {
		return false
	}
	switch s.what {
	case subscribes:
		c.topics[s.by] = s.topic
	case delivers:
		for _, id := range s.messages {
			c.open[id] = true
		}
	case settles:
		for _, id := range s.messages {
			if !c.open[id] {
				c.stale = append(c.stale, c.topics[s.by]+" "+id)
			}
			delete(c.open, id)
		}
	case closes:
		c.forget(s.by)
	}
	return true
}

// forget has nothing that a consumer was given be settled any more.
func (c *call) forget(consumer uint64) {
	maps.DeleteFunc(c.open, func(id string, _ bool) bool { return strings.HasPrefix(id, fmt.Sprint(consumer, ":")) })
}

// reissue has the broker take back what it has delivered of a topic, and deliver it
// again to the same consumer. Until it does nothing of it may be settled.
func (p *wiretap) reissue(t *testing.T, topic string) {
	t.Helper()
	c, consumer := p.consumer(topic)
	if c == nil {
		t.Fatalf("nobody consumes %s", topic)
	}
	again := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), consumer)
	command := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), wantsAgain)
	command = protowire.AppendBytes(protowire.AppendTag(command, wantsAgain, protowire.BytesType), again)
	if err := c.send(toBroker, append(binary.BigEndian.AppendUint32(nil, uint32(len(command))), command...)); err != nil {
		t.Fatal(err)
	}
}

// consumer is the newest of a topic.
func (p *wiretap) consumer(topic string) (at *call, number uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.calls {
		for n, of := range c.topics {
			if of == topic && (at != c || n > number) {
				at, number = c, n
			}
		}
	}
	if at != nil {
		at.forget(number)
	}
	return at, number
}

// hold keeps the frames back that it is said of; nil: none.
func (p *wiretap) hold(which func(*said) bool) {
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

// stale is what was settled on a connection that had not delivered it.
func (p *wiretap) stale() (ids []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.calls {
		ids = append(ids, c.stale...)
	}
	return ids
}
