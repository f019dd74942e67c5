//go:build !no_artemis

package artemis

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-stomp/stomp/v3/frame"
	"github.com/google/uuid"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker"
	"github.com/waybill-mq/waybill/services/router/broker/remote"
)

// Headers of the mesh in a message on the broker. The attempt is
// protocol.HeaderAttempt; a message without headerPublished is not the mesh's,
// and nothing of these counts in it. Times are as in layout.
const (
	headerPublished  = "Waybill-Published-At"
	headerVanished   = "Waybill-Vanished"
	headerIncomplete = "Waybill-Incomplete"
	headerDue        = "Waybill-Due"
	headerFirst      = "Waybill-First-Failure"
	headerLast       = "Waybill-Last-Failure"
	headerReason     = "Waybill-Reason"
	headerError      = protocol.HeaderError
	headerSource     = "Waybill-Source"
	headerSpans      = "Waybill-Spans"
	headerStory      = "Waybill-Story"
	headerQueue      = "Waybill-Queue" // of a dead letter
	headerCopy       = "Waybill-Copy"  // the how manieth copy this is
	// headerMore has, as JSON with base64 values, what STOMP or the broker would not
	// carry as it is under its own name.
	headerMore = "Waybill-Headers"
)

// Headers of the broker's.
const (
	headerScheduled  = "AMQ_SCHEDULED_TIME" // ms since the epoch; of those there are, the one that delays
	headerPriority   = "priority"
	headerPersistent = "persistent"
	// headerOnce names a copy: the broker takes it once, however often it is written.
	headerOnce = "_AMQ_DUPL_ID"
)

// layout is ISO 8601 with the zone, as the broker wants its times.
const layout = "2006-01-02T15:04:05.000000000-07:00"

