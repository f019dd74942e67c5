package router

import (
	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

// The functions that publish are calls with a JSON object, and become
// publications as what is published does.

// request is a call that was read: what it is for, and how it becomes a
// publication.
type request struct {
	name string // of the queue or the topic
	fill func(p *publication, maxPayload int) error
}

// callIngress takes calls of one function.
type callIngress struct {
	*ingress
	read func(m *nats.Msg) (request, error)
}

func (s *Service) enqueueIngress(passOn bool) *callIngress {
	in := s.jobIngress("", passOn)
	in.verb = verbEnqueue
	return &callIngress{in, readEnqueue}
}

func (s *Service) dataIngress(passOn bool) *callIngress {
	in := s.topicIngress("", passOn)
	in.verb = verbData
	return &callIngress{in, readData}
}

// call takes one call: it refuses it, passes it on, or gives it to its lane.
func (in *callIngress) call(m *nats.Msg) {
	p := &publication{reply: m.Reply, called: true}
	if err := in.take(p, m); err != nil {
		p.refuse(in.s, err)
	}
}

func (in *callIngress) take(p *publication, m *nats.Msg) error {
	r, err := in.read(m)
	if err != nil {
		return err
	}
	p.route = in.route(r.name)
	if p.route.err != nil {
		return p.route.err
	}
	if in.s.draining.Load() {
		return errDraining
	}
	o := p.route.slot.current.Load()
	if o == nil {
		return in.passCall(p.route.slot, m)
	}
	if err := r.fill(p, in.s.maxPayload); err != nil {
		return err
	}
	return in.accept(o, p)
}

// passCall passes a call on as it came.
func (in *callIngress) passCall(at *slot, m *nats.Msg) error {
	if !in.passOn || !at.passed.add(m.Reply) {
		return errMoving
	}
	forward := nats.Msg{Subject: at.subject(in.verb), Reply: m.Reply, Header: m.Header, Data: m.Data}
	if err := in.s.bulk.PublishMsg(&forward); err != nil {
		return protocol.Errorf(protocol.CodeUnavailable, "the call could not be passed on: %v", err)
	}
	return nil
}

// readData reads a call of protocol.FunctionPublish.
func readData(m *nats.Msg) (request, error) {
	var q protocol.DataRequest
	if err := mesh.ReadInput(protocol.FunctionPublish, m.Data, &q); err != nil {
		return request{}, err
	}
	name, err := q.Target()
	if err == nil && q.Data == nil {
		err = protocol.Errorf(protocol.CodeInvalidArgs, "data is missing: give any JSON value, such as null")
	}
	if err == nil {
		name, err = scope.Topic(name)
	}
	return request{name, func(p *publication, maxPayload int) error {
		return p.fill(&nats.Msg{Header: calledWith(m.Header, true), Data: q.Data}, maxPayload)
	}}, err
}

// calledWith are the headers of a call that are its message's too: those of the
// deduplication, and with trace those of its trace.
func calledWith(h nats.Header, trace bool) nats.Header {
	header := make(nats.Header, 4)
	if id := h.Get(protocol.HeaderDedup); id != "" {
		header[protocol.HeaderDedup] = []string{id}
	}
	for _, name := range []string{protocol.HeaderTraceparent, protocol.HeaderTracestate, protocol.HeaderBaggage} {
		if v := h[name]; len(v) == 1 && trace {
			header[name] = v
		}
	}
	return header
}

// answerCall answers a call whose message is stored.
func (l *lane) answerCall(p *publication, id uuid.UUID) {
	body, err := []byte("null"), error(nil)
	if p.route.named != "" {
		body, err = p.receiptOf(id)
	}
	if err == nil {
		err = l.s.bulk.Publish(p.reply, body)
	}
	if err != nil {
		l.s.log.Debug("a call could not be answered", "error", err)
	}
}

// refuseCall answers a call with an error, as functions do.
func (s *Service) refuseCall(reply string, err error) {
	if reply == "" {
		return
	}
	answer := mesh.ErrorAnswer(err)
	answer.Subject = reply
	if err := s.bulk.PublishMsg(answer); err != nil {
		s.log.Debug("a call could not be refused", "error", err)
	}
}
