//go:build !no_rabbitmq

package rabbitmq

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
	"github.com/waybill-mq/waybill/services/router/broker"
	"github.com/waybill-mq/waybill/services/router/broker/remote"
)

// The broker takes the headers in one frame of 128 KiB with all else that describes a
// message. A publish may use maxHeaders of them, so that there is room for what becomes
// of it; what others have put there may have used more.
const (
	maxHeaders = 96 << 10
	maxCopied  = 125 << 10
	perHeader  = 6 // bytes, beside its name and value
)

// outward is a message as the broker keeps it.
func outward(m *broker.Message, meta *broker.Meta) (amqp.Publishing, error) {
	h := make(amqp.Table, len(m.Headers)+4)
	for name, values := range m.Headers {
		if len(name) > 255 {
			return amqp.Publishing{}, protocol.Errorf(protocol.CodeLimitExceeded, "a header's name has %d bytes: RabbitMQ takes 255", len(name))
		}
		h[name] = values[0]
	}
	if size := headersOf(m, meta); size > maxCopied {
		return amqp.Publishing{}, headersTooLong(size)
	}
	h[protocol.HeaderAttempt], h[remote.HeaderPublished] = int64(meta.Attempt), m.PublishedAt
	for _, x := range [...]struct {
		name string
		n    int64
	}{
		{protocol.HeaderGeneration, int64(meta.Generation)}, {remote.HeaderVanished, int64(meta.Vanished)}, {remote.HeaderIncomplete, int64(meta.Incomplete)},
		{remote.HeaderDue, meta.Due}, {remote.HeaderFirst, meta.FirstFailure}, {remote.HeaderLast, meta.LastFailure},
	} {
		if x.n != 0 {
			h[x.name] = x.n
		}
	}
	for _, x := range [...]struct{ name, text string }{
		{remote.HeaderReason, string(meta.Reason)}, {remote.HeaderError, meta.Error}, {remote.HeaderSource, meta.Source}, {remote.HeaderSpans, meta.Spans},
		{protocol.HeaderGroup, m.Group}, {remote.HeaderStory, string(ledger.JoinStories(m.Story, meta.Story))},
	} {
		if x.text != "" {
			h[x.name] = x.text
		}
	}
	return amqp.Publishing{
		Headers: h, Body: m.Body, MessageId: m.ID.String(),
		DeliveryMode: amqp.Persistent, Priority: m.Priority, Timestamp: time.Unix(0, m.PublishedAt),
		ContentType: contentType(m.Headers), CorrelationId: brief(first(m.Headers, protocol.HeaderCorrelation)),
	}, nil
}

// passing is the lowest priority with which a message passes others in a quorum queue,
// since RabbitMQ 4.
const passing = 5

// rank has a message pass none in a queue that has no priorities. The mesh knows its own by
// a header then.
func (b *Broker) rank(p *amqp.Publishing) {
	if b.ranks && p.Priority >= passing {
		p.Headers[protocol.HeaderPriority] = int64(p.Priority)
		p.Priority = passing - 1
	}
}

// headersOf are the bytes of a message's headers, and of what the mesh adds.
func headersOf(m *broker.Message, meta *broker.Meta) int {
	size := len(meta.Error) + len(meta.Source) + len(meta.Spans) + len(m.Story) + len(meta.Story) + len(m.Group)
	for name, values := range m.Headers {
		size += len(name) + len(values[0]) + perHeader
	}
	return size
}

func headersTooLong(size int) error {
	return protocol.Errorf(protocol.CodeLimitExceeded, "headers of %d bytes are more than RabbitMQ takes", size)
}

// contentType is the publisher's, for programs that read the queue themselves.
func contentType(headers map[string][]string) string {
	for name := range headers {
		if strings.EqualFold(name, headerContentType) {
			return brief(headers[name][0])
		}
	}
	return ""
}

const headerContentType = "Content-Type"

