package registry

import (
	"context"
	"encoding/json"
	"unicode/utf8"

	"github.com/waybill-mq/waybill/internal/books"
	"github.com/waybill-mq/waybill/internal/operate"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

const (
	deadMessagesPage = 50
	// shortError is how much of an error there is room for when there is none for
	// the payload.
	shortError = 128
	// askedByFunction stands in the story of what is redriven.
	askedByFunction = "function"
)

// sourcesOf are what a function is to look at.
func sourcesOf(r *protocol.TargetRequest) (name string, sources []operate.Source, err error) {
	if name, err = r.Target(); err != nil {
		return name, nil, err
	}
	sources, err = operate.Sources(name)
	return name, sources, err
}

func (s *Service) redriveTarget(ctx context.Context, q protocol.TargetRequest) (protocol.RedriveReply, error) {
	name, sources, err := sourcesOf(&q)
	if err != nil {
		return protocol.RedriveReply{}, err
	}
	reply, err := operate.ActOnLetters(ctx, s.nc, protocol.SubjectDeadRedrive, sources, protocol.DeadActRequest{By: askedByFunction})
	return protocol.RedriveReply{Queue: name, Redriven: reply.Count}, err
}

func (s *Service) redriveMessage(ctx context.Context, q protocol.MessageRequest) (protocol.MessageReply, error) {
	return s.actOnMessage(ctx, protocol.SubjectDeadRedrive, q)
}

func (s *Service) discardMessage(ctx context.Context, q protocol.MessageRequest) (protocol.MessageReply, error) {
	return s.actOnMessage(ctx, protocol.SubjectDeadDiscard, q)
}

// actOnMessage acts on the dead letters of a message that are those of what is
// named, and on no others of the same message.
func (s *Service) actOnMessage(ctx context.Context, subject string, q protocol.MessageRequest) (protocol.MessageReply, error) {
	name, sources, err := sourcesOf(&q.TargetRequest)
	if err == nil && q.MessageID == "" {
		err = protocol.Errorf(protocol.CodeInvalidArgs, "message_id is missing: give the id of the dead letter")
	}
	if err != nil {
		return protocol.MessageReply{}, err
	}
	reply, err := operate.ActOnLetters(ctx, s.nc, subject, sources, protocol.DeadActRequest{MessageID: q.MessageID, By: askedByFunction})
	return protocol.MessageReply{Queue: name, MessageID: q.MessageID, Redriven: reply.Count}, err
}

func (s *Service) deadMessages(ctx context.Context, q protocol.DeadMessagesRequest) ([]json.RawMessage, error) {
	_, sources, err := sourcesOf(&q.TargetRequest)
	if err != nil {
		return nil, err
	}
	if q.Offset < 0 || q.Limit < 0 || q.Limit > operate.MaxPage {
		return nil, protocol.Errorf(protocol.CodeInvalidArgs, "offset %d, limit %d: an offset is at least 0, a limit from 1 to %d", q.Offset, q.Limit, operate.MaxPage)
	}
	if q.Limit == 0 {
		q.Limit = deadMessagesPage
	}
	room := int(s.nc.MaxPayload() / 2)
	page, err := operate.DeadLetters(ctx, s.nc, operate.Letters{Sources: sources, Offset: q.Offset, Limit: q.Limit, Payloads: room})
	if err == nil {
		err = books.Unasked(page.Away)
	}
	if err != nil {
		return nil, err
	}
	return deadMessages(page.Letters, room)
}

// deadMessages are letters as the function answers them. What there is no room
// for is left out, and never a letter: a page that was cut short would be taken
// for the last.
func deadMessages(letters []protocol.DeadLetter, room int) ([]json.RawMessage, error) {
	all := make([]json.RawMessage, 0, len(letters))
	for i := range letters {
		letter := &letters[i]
		m := deadMessage(letter)
		m.Truncated = len(letter.Payload) < letter.SizeBytes
		text, err := json.Marshal(m)
		if err == nil && (m.Truncated || len(text) > room) {
			m.Payload, m.Truncated = json.RawMessage("null"), true
			m.Error = m.Error[:min(len(m.Error), shortError)]
			text, err = json.Marshal(m)
		}
		if err != nil {
			return nil, err
		}
		room -= len(text)
		all = append(all, text)
	}
	return all, nil
}

func deadMessage(letter *protocol.DeadLetter) protocol.DeadMessage {
	return protocol.DeadMessage{
		ID: letter.MessageID, Payload: payload(letter.Payload), Error: letter.Error,
		FailedAt: letter.LastFailure.UnixMilli(), Retries: letter.Attempts, Size: letter.SizeBytes,
	}
}

// payload is a payload as JSON has it.
func payload(b []byte) json.RawMessage {
	var text []byte
	var err error
	switch {
	case json.Valid(b):
		return b
	case utf8.Valid(b):
		text, err = json.Marshal(string(b))
	default:
		text, err = json.Marshal(b)
	}
	if err != nil {
		return json.RawMessage("null")
	}
	return text
}
