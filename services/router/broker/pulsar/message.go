//go:build !no_pulsar

package pulsar

import (
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker"
	"github.com/waybill-mq/waybill/services/router/broker/remote"
)

// HeaderKey is a message's key on the broker where it is not that of its group,
// which then is its ordering key.
const HeaderKey = "X-Pulsar-Key"

// encode is a message as the broker keeps it.
func encode(w *remote.Writing) (*pulsar.ProducerMessage, error) {
	properties := make(map[string]string, len(w.Message.Headers)+8)
	p := remote.Texts{Put: func(name, value string) { properties[name] = value }, Carries: carries}
	for name, values := range w.Message.Headers {
		p.Add(name, values[0])
	}
	p.Mesh(w)
	if err := p.End(); err != nil {
		return nil, err
	}
	m := &pulsar.ProducerMessage{Payload: w.Message.Body, Properties: properties}
	keyed(m, w.Message)
	if w.Kind == remote.Waiting && w.Meta.Due > time.Now().UnixNano() {
		m.DeliverAt = time.Unix(0, w.Meta.Due).Add(time.Millisecond - 1)
	}
	return m, nil
}

// What a message takes on its way beside what its publisher has put into it, and each
// property beside its text, at most.
const (
	envelopeBytes = 256
	propertyBytes = 12
)

// sizeOf is what the broker compares with the largest message it takes.
func sizeOf(m *pulsar.ProducerMessage) int {
	n := envelopeBytes + len(m.Payload) + len(m.Key) + len(m.OrderingKey)
	for name, value := range m.Properties {
		n += propertyBytes + len(name) + len(value)
	}
	return n
}

// keyed gives a message its keys: the group is what Key_Shared goes by.
func keyed(m *pulsar.ProducerMessage, of *broker.Message) {
	key, apart := of.Headers[HeaderKey]
	switch {
	case apart:
		m.Key, m.OrderingKey = key[0], of.Group
	case utf8.ValidString(of.Group):
		m.Key = of.Group
	default:
		m.OrderingKey = of.Group
	}
}

// carries says whether a header arrives as it is.
func carries(name, value string) bool { return utf8.ValidString(name) && utf8.ValidString(value) }

// decode reads a message of the broker's. Of a stranger's what a header of a message
// may not be is left out.
func decode(from pulsar.Message) remote.Delivery {
	place := placeOf(from.ID())
	d := remote.Delivery{Message: &broker.Message{Body: from.Payload()}, Tag: place, Place: place}
	if all := from.Properties(); !d.Read(all) {
		stranger(from, all, d.Message)
	}
	return d
}

// placeOf tells a message from every other of the broker's.
func placeOf(id pulsar.MessageID) string {
	text := strconv.AppendInt(nil, id.LedgerID(), 10)
	text = strconv.AppendInt(append(text, ':'), id.EntryID(), 10)
	if id.BatchSize() > 1 {
		text = strconv.AppendInt(append(text, ':'), int64(id.BatchIdx()), 10)
	}
	return string(text)
}

// stranger reads what a program sent that knows the broker and not the mesh.
func stranger(from pulsar.Message, all map[string]string, m *broker.Message) {
	m.PublishedAt = from.PublishTime().UnixNano()
	m.ID = strangersID(from)
	m.Headers = remote.Publishers(all, false)
	key, order := from.Key(), from.OrderingKey()
	switch {
	case order == "" && remote.IsCarried(protocol.HeaderGroup, key):
		m.Group = key
	case order != "" && remote.IsCarried(protocol.HeaderGroup, order) && remote.IsCarried(HeaderKey, key):
		m.Group = order
		remote.AddHeader(m, HeaderKey, key)
	}
	protocol.CleanTrace(m.Headers)
}

// strangersID names a message whose publisher did not: by the broker's number, of
// which it has given no other message, and by when it came.
func strangersID(from pulsar.Message) protocol.MessageID {
	text := fmt.Appendf(nil, "%s\x00%d\x00%s\x00", placeOf(from.ID()), from.PublishTime().UnixNano(), from.ProducerName())
	return remote.StrangersID(append(text, from.Payload()...))
}
