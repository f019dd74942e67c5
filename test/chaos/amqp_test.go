package chaos_test

import (
	"bytes"
	"encoding/binary"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/waybill-mq/waybill/test/harness"
)

// Methods of AMQP, with their classes.
const (
	channelOpen   = 20<<16 | 10
	basicPublish  = 60<<16 | 40
	basicAck      = 60<<16 | 80
	basicNack     = 60<<16 | 120
	frameHeader   = 7
	frameEnd      = 1
	methodFrame   = 1
	protocolBegin = "AMQP\x00\x00\x09\x01"
)

// busy sees what a mesh and its RabbitMQ say to each other: which publishes and which
// copies of messages that failed are on their way and not confirmed.
type busy struct {
	*harness.Proxy

	mu    sync.Mutex
	lines map[*line]bool
	told  chan struct{} // when all is going on at once
}

// line is one connection.
type line struct {
	busy     *busy
	rest     [2][]byte // of a frame that has not come whole
	channels map[uint16]*channel
}

// channel is what was published on one and is not confirmed: whether it is a retry.
type channel struct {
	last uint64
	open map[uint64]bool
}

func newBusy(t testing.TB, address string) *busy {
	b := &busy{lines: make(map[*line]bool)}
	b.Proxy = harness.NewTap(t, address, func() func(harness.Direction, []byte) {
		l := &line{busy: b, channels: make(map[uint16]*channel)}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.lines[l] = true
		return l.passes
	})
	return b
}

// moment is closed when a message is being settled while a publish and a retry are
// unconfirmed, on the connections that are made from now on or are there.
func (b *busy) moment() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.told = make(chan struct{})
	return b.told
}

// forget is for a broker that was killed.
func (b *busy) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.lines)
}

func (l *line) passes(way harness.Direction, data []byte) {
	l.busy.mu.Lock()
	defer l.busy.mu.Unlock()
	data = bytes.TrimPrefix(append(l.rest[way], data...), []byte(protocolBegin))
	for len(data) >= frameHeader {
		end := frameHeader + int(binary.BigEndian.Uint32(data[3:])) + frameEnd
		if len(data) < end {
			break
		}
		if data[0] == methodFrame {
			l.says(way, binary.BigEndian.Uint16(data[1:]), data[frameHeader:end-frameEnd])
		}
		data = data[end:]
	}
	l.rest[way] = bytes.Clone(data)
}

func (l *line) says(way harness.Direction, on uint16, method []byte) {
	ch := l.channels[on]
	if ch == nil {
		ch = &channel{open: make(map[uint64]bool)}
		l.channels[on] = ch
	}
	switch kind := binary.BigEndian.Uint32(method); {
	case way == harness.ToMesh && kind == channelOpen:
		delete(l.channels, on)
	case way == harness.ToMesh && kind == basicPublish:
		ch.last++
		ch.open[ch.last] = strings.Contains(string(method), ".retry.")
	case way == harness.ToMesh && kind == basicAck:
		l.busy.look()
	case way == harness.FromMesh && (kind == basicAck || kind == basicNack):
		tag, multiple := binary.BigEndian.Uint64(method[4:]), method[12]&1 == 1
		maps.DeleteFunc(ch.open, func(n uint64, _ bool) bool { return n == tag || multiple && n < tag })
	}
}

// look says that it is the moment, if it is. mu is held.
func (b *busy) look() {
	published, retried := false, false
	for l := range b.lines {
		for _, ch := range l.channels {
			for _, retry := range ch.open {
				published, retried = published || !retry, retried || retry
			}
		}
	}
	if b.told != nil && published && retried {
		close(b.told)
		b.told = nil
	}
}
