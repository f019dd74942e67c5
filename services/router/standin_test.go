package router_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/internal/natsserver"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
	"github.com/waybill-mq/waybill/services/router"
)

const (
	guard = 3 * time.Minute // against hanging; nothing is measured by it
	look  = 5 * time.Millisecond
)

// fixture is NATS and stand-ins for the router's neighbours: a registry that
// knows what a test tells it, a retry service whose verdicts a test decides,
// and places where what leaves the router arrives.
type fixture struct {
	*testing.T
	url string
	nc  *nats.Conn
	log *slog.Logger

	mu       sync.Mutex
	revision uint64
	workers  map[string]protocol.Worker
	settings *protocol.Settings                          // nil: the registry says nothing of them
	failing  int                                         // so many questions to the registry fail
	decide   func(protocol.DecideItem) protocol.Decision // nil: nobody answers
	arrived  map[string][]ledger.Meta                    // by "retry" and "dlq"
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := newFixtureAlone(t)
	f.keep("retry")
	f.keep("dlq")
	return f
}

// newFixtureAlone has no places yet for what leaves the router.
func newFixtureAlone(t *testing.T) *fixture { return newFixtureOf(t, 0) }

// newFixtureOf is that with a NATS that takes no longer messages than so many
// bytes, 0 for the default.
func newFixtureOf(t *testing.T, maxPayload int32) *fixture {
	t.Helper()
	f := &fixture{
		T: t, workers: make(map[string]protocol.Worker), arrived: make(map[string][]ledger.Meta),
		log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	f.decide = retryAtOnce
	ctx := f.guarded()
	server, err := natsserver.Start(ctx, natsserver.Options{DataDir: t.TempDir(), Port: -1, SyncInterval: time.Minute, MaxPayload: maxPayload, Logger: f.log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.must(server.Stop(context.Background())) })
	f.url = server.URL()
	f.nc = f.connect()
	f.serve(protocol.SubjectWorkers, f.listWorkers)
	f.serve(protocol.SubjectDecide, f.verdicts)
	return f
}

// retryAtOnce is the verdict of a policy with three tries and no delay.
func retryAtOnce(i protocol.DecideItem) protocol.Decision {
	d := protocol.Decision{Attempt: i.Attempt, Vanished: i.Vanished, Incomplete: i.Incomplete}
	switch i.Outcome {
	case protocol.Failed, protocol.Timeout:
		d.Verdict, d.Attempt, d.Due = protocol.VerdictRetryAt, i.Attempt+1, i.At
		if int(i.Attempt) >= i.MaxRetries {
			d.Verdict, d.Attempt, d.Reason = protocol.VerdictDeadLetter, i.Attempt, protocol.ReasonFailed
		}
	case protocol.Rejected:
		d.Verdict, d.Reason = protocol.VerdictDeadLetter, protocol.ReasonRejected
	case protocol.Vanished:
		d.Verdict, d.Vanished = protocol.VerdictReturn, i.Vanished+1
	default:
		d.Verdict, d.Incomplete = protocol.VerdictReturn, i.Incomplete+1
	}
	return d
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) guarded() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), guard)
	f.Cleanup(cancel)
	return ctx
}

func (f *fixture) connect() *nats.Conn {
	f.Helper()
	nc, err := nats.Connect(f.url)
	f.must(err)
	f.Cleanup(nc.Close)
	return nc
}

// serve answers requests with what h returns; nil: no answer.
func (f *fixture) serve(subject string, h func(body []byte) any) {
	f.Helper()
	_, err := f.nc.Subscribe(subject, func(m *nats.Msg) {
		answer := h(m.Data)
		if answer == nil {
			return
		}
		body, err := json.Marshal(answer)
		if err == nil {
			err = m.Respond(body)
		}
		if err != nil {
			f.Error(err)
		}
	})
	f.must(err)
}

func (f *fixture) listWorkers([]byte) any {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failing > 0 {
		f.failing--
		return json.RawMessage(protocol.MarshalErrorBody(protocol.Errorf(protocol.CodeUnavailable, "not now")))
	}
	page := protocol.WorkersPage{Settings: f.settings}
	for _, w := range f.workers {
		page.Workers = append(page.Workers, w)
	}
	return page
}

func (f *fixture) verdicts(body []byte) any {
	f.mu.Lock()
	defer f.mu.Unlock()
	var q protocol.DecideRequest
	if err := json.Unmarshal(body, &q); err != nil || f.decide == nil {
		return nil
	}
	var r protocol.DecideReply
	for _, i := range q.Items {
		r.Items = append(r.Items, f.decide(i))
	}
	return r
}

// deciding changes the verdicts.
func (f *fixture) deciding(decide func(protocol.DecideItem) protocol.Decision) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.decide = decide
}

// sink is an owner that keeps what arrives.
type sink struct {
	f       *fixture
	service string
}

