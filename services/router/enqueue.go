package router

import (
	"bytes"
	"cmp"
	"encoding/json"
	"math"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/filter"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

// A job is published like any other message, with its function in a header, or
// in one JSON object by a call of protocol.FunctionEnqueue. Both become a
// publication of the queue's lane.

// jobIngress takes what is published on SubjectPublishJob.
func (s *Service) jobIngress(prefix string, passOn bool) *ingress {
	return &ingress{
		s: s, prefix: prefix, verb: verbJob, resolve: s.resolveJob, passOn: passOn, routes: make(map[string]*route),
		document: new(filter.Document),
	}
}

// resolveJob checks the name in what follows SubjectPublishJob.
func (s *Service) resolveJob(rest string) *route {
	if err := cmp.Or(scope.CheckQueue(rest), scope.CheckReserved(rest)); err != nil {
		return &route{err: err}
	}
	queue := scope.JobsQueue(rest)
	return &route{queue: queue, named: rest, slot: s.slotOf(queue)}
}

// job takes the headers of a job out of those of its publish, which must not have
// such.
func (p *publication) job(h nats.Header) (err error) {
	j := &jobHeaders{}
	for _, one := range []struct {
		name string
		to   *[]string
	}{{protocol.HeaderFunction, &j.function}, {protocol.HeaderNamespace, &j.namespace}, {protocol.HeaderReceipt, &j.receipt}} {
		*one.to = h[one.name]
		if len(*one.to) > 1 {
			return protocol.Errorf(protocol.CodeInvalidArgs, "%s is given twice: send one", one.name)
		}
		delete(h, one.name)
	}
	if err := j.check(); err != nil {
		return err
	}
	p.jobHeaders = j
	return nil
}

// jobHeaders are those of a job, each as it is kept with the message.
type jobHeaders struct{ function, namespace, receipt []string }

func (j *jobHeaders) check() error {
	if len(j.function) == 0 {
		return protocol.Errorf(protocol.CodeInvalidArgs, "the job names no function: set the header %s", protocol.HeaderFunction)
	}
	if err := scope.CheckFunction(j.function[0]); err != nil {
		return err
	}
	if len(j.namespace) > 0 {
		if err := scope.CheckNamespace(j.namespace[0]); err != nil {
			return err
		}
	}
	if len(j.receipt) > 0 {
		return checkReceipt(j.receipt[0])
	}
	return nil
}

func checkReceipt(receipt string) error {
	if receipt == "" || len(receipt) > protocol.MaxReceipt || strings.ContainsAny(receipt, "\r\n\x00") || strings.TrimSpace(receipt) != receipt {
		return protocol.Errorf(protocol.CodeInvalidArgs, "the receipt of a job is %.64q: it is 1 to %d bytes on one line, without space around it", receipt, protocol.MaxReceipt)
	}
	return nil
}

// keep puts them back where they belong.
func (j *jobHeaders) keep(h map[string][]string) map[string][]string {
	if h == nil {
		h = make(map[string][]string, 3)
	}
	h[protocol.HeaderFunction] = j.function
	if len(j.namespace) > 0 {
		h[protocol.HeaderNamespace] = j.namespace
	}
	if len(j.receipt) > 0 {
		h[protocol.HeaderReceipt] = j.receipt
	}
	return h
}

// order gives a job its place in its queue, as the queue's definition says.
func (p *publication) order(d *protocol.QueueDefinition, document *filter.Document) error {
	if d.Type != protocol.TypeFIFO && d.PriorityField == "" {
		return nil
	}
	document.Input(p.message.Body)
	if d.Type == protocol.TypeFIFO {
		group := document.Member(d.MessageGroupField)
		if group == "" || len(group) > protocol.MaxGroup {
			return protocol.Errorf(protocol.CodeInvalidArgs, "the data of a job for the queue %s has no %s to be grouped by: it is a JSON object in which that is a non-empty string of at most %d bytes, or a number",
				p.route.named, d.MessageGroupField, protocol.MaxGroup)
		}
		p.message.Group = group
	}
	if d.PriorityField != "" {
		p.message.Priority = priorityOf(document.Member(d.PriorityField))
	}
	return nil
}

// priorityOf is a whole number from 0 on, what is above 255 counting as that; 0
// for anything else.
func priorityOf(text string) uint8 {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || n < 0 || n != math.Trunc(n) {
		return 0
	}
	return uint8(min(n, math.MaxUint8))
}

// enqueueIngress takes calls of protocol.FunctionEnqueue.
type enqueueIngress struct {
	*ingress
}

func (s *Service) enqueueIngress(passOn bool) *enqueueIngress {
	in := s.jobIngress("", passOn)
	in.verb = verbEnqueue
	return &enqueueIngress{in}
}

// enqueue takes one call: it refuses it, passes it on, or gives it to its lane.
func (in *enqueueIngress) enqueue(m *nats.Msg) {
	p := &publication{reply: m.Reply, called: true}
	if err := in.take(p, m); err != nil {
		p.refuse(in.s, err)
	}
}

func (in *enqueueIngress) take(p *publication, m *nats.Msg) error {
	var q protocol.EnqueueRequest
	decoder := json.NewDecoder(bytes.NewReader(m.Data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&q); err != nil {
		return protocol.Errorf(protocol.CodeInvalidArgs, "the request is not what %s takes (queue, function_id, data, messageReceiptId, namespace, traceparent, baggage): %v", protocol.FunctionEnqueue, err)
	}
	if strings.TrimSpace(q.Queue) == "" || strings.TrimSpace(q.FunctionID) == "" {
		return protocol.Errorf(protocol.CodeInvalidArgs, "a job needs a queue and a function_id: one of them is missing")
	}
	p.route = in.route(q.Queue)
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
	if err := p.enqueued(&q, m, in.s.maxPayload); err != nil {
		return err
	}
	return in.accept(o, p)
}

// passCall passes a call on as it came.
func (in *enqueueIngress) passCall(at *slot, m *nats.Msg) error {
	if !in.passOn || !at.passed.add(m.Reply) {
		return errMoving
	}
	forward := nats.Msg{Subject: at.subject(verbEnqueue), Reply: m.Reply, Header: m.Header, Data: m.Data}
	if err := in.s.bulk.PublishMsg(&forward); err != nil {
		return protocol.Errorf(protocol.CodeUnavailable, "the job could not be passed on: %v", err)
	}
	return nil
}

// enqueued makes a message of a call. A trace in the body is the job's, rather
// than one in the call's headers.
func (p *publication) enqueued(q *protocol.EnqueueRequest, m *nats.Msg, maxPayload int) error {
	j := &jobHeaders{function: []string{q.FunctionID}}
	if q.Namespace != "" {
		j.namespace = []string{q.Namespace}
	}
	if q.ReceiptID != "" {
		p.receipt, j.receipt = q.ReceiptID, []string{q.ReceiptID}
	}
	if err := j.check(); err != nil {
		return err
	}
	p.jobHeaders = j
	if len(q.Data) == 0 {
		q.Data = json.RawMessage("null")
	}
	header := make(nats.Header, 4)
	if id := m.Header.Get(protocol.HeaderDedup); id != "" {
		header[protocol.HeaderDedup] = []string{id}
	}
	for _, name := range []string{protocol.HeaderTraceparent, protocol.HeaderTracestate, protocol.HeaderBaggage} {
		if v := m.Header[name]; len(v) == 1 && q.Traceparent+q.Baggage == "" {
			header[name] = v
		}
	}
	if q.Traceparent != "" {
		header[protocol.HeaderTraceparent] = []string{q.Traceparent}
	}
	if q.Baggage != "" {
		header[protocol.HeaderBaggage] = []string{q.Baggage}
	}
	return p.fill(&nats.Msg{Header: header, Data: q.Data}, maxPayload)
}

// answerCall answers a call whose job is stored.
func (l *lane) answerCall(p *publication, id [16]byte) {
	body, err := json.Marshal(protocol.EnqueueReply{ReceiptID: cmp.Or(p.receipt, uuid.UUID(id).String())})
	if err == nil {
		err = l.s.bulk.Publish(p.reply, body)
	}
	if err != nil {
		l.s.log.Debug("who enqueued a job could not be answered", "error", err)
	}
}

// refuseCall answers a call with an error, as functions do.
func (s *Service) refuseCall(reply string, err error) {
	answer := mesh.ErrorAnswer(err)
	answer.Subject = reply
	if err := s.bulk.PublishMsg(answer); err != nil {
		s.log.Debug("who enqueued a job could not be refused", "error", err)
	}
}

// mustBeDefined refuses a job for a queue that is not defined (any more). The
// lane may not have been told yet.
func (l *lane) mustBeDefined(q *queue) error {
	if q.jobs == nil || q.jobs.definition != nil {
		return nil
	}
	config, err := l.s.definitions.of(q.jobs.name)
	if err == nil {
		l.define(q.jobs.name, config)
	}
	return err
}
