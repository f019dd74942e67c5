package router

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/trace"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/filter"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
	"github.com/waybill-mq/waybill/pkg/tracing"
	"github.com/waybill-mq/waybill/services/router/broker"
)

// maxBacklog is how many bytes a lane lets wait for its log before publishes
// to it are refused.
const maxBacklog = 64 << 20

// publicationBytes is about what a publish takes beside its body.
const publicationBytes = 512

var (
	errMoving   = protocol.Errorf(protocol.CodeUnavailable, "the queue's lane is moving to another router: publish again")
	errOverload = protocol.Errorf(protocol.CodeUnavailable, "the queue's lane has %d MiB to write already: publish again a little later", maxBacklog>>20)
	errFull     = protocol.Errorf(protocol.CodeUnavailable, "NATS has no room for more messages: give its disk room, start it again if it does not notice, and publish again")
	errDraining = protocol.Errorf(protocol.CodeUnavailable, "this router is shutting down: publish again")
)

// publication is a publish on its way into the log.
type publication struct {
	message ledger.Message
	route   *route
	to      []*queue // of a topic, once it is staged
	parts   []part   // of it that are still to be stored elsewhere
	leftOut []*queue // whose filters do not want it
	dedup   string
	due     int64 // ns since the epoch; 0: at once
	reply   string
	size    int64        // of headers and body
	by      broker.Store // that took it, of a topic the first; nil: nothing was stored
	at      broker.Store // that is taking it
	span    trace.Span   // of the publish; nil: it came with one, or there is none

	// Of a job:
	*jobHeaders
	called  bool   // by protocol.FunctionEnqueue, to be answered with
	receipt string // empty: the message's id
}

// route is where a publish subject leads.
type route struct {
	queue string // or
	topic string
	named string // of a named queue; queue is its name in the mesh
	slot  *slot
	err   error // of a subject that leads nowhere

	known *queue         // the lane's own
	at    *tracing.Place // made when it is first asked for
}

// ingress checks publishes as they arrive on one subscription; what it
// remembers is that subscription's alone.
type ingress struct {
	s       *Service
	prefix  string
	verb    string // that a lane's owner takes them by
	resolve func(rest string) *route
	routes  map[string]*route // by what follows prefix
	passOn  bool              // to the lane's owner, if that is another router

	document *filter.Document // of jobs alone: their data
}

// maxRoutes bounds what an ingress remembers.
const maxRoutes = 1 << 16

func (s *Service) queueIngress(prefix string, passOn bool) *ingress {
	return &ingress{s: s, prefix: prefix, verb: verbQueue, resolve: s.resolveQueue, passOn: passOn, routes: make(map[string]*route)}
}

func (s *Service) topicIngress(prefix string, passOn bool) *ingress {
	return &ingress{s: s, prefix: prefix, verb: verbTopic, resolve: s.resolveTopic, passOn: passOn, routes: make(map[string]*route)}
}

// publish takes one publish: it refuses it, passes it on, or gives it to its
// lane.
func (in *ingress) publish(m *nats.Msg) {
	if err := in.admit(m); err != nil {
		in.s.refuse(m.Reply, err)
	}
}

func (in *ingress) admit(m *nats.Msg) error {
	r := in.route(m.Subject[len(in.prefix):])
	if r.err != nil {
		return r.err
	}
	if in.s.draining.Load() {
		return errDraining
	}
	o := r.slot.current.Load()
	if o == nil {
		return in.pass(r.slot, m)
	}
	p := &publication{route: r, reply: m.Reply}
	if r.named != "" {
		if err := p.job(m.Header); err != nil {
			return err
		}
	}
	if err := p.fill(m, in.s.maxPayload); err != nil {
		return err
	}
	return in.accept(o, p)
}

// accept gives a publish to its lane.
func (in *ingress) accept(o *openLane, p *publication) error {
	if p.route.named != "" {
		config, err := in.s.definitions.of(p.route.named)
		if err == nil {
			err = p.order(config, in.document)
		}
		if err != nil {
			return err
		}
	}
	p.trace(in.s.tracer)
	p.weigh()
	if err := o.take(p); err != nil {
		tracing.EndPublish(p.span, "", err)
		return err
	}
	return nil
}

