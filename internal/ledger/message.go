package ledger

import (
	"bytes"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// size is what a message weighs in quotas: the bytes of its headers and body.
func (m *Message) size() uint32 {
	n := len(m.Body)
	for name, values := range m.Headers {
		n += len(name)
		for _, v := range values {
			n += len(v)
		}
	}
	return uint32(n)
}

// GroupOf is what an entry keeps of its message's group; 0 for the group "". Two
// groups of the same number are one to whoever keeps them in order.
func GroupOf(group string) uint64 {
	if group == "" {
		return 0
	}
	return max(xxhash.Sum64String(group), 1)
}

// brief is what an entry keeps of its message.
type brief struct {
	id       protocol.MessageID
	size     uint32
	group    uint64
	priority uint8
}

func (m *Message) brief() brief {
	return brief{id: m.ID, size: m.size(), group: GroupOf(m.Group), priority: m.Priority}
}

// appendMessage writes field 2, which a message is of all that has one.
func appendMessage(b []byte, m *Message) []byte {
	b, start := open(b, 2)
	b = appendPresent(b, 1, m.ID[:])
	b = appendFixed(b, 2, uint64(m.PublishedAt))
	b = appendUint(b, 3, uint64(m.Priority))
	b = appendString(b, 4, m.Group)
	for name, values := range m.Headers {
		b = appendHeader(b, name, values)
	}
	b = appendString(b, 6, m.Body)
	b = appendString(b, 7, m.Story)
	b = appendString(b, 8, m.Publisher)
	b = append(b, m.Extra...)
	return shut(b, start)
}

func appendHeader(b []byte, name string, values []string) []byte {
	b, start := open(b, 5)
	b = appendPresent(b, 1, name)
	for _, v := range values {
		b = appendPresent(b, 2, v)
	}
	return shut(b, start)
}

// decodeMessage copies all it keeps: what it read from may be reused.
func decodeMessage(b []byte) (*Message, error) {
	m := &Message{}
	f := walk(b)
	for f.next() {
		switch f.num {
		case 1:
			m.ID = protocol.MessageID(f.fixed(16))
		case 2:
			m.PublishedAt = int64(f.uint())
		case 3:
			m.Priority = uint8(f.uint())
		case 4:
			m.Group = string(f.slice())
		case 5:
			m.decodeHeader(&f)
		case 6:
			m.Body = bytes.Clone(f.slice())
		case 7:
			m.Story = bytes.Clone(f.slice())
		case 8:
			m.Publisher = string(f.slice())
		default:
			m.Extra = append(m.Extra, f.raw...)
		}
	}
	return m, f.err
}

func (m *Message) decodeHeader(f *fields) {
	var name string
	var values []string
	h := walk(f.slice())
	for h.next() {
		switch h.num {
		case 1:
			name = string(h.slice())
		case 2:
			values = append(values, string(h.slice()))
		}
	}
	if h.err != nil {
		f.fail(h.err)
		return
	}
	if m.Headers == nil {
		m.Headers = make(map[string][]string, 4)
	}
	m.Headers[name] = values
}

// glance reads of an encoded message what an entry keeps.
func glance(b []byte) (m brief, err error) {
	f := walk(b)
	for f.next() {
		switch f.num {
		case 1:
			m.id = protocol.MessageID(f.fixed(16))
		case 3:
			m.priority = uint8(f.uint())
		case 4:
			m.group = GroupOf(string(f.slice()))
		case 5:
			h := walk(f.slice())
			for h.next() {
				m.size += uint32(len(h.bytes))
			}
			if h.err != nil {
				f.fail(h.err)
			}
		case 6:
			m.size += uint32(len(f.slice()))
		}
	}
	return m, f.err
}

func appendMeta(b []byte, num protowire.Number, m *Meta) []byte {
	b, start := open(b, num)
	b = appendString(b, 1, m.Queue)
	b = appendUint(b, 2, uint64(m.Generation))
	b = appendUint(b, 3, uint64(m.Attempt))
	b = appendUint(b, 4, uint64(m.Vanished))
	b = appendUint(b, 5, uint64(m.Incomplete))
	b = appendFixed(b, 6, uint64(m.Due))
	b = appendFixed(b, 7, uint64(m.FirstFailure))
	b = appendFixed(b, 8, uint64(m.LastFailure))
	b = appendString(b, 9, m.Reason)
	b = appendString(b, 10, m.Error)
	b = appendString(b, 11, m.Source)
	b = appendString(b, 12, m.Spans)
	b = appendString(b, 13, m.Story)
	b = appendFixed(b, 14, m.Group)
	b = append(b, m.Extra...)
	return shut(b, start)
}

// interner gives the one string that is kept for bytes that come again and
// again.
type interner func([]byte) string

func decodeMeta(b []byte, intern interner) (m Meta, err error) {
	f := walk(b)
	for f.next() {
		switch f.num {
		case 1:
			m.Queue = intern(f.slice())
		case 2:
			m.Generation = f.uint32()
		case 3:
			m.Attempt = f.uint32()
		case 4:
			m.Vanished = f.uint32()
		case 5:
			m.Incomplete = f.uint32()
		case 6:
			m.Due = int64(f.uint())
		case 7:
			m.FirstFailure = int64(f.uint())
		case 8:
			m.LastFailure = int64(f.uint())
		case 9:
			m.Reason = protocol.Reason(f.slice())
		case 10:
			m.Error = string(f.slice())
		case 11:
			m.Source = string(f.slice())
		case 12:
			m.Spans = string(f.slice())
		case 13:
			m.Story = bytes.Clone(f.slice())
		case 14:
			m.Group = f.uint()
		default:
			m.Extra = append(m.Extra, f.raw...)
		}
	}
	return m, f.err
}

// bare says whether an entry holds all there is in m.
func (m *Meta) bare() bool {
	return m.LastFailure == 0 && m.Reason == "" && m.Error == "" && m.Source == "" && len(m.Story) == 0 && m.Group == 0 && len(m.Extra) == 0
}

// plain is the interner that keeps nothing.
func plain(b []byte) string { return string(b) }
