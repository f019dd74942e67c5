package router

import (
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
func (p *publication) job(h nats.Header) error {
	p.jobHeaders = &jobHeaders{
		function: take(h, protocol.HeaderFunction), namespace: take(h, protocol.HeaderNamespace), receipt: take(h, protocol.HeaderReceipt),
	}
	return p.check()
}

func take(h nats.Header, name string) []string {
	values := h[name]
	delete(h, name)
	return values
}

// jobHeaders are those of a job, each as it is kept with the message.
type jobHeaders struct{ function, namespace, receipt []string }

func (j *jobHeaders) check() error {
	if max(len(j.function), len(j.namespace), len(j.receipt)) > 1 {
		return protocol.Errorf(protocol.CodeInvalidArgs, "%s, %s or %s is given twice: send one", protocol.HeaderFunction, protocol.HeaderNamespace, protocol.HeaderReceipt)
	}
	if len(j.function) == 0 {
		return protocol.Errorf(protocol.CodeInvalidArgs, "the job names no function: set the header %s", protocol.HeaderFunction)
	}
	if err := scope.CheckFunction(j.function[0]); err != nil {
		return err
	}
	f := protocol.FunctionSpec{Namespace: protocol.DefaultNamespace, ID: j.function[0]}
	if len(j.namespace) > 0 {
		f.Namespace = j.namespace[0]
		if err := scope.CheckNamespace(f.Namespace); err != nil {
			return err
		}
	}
	if f.IsOwn() {
		return protocol.Errorf(protocol.CodeForbidden, "%s is the mesh's own function, and takes no jobs: call it", f.ID)
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

// order gives a job its place in its queue, as the queue's definition says, if
// its data is what a function takes; none is null.
func (p *publication) order(d *protocol.QueueDefinition, document *filter.Document) error {
	if len(p.message.Body) == 0 {
		p.message.Body = []byte("null")
	}
	if !document.Input(p.message.Body).IsJSON() {
		return protocol.Errorf(protocol.CodeInvalidArgs, "the data of a job for the queue %s is no JSON: it is one JSON value in UTF-8, such as null", p.route.named)
	}
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

// readEnqueue reads a call of protocol.FunctionEnqueue.
func readEnqueue(m *nats.Msg) (request, error) {
	var q protocol.EnqueueRequest
	if err := mesh.ReadInput(protocol.FunctionEnqueue, m.Data, &q); err != nil {
		return request{}, err
	}
	if strings.TrimSpace(q.Queue) == "" || strings.TrimSpace(q.FunctionID) == "" {
		return request{}, protocol.Errorf(protocol.CodeInvalidArgs, "a job needs a queue and a function_id: one of them is missing")
	}
	return request{q.Queue, func(p *publication, maxPayload int) error { return p.enqueued(&q, m, maxPayload) }}, nil
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
	header := calledWith(m.Header, q.Traceparent+q.Baggage == "")
	if q.Traceparent != "" {
		header[protocol.HeaderTraceparent] = []string{q.Traceparent}
	}
	if q.Baggage != "" {
		header[protocol.HeaderBaggage] = []string{q.Baggage}
	}
	return p.fill(&nats.Msg{Header: header, Data: q.Data}, maxPayload)
}

// receiptOf is what a call that enqueued a job is answered with.
func (p *publication) receiptOf(id uuid.UUID) ([]byte, error) {
	return json.Marshal(protocol.EnqueueReply{ReceiptID: cmp.Or(p.receipt, id.String())})
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
