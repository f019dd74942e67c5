package brokertest

import (
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker"
)

// worker is a program that works, written from the protocol alone: it says
// what it wants, keeps itself alive, answers probes and claims, and replies to
// deliveries.
type worker struct {
	s    *suite
	nc   *nats.Conn
	id   string
	name string

	// deliveries arrive here.
	deliveries chan delivery

	mu       sync.Mutex
	revision uint64
	subs     map[string]bool // deliver subjects
	specs    []protocol.SubscriptionSpec
	serves   []protocol.DeclaredFunction // whose jobs it takes
	running  map[string]bool             // tokens
	finished map[string]*nats.Msg        // what was replied to a token first
	ids      map[string]string
	warnings []string
	afterMs  int64 // what it asks for when it fails, if it is not 0
	stopped  chan struct{}
	stop     func()
}

// delivery is one message to be handled.
type delivery struct {
	*nats.Msg
	w       *worker
	arrived time.Time
}

func (s *suite) worker(specs ...protocol.SubscriptionSpec) *worker {
	s.Helper()
	w := s.unregistered()
	w.hello(specs...)
	return w
}

// on is a subscription to a route of the test's execution that fails fast.
func (s *suite) on(route string) protocol.SubscriptionSpec {
	return s.fast([]protocol.SubscriptionSpec{{Ref: route, Execution: s.execution, Route: route, BackoffMs: 1}})[0]
}

// unregistered is a worker that has not said hello.
func (s *suite) unregistered() *worker {
	s.Helper()
	w := &worker{
		s: s, nc: s.connect(), id: nuid.Next(), name: s.Name(),
		deliveries: make(chan delivery, 4096),
		subs:       make(map[string]bool), running: make(map[string]bool), finished: make(map[string]*nats.Msg),
		ids:     make(map[string]string),
		stopped: make(chan struct{}),
	}
	w.stop = sync.OnceFunc(func() { close(w.stopped) })
	w.subscribe(protocol.WorkerSubject(w.id, protocol.VerbProbe), func(m *nats.Msg) { w.respond(m, nil) })
	w.subscribe(protocol.WorkerSubject(w.id, protocol.VerbClaims), w.claims)
	var beating sync.WaitGroup
	beating.Go(w.beat)
	s.Cleanup(func() {
		w.stop()
		beating.Wait()
	})
	return w
}

func (w *worker) subscribe(subject string, h nats.MsgHandler) {
	w.s.Helper()
	if _, err := w.nc.Subscribe(subject, h); err != nil {
		w.s.Fatalf("subscribing to %s: %v", subject, err)
	}
}

func (w *worker) respond(m *nats.Msg, answer []byte) {
	if err := m.Respond(answer); err != nil {
		w.s.Logf("answering: %v", err)
	}
}

// hello declares what the worker wants and subscribes to what it gets.
func (w *worker) hello(specs ...protocol.SubscriptionSpec) {
	w.s.Helper()
	w.mu.Lock()
	w.specs = w.paced(specs)
	w.revision++
	hello := w.said()
	w.mu.Unlock()
	var r protocol.Registered
	w.s.eventually("the registration", func() (done bool) {
		var err error
		r, err = mesh.Request[protocol.Registered](w.s.guarded(), w.s.nc, protocol.SubjectHello, hello)
		if err != nil && protocol.CodeOf(err) != protocol.CodeUnavailable { // else it is to be tried again
			w.s.Fatalf("registering: %v", err)
		}
		return err == nil
	})
	w.warnings = r.Warnings
	for _, sub := range r.Subscriptions {
		w.listen(sub)
	}
	for _, f := range r.Functions {
		w.listen(protocol.RegisteredSubscription{Ref: f.ID, Deliver: f.Deliver})
	}
	if err := w.nc.Flush(); err != nil {
		w.s.Fatalf("subscribing: %v", err)
	}
}

