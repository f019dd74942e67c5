package remote

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker"
)

// HeaderMore has, as JSON with base64 values, what a broker of texts would not carry as
// it is under its own name.
const HeaderMore = "Waybill-Headers"

// TimeLayout is ISO 8601 with the zone.
const TimeLayout = "2006-01-02T15:04:05.000000000-07:00"

// Texts are the headers of a message on its way to a broker that takes texts for them.
type Texts struct {
	// Put adds one to the message.
	Put func(name, value string)
	// Carries says whether it arrives as it is.
	Carries func(name, value string) bool

	more map[string][]byte
}

// Add adds a header, under its own name if it arrives as it is.
func (t *Texts) Add(name, value string) {
	if t.Carries(name, value) {
		t.Put(name, value)
		return
	}
	if t.more == nil {
		t.more = make(map[string][]byte)
	}
	t.more[name] = []byte(value)
}

// Mesh adds what the mesh says of the message.
func (t *Texts) Mesh(w *Writing) {
	m, meta := w.Message, w.Meta
	t.Put(protocol.HeaderMessageID, m.ID.String())
	t.Put(protocol.HeaderAttempt, strconv.FormatUint(uint64(meta.Attempt), 10))
	for _, n := range []struct {
		name  string
		value uint32
	}{
		{protocol.HeaderGeneration, meta.Generation}, {HeaderVanished, meta.Vanished}, {HeaderIncomplete, meta.Incomplete},
		{HeaderCopy, w.Copy}, {protocol.HeaderPriority, uint32(m.Priority)},
	} {
		if n.value != 0 {
			t.Put(n.name, strconv.FormatUint(uint64(n.value), 10))
		}
	}
	for _, x := range []struct {
		name string
		at   int64
	}{{HeaderPublished, m.PublishedAt}, {HeaderDue, meta.Due}, {HeaderFirst, meta.FirstFailure}, {HeaderLast, meta.LastFailure}} {
		if x.at != 0 {
			t.Put(x.name, time.Unix(0, x.at).UTC().Format(TimeLayout))
		}
	}
	queue := ""
	if w.Kind == Dead {
		queue = w.Queue
	}
	for _, x := range []struct{ name, value string }{
		{HeaderReason, string(meta.Reason)}, {HeaderError, meta.Error}, {HeaderSource, meta.Source}, {HeaderSpans, meta.Spans},
		{protocol.HeaderGroup, m.Group}, {HeaderStory, string(ledger.JoinStories(m.Story, meta.Story))}, {HeaderQueue, queue},
	} {
		if x.value != "" {
			t.Add(x.name, x.value)
		}
	}
}

// End adds what does not go under its own name.
func (t *Texts) End() error {
	if t.more == nil {
		return nil
	}
	text, err := json.Marshal(t.more)
	t.Put(HeaderMore, string(text))
	return err
}

// Read reads the mesh's own message from the texts that are its headers. False: it is
// none, and of it the first attempt is meant whatever it says.
func (d *Delivery) Read(all map[string]string) bool {
	m, meta := d.Message, &d.Meta
	meta.Attempt = 1
	id, err := uuid.Parse(all[protocol.HeaderMessageID])
	published := When(all[HeaderPublished])
	if d.Own = err == nil && published != 0; !d.Own {
		return false
	}
	readMore(all)
	m.ID, m.PublishedAt = id, published
	m.Group, m.Story = all[protocol.HeaderGroup], []byte(all[HeaderStory])
	m.Priority = uint8(min(Number(all[protocol.HeaderPriority]), 255))
	m.Headers = Publishers(all, true)
	d.Copy = Number(all[HeaderCopy])
	meta.Attempt = max(1, Number(all[protocol.HeaderAttempt]))
	meta.Generation = Number(all[protocol.HeaderGeneration])
	meta.Vanished, meta.Incomplete = Number(all[HeaderVanished]), Number(all[HeaderIncomplete])
	meta.Due, meta.FirstFailure, meta.LastFailure = When(all[HeaderDue]), When(all[HeaderFirst]), When(all[HeaderLast])
	meta.Reason = protocol.Reason(all[HeaderReason])
	meta.Error, meta.Source, meta.Spans = all[HeaderError], all[HeaderSource], all[HeaderSpans]
	return true
}

// readMore adds what does not go under its own name.
func readMore(all map[string]string) {
	var more map[string][]byte
	if text := all[HeaderMore]; text == "" || json.Unmarshal([]byte(text), &more) != nil {
		return
	}
	for name, value := range more {
		all[name] = string(value)
	}
}

// Publishers are those of a message's headers that are its publisher's: of one of the
// mesh's own, or of a stranger's.
func Publishers(all map[string]string, own bool) map[string][]string {
	var of map[string][]string
	for name, value := range all {
		if !IsPublishers(name, value, own) {
			continue
		}
		if of == nil {
			of = make(map[string][]string)
		}
		of[name] = []string{value}
	}
	return of
}

// AddHeader adds a header to a message that may have none.
func AddHeader(m *broker.Message, name, value string) {
	if m.Headers == nil {
		m.Headers = make(map[string][]string)
	}
	m.Headers[name] = []string{value}
}
