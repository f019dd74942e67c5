//go:build !no_artemis

package artemis

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-stomp/stomp/v3/frame"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker"
	"github.com/waybill-mq/waybill/services/router/broker/remote"
)

// Headers of the broker's.
const (
	headerScheduled  = "AMQ_SCHEDULED_TIME" // ms since the epoch; of those there are, the one that delays
	headerPriority   = "priority"
	headerPersistent = "persistent"
	headerTimestamp  = "timestamp"
	// headerOnce names a copy: the broker takes it once, however often it is written.
	headerOnce = "_AMQ_DUPL_ID"
)

// ofFrame are headers that STOMP or the broker gives a meaning of its own or has
// every message have. A publisher's of that name, in any case of its letters, is
// in remote.HeaderMore; the others of this kind are refused by protocol.CheckHeaders.
var ofFrame = map[string]bool{
	"timestamp": true, "type": true, "correlation-id": true, "content-type": true, "host": true, "login": true, "passcode": true,
	"version": true, "accept-version": true, "heart-beat": true, "server": true, "message": true,
}

// Bounds of a message's headers, in characters, which the broker stores in two
// bytes each: all headers with a large body, and with any other.
const (
	largeBody     = 90 << 10
	maxLargeChars = 45 << 10
	maxChars      = 160 << 10
)

// encode is the frame of a message as the broker keeps it.
func encode(b *Broker, w *remote.Writing) (*frame.Frame, error) {
	f := frame.New(frame.SEND)
	if err := address(b, w, f); err != nil {
		return nil, err
	}
	if err := describe(w, f); err != nil {
		return nil, err
	}
	f.Header.Add(frame.ContentLength, strconv.Itoa(len(w.Message.Body)))
	f.Body = w.Message.Body
	return f, nil
}

// address says where a message goes, and when.
func address(b *Broker, w *remote.Writing, f *frame.Frame) error {
	to, kind, err := destinationOf(b, w)
	if err != nil {
		return err
	}
	f.Header.Add(frame.Destination, to)
	f.Header.Add(destinationType, kind)
	f.Header.Add(headerPersistent, "true")
	f.Header.Add(headerPriority, strconv.Itoa(priority(w)))
	if w.Kind != remote.Fresh {
		f.Header.Add(headerOnce, fmt.Sprintf("%s/%d/%d", w.Message.ID, w.Meta.Generation, w.Copy))
	}
	if w.Kind == remote.Waiting && w.Meta.Due > time.Now().UnixNano() {
		ms := (w.Meta.Due + int64(time.Millisecond) - 1) / int64(time.Millisecond)
		f.Header.Add(headerScheduled, strconv.FormatInt(ms, 10))
	}
	return nil
}

func destinationOf(b *Broker, w *remote.Writing) (to, kind string, err error) {
	s, _ := w.Spot.(*spot)
	switch {
	case s == nil:
		to, _, err = b.topicOf(w.Topic)
		return to, multicast, err
	case w.Kind == remote.Dead:
		return s.dead, anycast, nil
	}
	return s.queue, anycast, nil
}

// The broker's priorities: what is above the highest would be confirmed and lost.
const (
	ordinaryPriority = 4
	highestPriority  = 9
)

// priority is a message's on the broker. In a queue without priorities all have
// the same, lest they pass each other.
func priority(w *remote.Writing) int {
	if w.Made.MaxPriority == 0 || w.Kind == remote.Dead {
		return ordinaryPriority
	}
	return int(min(w.Message.Priority, w.Made.MaxPriority, highestPriority))
}

// describe adds a message's headers.
func describe(w *remote.Writing, f *frame.Frame) error {
	size := 0
	put := func(name, value string) {
		f.Header.Add(name, value)
		size += len(name) + len(value)
	}
	h := remote.Texts{Put: put, Carries: carries}
	for name, values := range w.Message.Headers {
		if strings.EqualFold(name, frame.ContentType) {
			f.Header.Add(frame.ContentType, strings.ToValidUTF8(values[0], "?")) // for programs that read the queue themselves
		}
		h.Add(name, values[0])
	}
	h.Mesh(w)
	if err := h.End(); err != nil {
		return err
	}
	most := maxChars
	if len(w.Message.Body) > largeBody {
		most = maxLargeChars
	}
	if size > most {
		return protocol.Errorf(protocol.CodeLimitExceeded, "headers of %d bytes with a payload of %d are more than Artemis takes", size, len(w.Message.Body))
	}
	return nil
}

// carries says whether a header arrives as it is.
func carries(name, value string) bool {
	return !ofFrame[strings.ToLower(name)] && utf8.ValidString(value) && strings.TrimSpace(value) == value && !strings.ContainsRune(value, 0)
}

// decode reads a message of the broker's. Of a stranger's what a header of a message
// may not be is left out.
func decode(f *frame.Frame) remote.Delivery {
	d := remote.Delivery{Message: &broker.Message{Body: f.Body}, Tag: f.Header.Get(frame.Ack), Place: placeOf(f)}
	if all := headersOf(f); !d.Read(all) {
		stranger(f, all, d.Message)
	}
	return d
}

// placeOf is the broker's own number of a message, behind that of the
// subscription.
func placeOf(f *frame.Frame) string { return numberOf(f.Header.Get(frame.MessageId)) }

// numberOf is that of the id of a message, or of the one that acknowledges it.
func numberOf(id string) string {
	if _, own, found := strings.Cut(id, ","); found {
		return own
	}
	return id
}

// headersOf are those of a frame that are not its own. Of those of one name the first
// counts: it is the broker's.
func headersOf(f *frame.Frame) map[string]string {
	all := make(map[string]string, f.Header.Len())
	for i := range f.Header.Len() {
		name, value := f.Header.GetAt(i)
		if _, has := all[name]; !has && !ofFrame[strings.ToLower(name)] {
			all[name] = value
		}
	}
	return all
}

// stranger reads what a program sent that knows the broker and not the mesh.
func stranger(f *frame.Frame, all map[string]string, m *broker.Message) {
	m.ID = strangersID(f)
	m.PublishedAt = time.Now().UnixNano()
	if ms, err := strconv.ParseInt(f.Header.Get(headerTimestamp), 10, 64); err == nil && ms > 0 {
		m.PublishedAt = ms * int64(time.Millisecond)
	}
	if n := remote.Number(all[headerPriority]); n != ordinaryPriority && n <= highestPriority {
		m.Priority = uint8(n)
	}
	m.Headers = remote.Publishers(all, false)
	for from, to := range map[string]string{frame.ContentType: "Content-Type", "correlation-id": protocol.HeaderCorrelation} {
		if value := f.Header.Get(from); value != "" && m.Headers[to] == nil && remote.IsCarried(to, value) {
			remote.AddHeader(m, to, value)
		}
	}
	protocol.CleanTrace(m.Headers)
}

// strangersID names a message whose publisher did not: by the broker's number, of
// which it has given no other message of this queue, and by when it came.
func strangersID(f *frame.Frame) protocol.MessageID {
	text := fmt.Appendf(nil, "%s\x00%s\x00%s\x00", placeOf(f), f.Header.Get(headerTimestamp), f.Header.Get(frame.Destination))
	return remote.StrangersID(append(text, f.Body...))
}
