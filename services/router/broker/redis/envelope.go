//go:build !no_redis

package redis

import (
	"encoding/json"
	"errors"
	"time"
	"unicode/utf8"

	client "github.com/redis/go-redis/v9"

	"github.com/google/uuid"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker"
)

// channelOf is the channel of a topic.
func channelOf(topic string) string { return "topic:" + topic }

// envelope is what is published on a channel: JSON, so that any program can read
// it. The trace is in its headers.
type envelope struct {
	Waybill     int                `json:"waybill"` // its version
	ID          protocol.MessageID `json:"id"`
	Topic       string             `json:"topic"`
	PublishedAt int64              `json:"published_at"` // ns since the epoch
	Headers     map[string]string  `json:"headers,omitempty"`
	// Data is the payload if it is text, DataBase64 any other; of headers alike.
	Data          string            `json:"data,omitempty"`
	DataBase64    []byte            `json:"data_base64,omitempty"`
	HeadersBase64 map[string][]byte `json:"headers_base64,omitempty"`
	Priority      uint8             `json:"priority,omitempty"`
	Group         string            `json:"group,omitempty"`
	Publisher     string            `json:"publisher,omitempty"`
	Spans         []byte            `json:"spans,omitempty"` // broker.Meta.Spans
}

const envelopeVersion = 1

// encode is a message as it is published.
func encode(topic string, m *broker.Message, spans string) ([]byte, error) {
	e := envelope{
		Waybill: envelopeVersion, ID: m.ID, Topic: topic, PublishedAt: m.PublishedAt,
		Priority: m.Priority, Group: m.Group, Publisher: m.Publisher, Spans: []byte(spans),
	}
	if utf8.Valid(m.Body) {
		e.Data = string(m.Body)
	} else {
		e.DataBase64 = m.Body
	}
	for name, values := range m.Headers {
		e.header(name, values[0])
	}
	return json.Marshal(&e)
}

func (e *envelope) header(name, value string) {
	if utf8.ValidString(value) {
		if e.Headers == nil {
			e.Headers = make(map[string]string)
		}
		e.Headers[name] = value
		return
	}
	if e.HeadersBase64 == nil {
		e.HeadersBase64 = make(map[string][]byte)
	}
	e.HeadersBase64[name] = []byte(value)
}

// decode is what was published on a channel. What is no envelope is a program's
// that does not know the mesh: the whole of it is the payload.
func decode(payload string) (*broker.Message, broker.Meta, error) {
	var e envelope
	if json.Unmarshal([]byte(payload), &e) != nil || e.Waybill != envelopeVersion || e.ID == (protocol.MessageID{}) {
		return strange(payload)
	}
	m := &broker.Message{ID: e.ID, PublishedAt: e.PublishedAt, Priority: e.Priority, Group: e.Group, Publisher: e.Publisher, Body: e.DataBase64}
	if m.Body == nil {
		m.Body = []byte(e.Data)
	}
	for name, value := range e.Headers {
		e.HeadersBase64 = with(e.HeadersBase64, name, value)
	}
	for name, value := range e.HeadersBase64 {
		if m.Headers == nil {
			m.Headers = make(map[string][]string, len(e.HeadersBase64))
		}
		m.Headers[name] = []string{string(value)}
	}
	if protocol.CheckHeaders(m.Headers) != nil {
		return strange(payload)
	}
	return m, broker.Meta{Attempt: 1, Spans: string(e.Spans)}, nil
}

func with(all map[string][]byte, name, value string) map[string][]byte {
	if all == nil {
		all = make(map[string][]byte)
	}
	all[name] = []byte(value)
	return all
}

func strange(payload string) (*broker.Message, broker.Meta, error) {
	id, err := uuid.NewV7()
	return &broker.Message{ID: id, PublishedAt: time.Now().UnixNano(), Body: []byte(payload)}, broker.Meta{Attempt: 1}, err
}

// isRefusal says whether Redis itself has said no.
func isRefusal(err error) bool {
	_, said := errors.AsType[client.Error](err)
	return said
}