// paced are subscriptions without delays of their own, where the broker knows one
// for all: the worker asks for them with each failure. Locked.
func (w *worker) paced(specs []protocol.SubscriptionSpec) []protocol.SubscriptionSpec {
	if !w.s.oneDelay() {
		return specs
	}
	all := w.s.fast(specs)
	for i := range all {
		spec := &all[i]
		if spec.BackoffMs > 1 {
			w.afterMs, spec.BackoffMs = spec.BackoffMs, 0
		}
		if spec.QueueConfig != nil {
			spec.QueueConfig = withoutDelay(spec.QueueConfig)
		}
	}
	return all
}

// fast are subscriptions that may fail fast, without saying so where the broker knows
// one delay for all.
func (s *suite) fast(specs []protocol.SubscriptionSpec) []protocol.SubscriptionSpec {
	all := slices.Clone(specs)
	for i := range all {
		if s.oneDelay() && all[i].BackoffMs == 1 {
			all[i].BackoffMs = 0
		}
	}
	return all
}

// oneDelay says whether the broker knows one delay for all.
func (s *suite) oneDelay() bool { return s.Capabilities.Delay == broker.DelayFixed }

var ownDelay = regexp.MustCompile(`, ?"(backoffDelayMs|backoff_ms)": ?\d+`)

// withoutDelay takes the delay out of a queue's configuration.
func withoutDelay(config []byte) []byte { return ownDelay.ReplaceAll(config, nil) }

// said is what the worker declares. Locked.
func (w *worker) said() protocol.Hello {
	return protocol.Hello{WorkerID: w.id, Name: w.name, Revision: w.revision, Subscriptions: w.specs, Functions: w.serves, Jobs: len(w.serves) > 0}
}

// tryHello returns what a declaration is refused with. One that cannot be decided yet is
// tried again.
func (w *worker) tryHello(specs ...protocol.SubscriptionSpec) (refused *protocol.Error) {
	w.s.Helper()
	hello := protocol.Hello{WorkerID: w.id, Name: w.name, Revision: 1, Subscriptions: w.s.fast(specs)}
	w.s.eventually("an answer to a registration", func() bool {
		_, err := mesh.Request[protocol.Registered](w.s.guarded(), w.s.nc, protocol.SubjectHello, hello)
		refused = protocol.AsError(err)
		return protocol.CodeOf(err) != protocol.CodeUnavailable
	})
	return refused
}

func (w *worker) listen(sub protocol.RegisteredSubscription) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ids[sub.Ref] = sub.ID
	if !w.subs[sub.Deliver] {
		w.subs[sub.Deliver] = true
		w.subscribe(sub.Deliver, w.take)
	}
}

// take notes a delivery and hands it to the test. One that runs already is
// not handled twice, and one that is finished is answered again: its outcome may
// have been lost.
func (w *worker) take(m *nats.Msg) {
	w.mu.Lock()
	_, token, ok := protocol.SplitOutcome(m.Reply)
	told, runs := w.finished[token], w.running[token]
	if told == nil {
		w.running[token] = true
	}
	w.mu.Unlock()
	switch {
	case !ok:
		w.s.Errorf("a delivery has the reply subject %q", m.Reply)
	case told != nil:
		w.tell(told)
	case !runs:
		w.deliveries <- delivery{Msg: m, w: w, arrived: time.Now()}
	}
}

func (w *worker) claims(m *nats.Msg) {
	w.mu.Lock()
	var c protocol.Claims
	for token := range w.running {
		c.Running = append(c.Running, token)
	}
	w.mu.Unlock()
	body, err := json.Marshal(c)
	if err != nil {
		w.s.Errorf("claiming: %v", err)
		return
	}
	w.respond(m, body)
}

// beat keeps the worker alive, as it would a minute into its life.
func (w *worker) beat() {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	inbox := nats.NewInbox()
	if _, err := w.nc.Subscribe(inbox, w.forgotten); err != nil {
		return // the connection was closed at once
	}
	for {
		select {
		case <-t.C:
			w.keepalive(inbox)
		case <-w.stopped:
			return
		}
	}
}

