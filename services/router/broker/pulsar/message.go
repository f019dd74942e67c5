//go:build !no_pulsar

package pulsar

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/google/uuid"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker"
	"github.com/waybill-mq/waybill/services/router/broker/remote"
)

// Properties of the mesh in a message on the broker. The attempt is
// protocol.HeaderAttempt; a message without propertyPublished is not the mesh's,
// and nothing of these counts in it. Times are as in layout.
const (
	propertyPublished  = "Waybill-Published-At"
	propertyVanished   = "Waybill-Vanished"
	propertyIncomplete = "Waybill-Incomplete"
	propertyDue        = "Waybill-Due"
	propertyFirst      = "Waybill-First-Failure"
	propertyLast       = "Waybill-Last-Failure"
	propertyReason     = "Waybill-Reason"
	propertySource     = "Waybill-Source"
	propertySpans      = "Waybill-Spans"
	propertyStory      = "Waybill-Story"
	propertyQueue      = "Waybill-Queue" // of a dead letter
	propertyCopy       = "Waybill-Copy"  // the how manieth copy this is
	// propertyMore has, as JSON with base64 values, what is no UTF-8.
	propertyMore = "Waybill-Headers"
)

// HeaderKey is a message's key on the broker where it is not that of its group,
// which then is its ordering key.
const HeaderKey = "X-Pulsar-Key"

// layout is ISO 8601 with the zone.
const layout = "2006-01-02T15:04:05.000000000-07:00"