func (s *sink) Opened(*ledger.Ledger) {}
func (s *sink) Handle([]struct{})     {}
func (s *sink) Committed(c *ledger.Commit) {
	if c.Kind != ledger.KindAccept {
		return
	}
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	for _, e := range c.Entries {
		s.f.arrived[s.service] = append(s.f.arrived[s.service], ledger.Meta{
			Queue: e.Queue.Name, Attempt: e.Attempt, Generation: e.Generation, Vanished: e.Vanished, Incomplete: e.Incomplete, Due: e.Due,
		})
	}
}
func (s *sink) Loaded(*ledger.Entry, *ledger.Message, ledger.Meta, error) {}
func (s *sink) Incoming(*ledger.Message, *ledger.Meta) error              { return nil }
func (s *sink) Tick(time.Time) time.Time                                  { return time.Time{} }
func (s *sink) Closed(error, []any)                                       {}

// keep runs the ledgers of a service that takes what leaves the router.
func (f *fixture) keep(service string) {
	f.Helper()
	conn, err := mesh.Connect(f.guarded(), mesh.ConnectOptions{URL: f.url, Name: service, NoBuffer: true})
	f.must(err)
	f.Cleanup(conn.Close)
	k := ledger.NewKeeper(ledger.KeeperOptions{
		Conn: conn, Service: service, Ledgers: 2, Instance: service + "-a", Logger: f.log,
		Open: func(ctx context.Context, name string) (ledger.Handle, error) {
			return ledger.Open[struct{}](ctx, ledger.Options{
				Conn: conn, Stream: ledger.StreamOf(service), Name: name, Logger: f.log,
			}, &sink{f: f, service: service})
		},
	})
	f.must(k.Start(f.guarded()))
	f.Cleanup(func() { f.must(k.Stop(context.Background())) })
}

func (f *fixture) taken(service string) []ledger.Meta {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]ledger.Meta(nil), f.arrived[service]...)
}

// router starts a router with few lanes.
func (f *fixture) router(name string, change func(*router.Options)) *router.Service {
	f.Helper()
	o := router.Options{
		Mesh: mesh.ConnectOptions{URL: f.url}, Instance: name, Lanes: 4, Logger: f.log, Drain: time.Second,
	}
	if change != nil {
		change(&o)
	}
	s, err := router.New(o)
	f.must(err)
	f.must(s.Start(f.guarded()))
	f.Cleanup(func() { f.must(s.Stop(context.Background())) })
	return s
}

// program is a connected worker.
type program struct {
	f      *fixture
	nc     *nats.Conn
	record protocol.Worker
	got    chan *nats.Msg

	mu     sync.Mutex
	claims *protocol.Claims // nil: it does not answer
	work   map[string]bool  // of a diligent one: tokens, and whether they are finished
}

// program registers a worker with one subscription.
func (f *fixture) program(queue string, change func(*protocol.Subscription)) *program {
	f.Helper()
	p := &program{f: f, nc: f.connect(), got: make(chan *nats.Msg, 10000), claims: &protocol.Claims{}}
	id := nuid.Next()
	sub := protocol.Subscription{
		ID: id + "-1", Worker: id, Queue: queue, Deliver: protocol.DeliverSubject("local", id+"-1"),
		Concurrency: 10, MaxRetries: 3, TimeoutMs: guard.Milliseconds(),
	}
	if change != nil {
		change(&sub)
	}
	p.record = protocol.Worker{ID: id, Name: "program", Since: time.Now(), Subscriptions: []protocol.Subscription{sub}}
	p.subscribe(sub.Deliver, func(m *nats.Msg) { p.got <- m })
	p.subscribe(protocol.WorkerSubject(id, protocol.VerbProbe), func(m *nats.Msg) { f.check(m.Respond(nil)) })
	p.subscribe(protocol.WorkerSubject(id, protocol.VerbClaims), p.claim)
	f.must(p.nc.Flush())
	f.tell(p.record)
	return p
}

func (f *fixture) check(err error) {
	if err != nil {
		f.Error(err)
	}
}

func (p *program) subscribe(subject string, h nats.MsgHandler) {
	p.f.Helper()
	_, err := p.nc.Subscribe(subject, h)
	p.f.must(err)
}

func (p *program) claim(m *nats.Msg) {
	p.mu.Lock()
	defer p.mu.Unlock()
	claims := p.claims
	if p.work != nil {
		claims = p.claimed()
	}
	if claims == nil {
		return
	}
	body, err := json.Marshal(claims)
	p.f.check(err)
	p.f.check(m.Respond(body))
}

// claiming changes what the worker claims.
func (p *program) claiming(c *protocol.Claims) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.claims = c
}

// tell has the registry know the record, or know that the worker left.
func (f *fixture) tell(w protocol.Worker) {
	f.Helper()
	f.mu.Lock()
	f.revision++
	w.KVRevision = f.revision
	f.workers[w.ID] = w
	if w.Gone {
		delete(f.workers, w.ID)
	}
	settings := f.settings
	f.mu.Unlock()
	body, err := json.Marshal(protocol.WorkerChanged{Worker: w, Settings: settings})
	f.must(err)
	f.must(f.nc.Publish(protocol.SubjectWorkerChanged, body))
}