// take gives the lane a publish, unless it has too many already.
func (o *openLane) take(p *publication) error {
	if o.running.Full() {
		return errFull
	}
	size := p.size + publicationBytes
	if int64(o.running.Backlog())+o.lane.queued.Add(size) > maxBacklog {
		o.lane.queued.Add(-size)
		return errOverload
	}
	if !o.running.Send(p) {
		o.lane.queued.Add(-size)
		return errMoving
	}
	return nil
}

// route finds where a subject leads.
func (in *ingress) route(rest string) *route {
	r := in.routes[rest]
	if r == nil {
		rest = strings.Clone(rest) // what it leads to outlives the message
		r = in.resolve(rest)
		if len(in.routes) >= maxRoutes {
			clear(in.routes)
		}
		if r.err == nil {
			in.routes[rest] = r
		}
	}
	return r
}

// resolveQueue checks the names in what follows SubjectPublishQueue.
func (s *Service) resolveQueue(rest string) *route {
	execution, name, found := strings.Cut(rest, ".")
	if !found {
		return &route{err: protocol.Errorf(protocol.CodeInvalidName, "the subject names no route: publish to %s<execution>.<route>", protocol.SubjectPublishQueue)}
	}
	if err := cmp.Or(scope.CheckExecution(execution), scope.CheckReserved(execution)); err != nil {
		return &route{err: err}
	}
	name, err := scope.Route(execution, name)
	if err != nil {
		return &route{err: err}
	}
	queue := scope.ScopedName(execution, name)
	return &route{queue: queue, slot: s.slots()[ledger.Of(queue, len(s.slots()))]}
}

// pass gives a publish to the router that owns the lane; it answers the
// publisher itself. One that came from another router is not passed on again.
func (in *ingress) pass(at *slot, m *nats.Msg) error {
	if !in.passOn || !at.passed.add(m.Reply) {
		return errMoving
	}
	forward := nats.Msg{
		Subject: at.subject(in.verb) + "." + m.Subject[len(in.prefix):],
		Reply:   m.Reply, Header: m.Header, Data: m.Data,
	}
	if err := in.s.bulk.PublishMsg(&forward); err != nil {
		return protocol.Errorf(protocol.CodeUnavailable, "the publish could not be passed on: %v", err)
	}
	return nil
}

// fill checks m and makes a message of it.
func (p *publication) fill(m *nats.Msg, maxPayload int) error {
	if len(m.Data) > maxPayload {
		return protocol.Errorf(protocol.CodePayloadTooLarge, "the payload has %d bytes, more than %d: send a reference to it", len(m.Data), maxPayload)
	}
	now := time.Now()
	if len(m.Header) > 0 {
		if err := p.headers(m.Header, now); err != nil {
			return err
		}
	}
	if p.jobHeaders != nil {
		p.message.Headers = p.keep(p.message.Headers)
	}
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	p.message.ID, p.message.Body, p.message.PublishedAt = id, m.Data, now.UnixNano()
	p.message.Publisher = protocol.PublisherOf(m.Reply)
	return nil
}

// weigh says what the message takes, with all its headers.
func (p *publication) weigh() {
	p.size = int64(len(p.message.Body))
	for name, values := range p.message.Headers {
		p.size += int64(len(name) + len(values[0]))
	}
}

// headers checks and takes the publisher's headers; the deduplication id, the
// schedule and the order are for the mesh alone.
func (p *publication) headers(h nats.Header, now time.Time) error {
	if err := protocol.CheckHeaders(h); err != nil {
		return err
	}
	due, err := protocol.TakeSchedule(h, now)
	if err != nil {
		return err
	}
	if p.message.Group, p.message.Priority, err = protocol.TakeOrder(h); err != nil {
		return err
	}
	if !due.IsZero() {
		p.due = due.UnixNano()
	}
	for name, values := range h {
		if strings.EqualFold(name, protocol.HeaderDedup) {
			if p.dedup != "" {
				return protocol.Errorf(protocol.CodeInvalidArgs, "%s is given twice: send one", protocol.HeaderDedup)
			}
			if p.dedup = values[0]; p.dedup == "" || len(p.dedup) > protocol.MaxDedupID {
				return protocol.Errorf(protocol.CodeInvalidArgs, "%s has %d bytes: it takes 1 to %d", protocol.HeaderDedup, len(p.dedup), protocol.MaxDedupID)
			}
			delete(h, name)
		}
	}
	protocol.CleanTrace(h)
	if len(h) > 0 {
		p.message.Headers = h
	}
	return nil
}