// encode is a message as the broker keeps it.
func encode(w *remote.Writing) (*pulsar.ProducerMessage, error) {
	p := properties{all: make(map[string]string, len(w.Message.Headers)+8)}
	for name, values := range w.Message.Headers {
		p.add(name, values[0])
	}
	p.mesh(w)
	if err := p.end(); err != nil {
		return nil, err
	}
	m := &pulsar.ProducerMessage{Payload: w.Message.Body, Properties: p.all}
	keyed(m, w.Message)
	if w.Kind == remote.Waiting && w.Meta.Due > time.Now().UnixNano() {
		m.DeliverAt = time.Unix(0, w.Meta.Due).Add(time.Millisecond - 1)
	}
	return m, nil
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

// properties are those of a message.
type properties struct {
	all  map[string]string
	more map[string][]byte
}

func (p *properties) add(name, value string) {
	if utf8.ValidString(name) && utf8.ValidString(value) {
		p.all[name] = value
		return
	}
	if p.more == nil {
		p.more = make(map[string][]byte)
	}
	p.more[name] = []byte(value)
}

// mesh adds what the mesh says of the message.
func (p *properties) mesh(w *remote.Writing) {
	m, meta := w.Message, w.Meta
	p.all[protocol.HeaderMessageID] = m.ID.String()
	p.all[protocol.HeaderAttempt] = strconv.FormatUint(uint64(meta.Attempt), 10)
	for _, n := range []struct {
		name  string
		value uint32
	}{
		{protocol.HeaderGeneration, meta.Generation}, {propertyVanished, meta.Vanished}, {propertyIncomplete, meta.Incomplete},
		{propertyCopy, w.Copy}, {protocol.HeaderPriority, uint32(m.Priority)},
	} {
		if n.value != 0 {
			p.all[n.name] = strconv.FormatUint(uint64(n.value), 10)
		}
	}
	for _, t := range []struct {
		name string
		at   int64
	}{{propertyPublished, m.PublishedAt}, {propertyDue, meta.Due}, {propertyFirst, meta.FirstFailure}, {propertyLast, meta.LastFailure}} {
		if t.at != 0 {
			p.all[t.name] = time.Unix(0, t.at).UTC().Format(layout)
		}
	}
	queue := ""
	if w.Kind == remote.Dead {
		queue = w.Queue
	}
	for _, x := range []struct{ name, value string }{
		{propertyReason, string(meta.Reason)}, {protocol.HeaderError, meta.Error}, {propertySource, meta.Source}, {propertySpans, meta.Spans},
		{protocol.HeaderGroup, m.Group}, {propertyStory, string(ledger.JoinStories(m.Story, meta.Story))}, {propertyQueue, queue},
	} {
		if x.value != "" {
			p.add(x.name, x.value)
		}
	}
}

// end adds what does not go under its own name.
func (p *properties) end() error {
	if p.more == nil {
		return nil
	}
	text, err := json.Marshal(p.more)
	p.all[propertyMore] = string(text)
	return err
}

// decode reads a message of the broker's. Of a stranger's, which has none of
// the mesh's properties, the first attempt is meant whatever it says, and what a
// header of a message may not be is left out.
func decode(from pulsar.Message) remote.Delivery {
	place := placeOf(from.ID())
	d := remote.Delivery{Tag: place, Place: place}
	all := from.Properties()
	m := &broker.Message{Body: from.Payload()}
	d.Message, d.Meta.Attempt = m, 1
	id, err := uuid.Parse(all[protocol.HeaderMessageID])
	published := remote.When(all[propertyPublished])
	if d.Own = err == nil && published != 0; !d.Own {
		stranger(from, all, m)
		return d
	}
	own := whole(all)
	m.ID, m.PublishedAt = id, published
	m.Group, m.Story = own[protocol.HeaderGroup], []byte(own[propertyStory])
	m.Priority = uint8(min(remote.Number(own[protocol.HeaderPriority]), 255))
	m.Headers = userHeaders(own, true)
	d.Copy = remote.Number(own[propertyCopy])
	readMeta(own, &d.Meta)
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

// whole are all properties, also those that are apart.
func whole(all map[string]string) map[string]string {
	text := all[propertyMore]
	if text == "" {
		return all
	}
	var more map[string][]byte
	if err := json.Unmarshal([]byte(text), &more); err == nil {
		for name, value := range more {
			all[name] = string(value)
		}
	}
	return all
}

func readMeta(all map[string]string, meta *broker.Meta) {
	meta.Attempt = max(1, remote.Number(all[protocol.HeaderAttempt]))
	meta.Generation = remote.Number(all[protocol.HeaderGeneration])
	meta.Vanished, meta.Incomplete = remote.Number(all[propertyVanished]), remote.Number(all[propertyIncomplete])
	meta.Due, meta.FirstFailure, meta.LastFailure = remote.When(all[propertyDue]), remote.When(all[propertyFirst]), remote.When(all[propertyLast])
	meta.Reason = protocol.Reason(all[propertyReason])
	meta.Error, meta.Source, meta.Spans = all[protocol.HeaderError], all[propertySource], all[propertySpans]
}

// stranger reads what a program sent that knows the broker and not the mesh.
func stranger(from pulsar.Message, all map[string]string, m *broker.Message) {
	m.PublishedAt = from.PublishTime().UnixNano()
	m.ID = strangersID(from)
	m.Headers = userHeaders(all, false)
	key, order := from.Key(), from.OrderingKey()
	switch {
	case order == "" && remote.IsCarried(protocol.HeaderGroup, key):
		m.Group = key
	case order != "" && remote.IsCarried(protocol.HeaderGroup, order) && remote.IsCarried(HeaderKey, key):
		m.Group = order
		if m.Headers == nil {
			m.Headers = make(map[string][]string)
		}
		m.Headers[HeaderKey] = []string{key}
	}
	protocol.CleanTrace(m.Headers)
}

// strangersID names a message whose publisher did not: by the broker's number, of
// which it has given no other message, and by when it came.
func strangersID(from pulsar.Message) protocol.MessageID {
	text := fmt.Appendf(nil, "%s\x00%d\x00%s\x00", placeOf(from.ID()), from.PublishTime().UnixNano(), from.ProducerName())
	return remote.StrangersID(append(text, from.Payload()...))
}

// userHeaders are those of a message that are its publisher's.
func userHeaders(all map[string]string, trusted bool) map[string][]string {
	var own map[string][]string
	for name, value := range all {
		if !remote.IsPublishers(name, value, trusted) {
			continue
		}
		if own == nil {
			own = make(map[string][]string)
		}
		own[name] = []string{value}
	}
	return own
}