// set changes the mesh's settings and tells the routers.
func (f *fixture) set(change func(*protocol.Settings)) {
	f.Helper()
	f.mu.Lock()
	now := protocol.DefaultSettings()
	if f.settings != nil {
		now = *f.settings
	}
	change(&now)
	now.Revision++
	f.settings = &now
	f.mu.Unlock()
	body, err := json.Marshal(now)
	f.must(err)
	f.must(f.nc.Publish(protocol.SubjectSettingsChanged, body))
}

func (p *program) leaves() {
	p.f.Helper()
	p.record.Gone = true
	p.f.tell(p.record)
}

func (p *program) next() *nats.Msg {
	p.f.Helper()
	deadline := time.NewTimer(guard)
	defer deadline.Stop()
	select {
	case m := <-p.got:
		return m
	case <-deadline.C:
		p.f.Fatal("no delivery")
		return nil
	}
}

func (p *program) end(m *nats.Msg, o protocol.Outcome) {
	p.f.Helper()
	p.f.must(p.nc.PublishMsg(&nats.Msg{Subject: m.Reply, Header: nats.Header{protocol.HeaderOutcome: {string(o)}}}))
}

// diligent does all that is asked of a worker: it runs no delivery twice, and
// tells what it runs and what it has finished. Each delivery that it runs is
// acknowledged.
func (p *program) diligent(run func(m *nats.Msg)) {
	p.mu.Lock()
	p.work = map[string]bool{}
	p.mu.Unlock()
	p.answerAll(func(m *nats.Msg) {
		_, token, _ := protocol.SplitOutcome(m.Reply)
		p.mu.Lock()
		finished := p.work[token]
		p.work[token] = finished
		p.mu.Unlock()
		if !finished {
			run(m)
		}
		p.mu.Lock()
		p.work[token] = true
		p.mu.Unlock()
	})
}

// claimed is what a diligent worker knows of its deliveries.
func (p *program) claimed() *protocol.Claims {
	c := &protocol.Claims{}
	for token, finished := range p.work {
		if finished {
			c.Finished = append(c.Finished, protocol.FinishedWork{Token: token, Outcome: protocol.Acknowledged})
			continue
		}
		c.Running = append(c.Running, token)
	}
	return c
}

func (p *program) acknowledgeAll() { p.answerAll(func(*nats.Msg) {}) }

// answerAll acknowledges each delivery after run.
func (p *program) answerAll(run func(m *nats.Msg)) {
	p.handleAll(func(m *nats.Msg) protocol.Outcome {
		run(m)
		return protocol.Acknowledged
	})
}

// handleAll answers each delivery with what run says.
func (p *program) handleAll(run func(m *nats.Msg) protocol.Outcome) {
	var working sync.WaitGroup
	stop := make(chan struct{})
	working.Go(func() {
		for {
			select {
			case m := <-p.got:
				o := run(m)
				p.f.check(p.nc.PublishMsg(&nats.Msg{Subject: m.Reply, Header: nats.Header{protocol.HeaderOutcome: {string(o)}}}))
			case <-stop:
				return
			}
		}
	})
	p.f.Cleanup(func() {
		close(stop)
		working.Wait()
	})
}

func (f *fixture) publish(route string) (protocol.PublishAck, *protocol.Error) {
	f.Helper()
	m, err := f.nc.RequestWithContext(f.guarded(), protocol.PublishQueueSubject("e1", route), []byte("payload"))
	f.must(err)
	if refused := protocol.ParseErrorBody(m.Data); refused != nil {
		return protocol.PublishAck{}, refused
	}
	var ack protocol.PublishAck
	f.must(json.Unmarshal(m.Data, &ack))
	return ack, nil
}

func (f *fixture) published(route string) protocol.PublishAck {
	f.Helper()
	ack, refused := f.publish(route)
	if refused != nil {
		f.Fatal(refused)
	}
	return ack
}

func queueOf(route string) string { return scope.ScopedName("e1", route) }

// queue is what the routers know of a queue.
func (f *fixture) queue(route string) protocol.QueueInfo {
	f.Helper()
	pages, err := mesh.Gather[protocol.QueuesPage](f.guarded(), f.nc, protocol.SubjectQueues, protocol.QueuesRequest{Queue: queueOf(route)}, 100*time.Millisecond)
	f.must(err)
	for _, page := range pages {
		for _, q := range page.Queues {
			return q
		}
	}
	return protocol.QueueInfo{}
}

func (f *fixture) await(what string, there func() bool) {
	f.Helper()
	again := time.NewTicker(look)
	defer again.Stop()
	deadline := time.NewTimer(guard)
	defer deadline.Stop()
	for !there() {
		select {
		case <-again.C:
		case <-deadline.C:
			f.Fatalf("waited %v for %s", guard, what)
		}
	}
}

// empty waits until the routers hold nothing of the queue.
func (f *fixture) empty(route string) protocol.QueueInfo {
	f.Helper()
	var q protocol.QueueInfo
	f.await("an empty queue", func() bool {
		q = f.queue(route)
		return q.Queue != "" && q.Ready+q.InFlight+q.Moving == 0
	})
	return q
}