func (w *worker) keepalive(inbox string) {
	w.mu.Lock()
	body, err := json.Marshal(protocol.Keepalive{Revision: w.revision, InFlight: len(w.running)})
	w.mu.Unlock()
	if err == nil && w.nc.IsConnected() {
		_ = w.nc.PublishRequest(protocol.SubjectKeepalive+w.id, inbox, body) // the next one follows
	}
}

// forgotten says hello again to a registry that does not know the worker.
func (w *worker) forgotten(m *nats.Msg) {
	var r protocol.KeepaliveReply
	if m.Header.Get(protocol.HeaderStatus) != "" || json.Unmarshal(m.Data, &r) != nil || r.Known {
		return
	}
	w.mu.Lock()
	body, err := json.Marshal(w.said())
	w.mu.Unlock()
	if err == nil {
		_ = w.nc.Publish(protocol.SubjectHello, body) // the next keepalive asks again
	}
}

// next is the next delivery.
func (w *worker) next() delivery {
	w.s.Helper()
	return w.s.next(w.deliveries)
}

func (s *suite) next(deliveries <-chan delivery) delivery {
	s.Helper()
	select {
	case d := <-deliveries:
		return d
	case <-time.After(guard):
		s.Fatalf("waited %v for a delivery", guard)
		return delivery{}
	}
}

// into gives every delivery to somebody who listens to several workers.
func (w *worker) into(all chan<- delivery) {
	w.during(func(d delivery) { all <- d })
}

// die cuts the worker off as a kill does: no goodbye, no answer.
func (w *worker) die() {
	w.stop()
	w.nc.Close()
}

// bye ends the registration.
func (w *worker) bye() {
	w.s.Helper()
	w.stop()
	ask[protocol.Empty](w.s, protocol.SubjectBye, protocol.Bye{WorkerID: w.id})
}

// each answers every delivery with what f returns until the test ends.
func (w *worker) each(f func(d delivery) protocol.Outcome) {
	w.during(func(d delivery) { d.end(f(d)) })
}

// during takes every delivery until the test ends.
func (w *worker) during(take func(d delivery)) {
	var working sync.WaitGroup
	working.Go(func() {
		for {
			select {
			case d := <-w.deliveries:
				take(d)
			case <-w.stopped:
				return
			}
		}
	})
	w.s.Cleanup(func() {
		w.stop()
		working.Wait()
	})
}

func (d delivery) attempt() int {
	n, err := strconv.Atoi(d.Header.Get(protocol.HeaderAttempt))
	if err != nil {
		d.w.s.Errorf("a delivery has the attempt %q", d.Header.Get(protocol.HeaderAttempt))
	}
	return n
}

func (d delivery) id() string { return d.Header.Get(protocol.HeaderMessageID) }

// end replies with an outcome.
func (d delivery) end(o protocol.Outcome) { d.endWith(o, "") }

func (d delivery) endWith(o protocol.Outcome, text string) {
	m := &nats.Msg{Subject: d.Reply, Data: []byte(text), Header: nats.Header{}}
	m.Header.Set(protocol.HeaderOutcome, string(o))
	d.w.mu.Lock()
	if d.w.afterMs > 0 && o == protocol.Failed {
		m.Header.Set(protocol.HeaderRetryAfter, strconv.FormatInt(d.w.afterMs, 10))
	}
	d.w.mu.Unlock()
	d.reply(m)
}

// reply sends any reply.
func (d delivery) reply(m *nats.Msg) {
	d.w.mu.Lock()
	_, token, _ := protocol.SplitOutcome(d.Reply)
	delete(d.w.running, token)
	m.Subject = d.Reply
	if d.w.finished[token] == nil {
		d.w.finished[token] = m
	}
	d.w.mu.Unlock()
	d.w.tell(m)
}

func (w *worker) tell(reply *nats.Msg) {
	if err := w.nc.PublishMsg(reply); err != nil {
		w.s.Logf("replying: %v", err)
	}
}