// ofFrame are headers that STOMP or the broker gives a meaning of its own or has
// every message have. A publisher's of that name, in any case of its letters, is
// in headerMore; the others of this kind are refused by protocol.CheckHeaders.
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
	h := headers{frame: f}
	for name, values := range w.Message.Headers {
		h.user(name, values[0])
	}
	h.mesh(w)
	if err := h.end(); err != nil {
		return nil, err
	}
	most := maxChars
	if len(w.Message.Body) > largeBody {
		most = maxLargeChars
	}
	if h.size > most {
		return nil, protocol.Errorf(protocol.CodeLimitExceeded, "headers of %d bytes with a payload of %d are more than Artemis takes", h.size, len(w.Message.Body))
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

// headers are written into a frame.
type headers struct {
	frame *frame.Frame
	more  map[string][]byte
	size  int
}

// user adds a publisher's header.
func (h *headers) user(name, value string) {
	if lower := strings.ToLower(name); ofFrame[lower] {
		if lower == frame.ContentType {
			h.frame.Header.Add(frame.ContentType, strings.ToValidUTF8(value, "?")) // for programs that read the queue themselves
		}
		h.apart(name, value)
		return
	}
	h.text(name, value)
}

// text adds a header, under its own name if its value arrives as it is.
func (h *headers) text(name, value string) {
	if !utf8.ValidString(value) || strings.TrimSpace(value) != value || strings.ContainsRune(value, 0) {
		h.apart(name, value)
		return
	}
	h.plain(name, value)
}

func (h *headers) plain(name, value string) {
	h.frame.Header.Add(name, value)
	h.size += len(name) + len(value)
}

func (h *headers) apart(name, value string) {
	if h.more == nil {
		h.more = make(map[string][]byte)
	}
	h.more[name] = []byte(value)
}

// mesh adds what the mesh says of the message.
func (h *headers) mesh(w *remote.Writing) {
	m, meta := w.Message, w.Meta
	h.plain(protocol.HeaderMessageID, m.ID.String())
	h.plain(protocol.HeaderAttempt, strconv.FormatUint(uint64(meta.Attempt), 10))
	for _, n := range []struct {
		name  string
		value uint32
	}{
		{protocol.HeaderGeneration, meta.Generation}, {headerVanished, meta.Vanished}, {headerIncomplete, meta.Incomplete},
		{headerCopy, w.Copy}, {protocol.HeaderPriority, uint32(m.Priority)},
	} {
		if n.value != 0 {
			h.plain(n.name, strconv.FormatUint(uint64(n.value), 10))
		}
	}
	for _, t := range []struct {
		name string
		at   int64
	}{{headerPublished, m.PublishedAt}, {headerDue, meta.Due}, {headerFirst, meta.FirstFailure}, {headerLast, meta.LastFailure}} {
		if t.at != 0 {
			h.plain(t.name, time.Unix(0, t.at).UTC().Format(layout))
		}
	}
	queue := ""
	if w.Kind == remote.Dead {
		queue = w.Queue
	}
	for _, x := range []struct{ name, value string }{
		{headerReason, string(meta.Reason)}, {headerError, meta.Error}, {headerSource, meta.Source}, {headerSpans, meta.Spans},
		{protocol.HeaderGroup, m.Group}, {headerStory, string(ledger.JoinStories(m.Story, meta.Story))}, {headerQueue, queue},
	} {
		if x.value != "" {
			h.text(x.name, x.value)
		}
	}
}

// end adds what does not go under its own name.
func (h *headers) end() error {
	if h.more == nil {
		return nil
	}
	text, err := json.Marshal(h.more)
	h.plain(headerMore, string(text))
	return err
}

// decode reads a message of the broker's. Of a stranger's, which has none of
// the mesh's headers, the first attempt is meant whatever it says, and what a
// header of a message may not be is left out.
func decode(f *frame.Frame) remote.Delivery {
	d := remote.Delivery{Tag: f.Header.Get(frame.Ack), Place: placeOf(f)}
	all := headersOf(f)
	m := &broker.Message{Body: f.Body}
	d.Message, d.Meta.Attempt = m, 1
	id, err := uuid.Parse(all[protocol.HeaderMessageID])
	published := remote.When(all[headerPublished])
	if d.Own = err == nil && published != 0; !d.Own {
		stranger(f, all, m)
		return d
	}
	own := ownHeaders(all)
	m.ID, m.PublishedAt = id, published
	m.Group, m.Story = own[protocol.HeaderGroup], []byte(own[headerStory])
	m.Priority = uint8(min(remote.Number(own[protocol.HeaderPriority]), 255))
	m.Headers = userHeaders(own, true)
	d.Copy = remote.Number(own[headerCopy])
	readMeta(own, &d.Meta)
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

// headersOf are a frame's. Of those of one name the first counts: it is the
// broker's.
func headersOf(f *frame.Frame) map[string]string {
	all := make(map[string]string, f.Header.Len())
	for i := range f.Header.Len() {
		name, value := f.Header.GetAt(i)
		if _, has := all[name]; !has {
			all[name] = value
		}
	}
	return all
}

// ownHeaders are those that the mesh wrote.
func ownHeaders(all map[string]string) map[string]string {
	own := make(map[string]string, len(all))
	for name, value := range all {
		if !ofFrame[strings.ToLower(name)] {
			own[name] = value
		}
	}
	var apart map[string][]byte
	if err := json.Unmarshal([]byte(all[headerMore]), &apart); err == nil {
		for name, value := range apart {
			own[name] = string(value)
		}
	}
	return own
}

func readMeta(all map[string]string, meta *broker.Meta) {
	meta.Attempt = max(1, remote.Number(all[protocol.HeaderAttempt]))
	meta.Generation = remote.Number(all[protocol.HeaderGeneration])
	meta.Vanished, meta.Incomplete = remote.Number(all[headerVanished]), remote.Number(all[headerIncomplete])
	meta.Due, meta.FirstFailure, meta.LastFailure = remote.When(all[headerDue]), remote.When(all[headerFirst]), remote.When(all[headerLast])
	meta.Reason = protocol.Reason(all[headerReason])
	meta.Error, meta.Source, meta.Spans = all[headerError], all[headerSource], all[headerSpans]
}

// stranger reads what a program sent that knows the broker and not the mesh.
func stranger(f *frame.Frame, all map[string]string, m *broker.Message) {
	m.ID = strangersID(f, all)
	m.PublishedAt = time.Now().UnixNano()
	if ms, err := strconv.ParseInt(all["timestamp"], 10, 64); err == nil && ms > 0 {
		m.PublishedAt = ms * int64(time.Millisecond)
	}
	if n := remote.Number(all[headerPriority]); n != ordinaryPriority && n <= highestPriority {
		m.Priority = uint8(n)
	}
	m.Headers = userHeaders(all, false)
	for from, to := range map[string]string{frame.ContentType: "Content-Type", "correlation-id": protocol.HeaderCorrelation} {
		if value := all[from]; value != "" && m.Headers[to] == nil && remote.IsCarried(to, value) {
			if m.Headers == nil {
				m.Headers = make(map[string][]string)
			}
			m.Headers[to] = []string{value}
		}
	}
	protocol.CleanTrace(m.Headers)
}

// strangersID names a message whose publisher did not: by the broker's number, of
// which it has given no other message of this queue, and by when it came.
func strangersID(f *frame.Frame, all map[string]string) protocol.MessageID {
	text := fmt.Appendf(nil, "%s\x00%s\x00%s\x00", placeOf(f), all["timestamp"], f.Header.Get(frame.Destination))
	return remote.StrangersID(append(text, f.Body...))
}

// userHeaders are those of a message that are its publisher's.
func userHeaders(all map[string]string, trusted bool) map[string][]string {
	var own map[string][]string
	for name, value := range all {
		if !remote.IsPublishers(name, value, trusted) || !trusted && ofFrame[strings.ToLower(name)] {
			continue
		}
		if own == nil {
			own = make(map[string][]string)
		}
		own[name] = []string{value}
	}
	return own
}