// apply stages the publish, or refuses it.
func (p *publication) apply(l *lane) {
	l.queued.Add(-p.size - publicationBytes)
	if err := l.stage(p); err != nil {
		p.refuse(l.s, err)
	}
}

// refuse answers the publish with an error.
func (p *publication) refuse(s *Service, err error) {
	tracing.EndPublish(p.span, "", err)
	if p.called {
		s.refused.Add(1)
		s.refuseCall(p.reply, err)
		return
	}
	s.refuse(p.reply, err)
}

func (l *lane) stage(p *publication) error {
	if l.draining {
		return errDraining
	}
	if p.route.topic != "" {
		return l.stageTopic(p)
	}
	if err := l.closed.Refuses(p.route.queue); err != nil {
		return err
	}
	q := l.queueAt(p.route)
	if err := l.mustBeDefined(q); err != nil {
		return err
	}
	if err := cmp.Or(q.grants(p), l.admits(q, p.size)); err != nil {
		return err
	}
	l.prioritize(p, q)
	out := broker.Publish{Message: &p.message, Queue: q.name, Due: p.due, Spans: p.spans(l.s.tracer), Dedup: p.dedup, Tag: p}
	p.by = l.remembering(out, q.storeOfPublish(p.due))
	p.at = p.by
	if err := p.by.Publish(out); err != nil {
		return err
	}
	l.staging(q, 1, p.size)
	l.wrote(p.at, 1)
	return nil
}

// staging keeps account of publishes on their way into the log: limits count
// them.
func (l *lane) staging(q *queue, messages, bytes int64) {
	q.staged += messages
	q.stagedBytes += bytes
	l.entries.Add(messages)
	l.bytes.Add(bytes)
	l.stagedEntries += messages
	l.stagedBytes += bytes
}

// Stored answers a publish that is in the log.
func (l *lane) Stored(tag any, r broker.Receipt) {
	p, ok := tag.(*publication)
	if !ok {
		return
	}
	l.wrote(p.at, -1)
	if p.route.topic != "" {
		l.storedPart(p, r)
		return
	}
	q := l.queueAt(p.route)
	l.staging(q, -1, -p.size)
	l.landed(p, q)
	if r.Duplicate {
		l.count(q, ledger.Deduplicated)
	}
	l.acknowledge(p, r, len(q.consumers))
}

// Refused answers a publish that a broker did not take.
func (l *lane) Refused(tag any, err error) {
	p, ok := tag.(*publication)
	if !ok {
		return
	}
	l.wrote(p.at, -1)
	if p.route.topic != "" {
		l.endTopic(p)
	} else {
		q := l.queueAt(p.route)
		l.staging(q, -1, -p.size)
		l.landed(p, q)
	}
	p.refuse(l.s, err)
}

// acknowledge answers a publish.
func (l *lane) acknowledge(p *publication, r broker.Receipt, listeners int) {
	if p.span != nil {
		tracing.EndPublish(p.span, uuid.UUID(r.ID).String(), nil)
	}
	if p.reply == "" {
		return
	}
	if p.called {
		l.answerCall(p, uuid.UUID(r.ID))
		return
	}
	l.answer = l.wordsOf(p).appendAck(l.answer[:0], r, listeners)
	if err := l.s.bulk.Publish(p.reply, l.answer); err != nil {
		l.s.log.Debug("a publish could not be answered", "error", err)
	}
}

// appendAck appends a protocol.PublishAck. It is written by hand: there is one
// for each message.
func (w *words) appendAck(b []byte, r broker.Receipt, listeners int) []byte {
	b = append(b, w.stream...)
	b = strconv.AppendUint(b, r.Seq, 10)
	if r.Duplicate {
		b = append(b, `,"duplicate":true`...)
	}
	b = append(b, `,"message_id":"`...)
	b = append(b, uuid.UUID(r.ID).String()...)
	b = append(b, w.broker...)
	b = strconv.AppendInt(b, int64(listeners), 10)
	return append(b, '}')
}

// refuse answers a publish with an error; nothing of it is stored.
func (s *Service) refuse(reply string, err error) {
	s.refused.Add(1)
	if reply == "" {
		return
	}
	if err := s.bulk.Publish(reply, protocol.MarshalErrorBody(protocol.AsError(err))); err != nil {
		s.log.Debug("a publish could not be refused", "error", err)
	}
}