func first(headers map[string][]string, name string) string {
	if values := headers[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// brief is a property's value if it fits; the header has it anyway.
func brief(value string) string {
	if len(value) > 255 {
		return ""
	}
	return value
}

// decode is a delivery of a queue's.
func decode(d *amqp.Delivery, queue string) remote.Delivery {
	m, meta, own := inward(d)
	if _, named := scope.NamedQueue(queue); named && !own {
		m.Headers = withJob(m.Headers, d.Headers)
	}
	return remote.Delivery{
		Message: m, Meta: meta, Own: own, Copy: number(d.Headers[remote.HeaderCopy]), Tag: strconv.FormatUint(d.DeliveryTag, 10), Again: d.Redelivered,
	}
}

// inward reads a message of the broker's. Of a stranger's, which has none of
// the mesh's headers, the first attempt is meant whatever it says, and what a
// header of a message may not be is left out.
func inward(d *amqp.Delivery) (m *broker.Message, meta broker.Meta, own bool) {
	m = &broker.Message{Body: d.Body, Priority: d.Priority}
	m.PublishedAt, own = integer(d.Headers[remote.HeaderPublished])
	id, err := uuid.Parse(d.MessageId)
	own = own && err == nil
	meta.Attempt = 1
	if own {
		m.ID = id
		m.Headers = userHeaders(d.Headers, true)
		m.Group, m.Story = text(d.Headers[protocol.HeaderGroup]), []byte(text(d.Headers[remote.HeaderStory]))
		if n := number(d.Headers[protocol.HeaderPriority]); n > 0 {
			m.Priority = uint8(min(n, 255))
		}
		readMeta(d.Headers, &meta)
		return m, meta, true
	}
	m.ID = strangersID(d, id)
	m.PublishedAt = time.Now().UnixNano()
	if !d.Timestamp.IsZero() {
		m.PublishedAt = d.Timestamp.UnixNano()
	}
	m.Headers = userHeaders(d.Headers, false)
	for name, value := range map[string]string{headerContentType: d.ContentType, protocol.HeaderCorrelation: d.CorrelationId} {
		if _, has := m.Headers[name]; value != "" && !has && remote.IsCarried(name, value) {
			if m.Headers == nil {
				m.Headers = make(map[string][]string)
			}
			m.Headers[name] = []string{value}
		}
	}
	protocol.CleanTrace(m.Headers)
	return m, meta, false
}

// strangersID names a message whose publisher did not, alike whenever it is
// delivered.
func strangersID(d *amqp.Delivery, given uuid.UUID) protocol.MessageID {
	if given != uuid.Nil {
		return given
	}
	text := fmt.Appendf(nil, "%s\x00%s\x00%s\x00", d.MessageId, d.CorrelationId, d.Timestamp)
	for _, name := range slices.Sorted(maps.Keys(d.Headers)) {
		if !strings.HasPrefix(name, "x-") { // which the broker may have changed
			text = fmt.Appendf(text, "%s\x00%v\x00", name, d.Headers[name])
		}
	}
	return remote.StrangersID(append(text, d.Body...))
}

func readMeta(h amqp.Table, meta *broker.Meta) {
	meta.Attempt = max(1, number(h[protocol.HeaderAttempt]))
	meta.Generation = number(h[protocol.HeaderGeneration])
	meta.Vanished, meta.Incomplete = number(h[remote.HeaderVanished]), number(h[remote.HeaderIncomplete])
	meta.Due, _ = integer(h[remote.HeaderDue])
	meta.FirstFailure, _ = integer(h[remote.HeaderFirst])
	meta.LastFailure, _ = integer(h[remote.HeaderLast])
	meta.Reason = protocol.Reason(text(h[remote.HeaderReason]))
	meta.Error, meta.Source, meta.Spans = text(h[remote.HeaderError]), text(h[remote.HeaderSource]), text(h[remote.HeaderSpans])
}

// withJob adds to the headers of a stranger's message those that make it a job,
// if these are what a job may have.
func withJob(headers map[string][]string, h amqp.Table) map[string][]string {
	f := protocol.FunctionSpec{ID: text(h[protocol.HeaderFunction]), Namespace: cmp.Or(text(h[protocol.HeaderNamespace]), protocol.DefaultNamespace)}
	if scope.CheckFunction(f.ID) != nil || scope.CheckNamespace(f.Namespace) != nil || f.IsOwn() {
		return headers
	}
	if headers == nil {
		headers = make(map[string][]string, 2)
	}
	headers[protocol.HeaderFunction], headers[protocol.HeaderNamespace] = []string{f.ID}, []string{f.Namespace}
	return headers
}

// userHeaders are those of a message that are its publisher's.
func userHeaders(h amqp.Table, mesh bool) map[string][]string {
	var own map[string][]string
	for name, value := range h {
		if remote.IsMesh(name) {
			continue
		}
		v := text(value)
		if !remote.IsPublishers(name, v, mesh) {
			continue
		}
		if own == nil {
			own = make(map[string][]string, len(h))
		}
		own[name] = []string{v}
	}
	return own
}

// text is a header's value as text.
func text(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case []byte:
		return string(v)
	case bool:
		return strconv.FormatBool(v)
	case time.Time:
		return v.UTC().Format(time.RFC3339)
	case amqp.Table, []any:
		if b, err := json.Marshal(v); err == nil {
			return string(b)
		}
	}
	return fmt.Sprint(v)
}

// integer is a header's whole number, however it was encoded.
func integer(v any) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case int32:
		return int64(v), true
	case int16:
		return int64(v), true
	case int8:
		return int64(v), true
	case uint8:
		return int64(v), true
	case uint16:
		return int64(v), true
	case uint32:
		return int64(v), true
	case string:
		n, err := strconv.ParseInt(v, 10, 64)
		return n, err == nil
	}
	return 0, false
}

// identOf names the copy of a message.
func identOf(d *amqp.Delivery, m *broker.Message, meta *broker.Meta) remote.Ident {
	return remote.Ident{Queue: meta.Queue, ID: m.ID, Generation: meta.Generation, Copy: number(d.Headers[remote.HeaderCopy])}
}

// number is a count, 0 for what is none.
func number(v any) uint32 {
	n, ok := integer(v)
	if !ok || n < 0 || n > 1<<31 {
		return 0
	}
	return uint32(n)
}
