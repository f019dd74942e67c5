package books

import (
	"context"
	"encoding/hex"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// maxSearches of logs are under way at once in a service; more wait.
const maxSearches = 2

// Trails answers for what a service's log has of messages. The zero value
// cannot be used.
type Trails struct {
	service string
	conn    *nats.Conn
	free    chan struct{}
}

// NewTrails searches the log of a service on conn.
func NewTrails(conn *nats.Conn, service string) *Trails {
	return &Trails{service: service, conn: conn, free: make(chan struct{}, maxSearches)}
}

// Find reads the log. An id that no message can have has no trail.
func (t *Trails) Find(ctx context.Context, q protocol.TrailRequest) (protocol.TrailReply, error) {
	reply := protocol.TrailReply{Service: t.service, Trails: []protocol.Trail{}}
	id, err := uuid.Parse(q.MessageID)
	if err != nil || id == uuid.Nil {
		return reply, nil
	}
	select {
	case t.free <- struct{}{}:
		defer func() { <-t.free }()
	case <-ctx.Done():
		return reply, ctx.Err()
	}
	found, since, err := ledger.Search(ctx, t.conn, t.service, id)
	reply.Since = timeOf(since)
	for _, one := range found {
		reply.Trails = append(reply.Trails, TrailOf(one))
	}
	if err == nil {
		reply.LeftOut = leftOut(ctx, t.conn, found)
	}
	return reply, err
}

func timeOf(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns).UTC()
}

// TrailOf is a trail as others are told of it.
func TrailOf(t *ledger.Trail) protocol.Trail {
	m, meta := t.Message, &t.Meta
	told := protocol.Trail{
		Ledger: t.Ledger, Key: uint64(t.Key), Queue: meta.Queue, PublishedAt: timeOf(m.PublishedAt), Publisher: protocol.PublisherName(m.Publisher), SizeBytes: len(m.Body),
		Group: m.Group, Priority: m.Priority, Attempt: meta.Attempt, Generation: meta.Generation,
		Vanished: meta.Vanished, Incomplete: meta.Incomplete, Due: timeOf(meta.Due), LastFailure: timeOf(meta.LastFailure),
		Reason: meta.Reason, Error: meta.Error, Subscription: meta.Source,
		AcceptedAt: timeOf(t.Accepted), Dest: t.Dest, DecidedAt: timeOf(t.Decided), EndedAt: timeOf(t.Ended),
	}
	if t.How != 0 {
		told.How = t.How.String()
		told.Worker, told.WorkerID, told.TookMs = t.By.Name, t.By.ID, t.Took.Milliseconds()
	}
	if parent := m.Headers[protocol.HeaderTraceparent]; len(parent) > 0 {
		told.Traceparent = parent[0]
	}
	events, leftOut := ledger.StoryOf(m, meta)
	told.LeftOut, told.Events = leftOut, make([]protocol.StoryEvent, 0, len(events))
	for i := range events {
		told.Events = append(told.Events, eventOf(&events[i]))
	}
	return told
}

var eventKinds = map[ledger.EventKind]string{
	ledger.Attempted: protocol.EventAttempt, ledger.Redrove: protocol.EventRedriven,
	ledger.Released: protocol.EventReleased, ledger.FollowedIt: protocol.EventFollowed,
}

func eventOf(e *ledger.Event) protocol.StoryEvent {
	told := protocol.StoryEvent{
		Kind: eventKinds[e.Kind], At: timeOf(e.At), Generation: e.Generation, Attempt: e.Attempt, Outcome: e.Outcome,
		TookMs: time.Duration(e.Took).Milliseconds(), Worker: e.Worker, WorkerID: e.WorkerID, Subscription: e.Subscription,
		Error: e.Error, Due: timeOf(e.Due), By: e.By,
	}
	const traceID, spanID = 16, 8
	if len(e.Trace) >= traceID+spanID {
		told.TraceID, told.SpanID = hex.EncodeToString(e.Trace[:traceID]), hex.EncodeToString(e.Trace[traceID:traceID+spanID])
	}
	return told
}
