package sdk_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// guard is only there so that a fault ends a test instead of hanging it.
const guard = 3 * time.Minute

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// standIn plays the mesh's part on the wire, so that a test can say what a real
// mesh says only when something is wrong: lose an answer, deliver twice, be a
// former owner.
type standIn struct {
	t      testing.TB
	server *server.Server
	nc     *nats.Conn

	frames bool // it gives a subject for frames, and sends deliveries in them

	mu      sync.Mutex
	judge   func(h protocol.Hello) *protocol.Error // what Hello is refused with
	refuse  []string                               // observer ids that others have
	hellos  chan protocol.Hello
	byes    chan protocol.Bye
	beats   chan *nats.Msg
	publish func(m *nats.Msg)
}

func startStandIn(t testing.TB) *standIn {
	t.Helper()
	s := &standIn{
		t: t, hellos: make(chan protocol.Hello, 1024), byes: make(chan protocol.Bye, 64),
		beats: make(chan *nats.Msg, 1024),
	}
	s.publish = func(m *nats.Msg) {
		s.respond(m, protocol.PublishAck{Stream: "WAYBILL_builtin", MessageID: "m", Durability: protocol.DurabilityFsync})
	}
	s.listen()
	return s
}

// listen starts the server and the stand-in's subscriptions.
func (s *standIn) listen() {
	s.t.Helper()
	srv, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true, MaxPayload: 8 << 20})
	if err != nil {
		s.t.Fatal(err)
	}
	srv.Start()
	if !srv.ReadyForConnections(guard) {
		s.t.Fatal("the server does not start")
	}
	nc, err := nats.Connect(srv.ClientURL())
	if err != nil {
		s.t.Fatal(err)
	}
	s.server, s.nc = srv, nc
	s.t.Cleanup(func() { nc.Close(); srv.Shutdown(); srv.WaitForShutdown() })
	s.on(protocol.SubjectHello, s.hello)
	s.on(protocol.SubjectBye, func(m *nats.Msg) {
		var b protocol.Bye
		s.decode(m, &b)
		s.byes <- b
		s.respond(m, protocol.Empty{})
	})
	s.on(protocol.SubjectKeepalive+"*", func(m *nats.Msg) { s.beats <- m })
	s.on(protocol.SubjectPublishQueue+">", func(m *nats.Msg) { s.answerPublish()(m) })
	s.flush()
}

// cut closes every connection but the stand-in's own, as a network would.
func (s *standIn) cut() {
	s.t.Helper()
	all, err := s.server.Connz(&server.ConnzOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	own, err := s.nc.GetClientID()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, c := range all.Conns {
		if c.Cid != own {
			s.server.DisconnectClientByID(c.Cid)
		}
	}
}

func (s *standIn) answerPublish() func(*nats.Msg) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.publish
}

// answering sets what becomes of publishes.
func (s *standIn) answering(f func(m *nats.Msg)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.publish = f
}

func (s *standIn) on(subject string, h nats.MsgHandler) {
	s.t.Helper()
	if _, err := s.nc.Subscribe(subject, h); err != nil {
		s.t.Fatal(err)
	}
}

func (s *standIn) flush() {
	s.t.Helper()
	if err := s.nc.FlushTimeout(guard); err != nil {
		s.t.Fatal(err)
	}
}

func (s *standIn) decode(m *nats.Msg, v any) {
	if err := json.Unmarshal(m.Data, v); err != nil {
		s.t.Errorf("%s: %v", m.Subject, err)
	}
}

func (s *standIn) respond(m *nats.Msg, v any) {
	body, _ := json.Marshal(v)
	m.Respond(body)
}

func (s *standIn) hello(m *nats.Msg) {
	var h protocol.Hello
	s.decode(m, &h)
	s.mu.Lock()
	judge := s.judge
	s.mu.Unlock()
	if judge != nil {
		if e := judge(h); e != nil {
			refuseWith(m, e)
			return
		}
	}
	answer := protocol.Registered{User: "local", KeepaliveMs: 200}
	if s.frames && h.Frames {
		answer.Deliver = framesOf(h.WorkerID, "*")
	}
	for _, spec := range h.Subscriptions {
		if slices.Contains(s.refusals(), spec.ObserverID) {
			answer.Refused = append(answer.Refused, protocol.RefusedSubscription{
				Ref: spec.Ref, Error: *protocol.Errorf(protocol.CodeObserverIDConflict, "another has %s", spec.ObserverID),
			})
			continue
		}
		answer.Subscriptions = append(answer.Subscriptions, protocol.RegisteredSubscription{
			Ref: spec.Ref, ID: h.WorkerID + spec.Ref, Name: spec.Route, Queue: "/queue/" + spec.Execution + "/" + spec.Route,
			Deliver: protocol.DeliverSubject("local", h.WorkerID+spec.Ref),
		})
	}
	s.respond(m, answer)
	s.hellos <- h
}

func refuseWith(m *nats.Msg, e *protocol.Error) {
	answer := nats.NewMsg(m.Reply)
	answer.Header.Set(protocol.HeaderServiceError, e.Message)
	answer.Header.Set(protocol.HeaderServiceErrorCode, strconv.Itoa(e.Code.Status()))
	answer.Data = protocol.MarshalErrorBody(e)
	m.RespondMsg(answer)
}

// refusing sets which observer ids are refused.
func (s *standIn) refusing(ids ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = ids
}

func (s *standIn) refusals() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refuse
}

// judging sets what Hello is refused with; nil takes it.
func (s *standIn) judging(f func(h protocol.Hello) *protocol.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.judge = f
}

// judgingAfter has Hello be answered only when something is done.
func (s *standIn) judgingAfter(done *sync.WaitGroup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	judge := s.judge
	s.judge = func(h protocol.Hello) *protocol.Error {
		done.Wait()
		if judge == nil {
			return nil
		}
		return judge(h)
	}
}

// leave takes the mesh away; the server stays, and knows that it is gone.
func (s *standIn) leave() {
	s.t.Helper()
	closed := make(chan struct{})
	s.nc.SetClosedHandler(func(*nats.Conn) { close(closed) })
	if err := s.nc.Drain(); err != nil {
		s.t.Fatal(err)
	}
	receive(s.t, closed)
}

// outcomes subscribes to what a lane is told.
func (s *standIn) outcomes(lane string) chan *nats.Msg {
	s.t.Helper()
	told := make(chan *nats.Msg, 4096)
	if _, err := s.nc.ChanSubscribe(protocol.SubjectOutcome+lane+".*", told); err != nil {
		s.t.Fatal(err)
	}
	s.flush()
	return told
}

// delivery is one message as a router sends it.
type delivery struct {
	lane, token string
	epoch       uint64
	attempt     int
	timeout     time.Duration
	headers     map[string]string
	data        string
}

func (s *standIn) deliver(w *client.Worker, d delivery) {
	s.t.Helper()
	m := nats.NewMsg(protocol.DeliverSubject("local", w.ID()))
	m.Reply = protocol.SubjectOutcome + d.lane + "." + d.token
	m.Header = nats.Header{
		protocol.HeaderMessageID:  {"0199-" + d.token},
		protocol.HeaderAttempt:    {strconv.Itoa(max(d.attempt, 1))},
		protocol.HeaderMaxRetries: {"3"},
		protocol.HeaderEpoch:      {strconv.FormatUint(max(d.epoch, 1), 10)},
	}
	if d.timeout > 0 {
		m.Header[protocol.HeaderTimeout] = []string{strconv.FormatInt(d.timeout.Milliseconds(), 10)}
	}
	for k, v := range d.headers {
		m.Header[k] = []string{v}
	}
	m.Data = []byte(d.data)
	if err := s.nc.PublishMsg(m); err != nil {
		s.t.Fatal(err)
	}
}

func (s *standIn) connect(opts ...client.Option) *client.Client {
	s.t.Helper()
	c, err := client.Connect(s.t.Context(), s.server.ClientURL(), opts...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close(context.Background()) })
	return c
}

func (s *standIn) work(c *client.Client, h client.Handler, opts ...client.WorkOption) *client.Worker {
	s.t.Helper()
	w, err := c.Work(s.t.Context(), "run", "step", h, opts...)
	if err != nil {
		s.t.Fatal(err)
	}
	return w
}

// receive is the next of a channel.
func receive[T any](t testing.TB, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(guard):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

// until receives up to the one that is wanted.
func until[T any](t testing.TB, c <-chan T, wanted func(T) bool) T {
	t.Helper()
	for {
		if v := receive(t, c); wanted(v) {
			return v
		}
	}
}

// nothing checks that a channel has nothing after the client has handled all
// that was sent before: it answers probes in order with nothing else to do.
func (s *standIn) nothing(c <-chan *nats.Msg) {
	s.t.Helper()
	s.flush()
	select {
	case m := <-c:
		s.t.Fatalf("unexpected: %s %v %s", m.Subject, m.Header, m.Data)
	default:
	}
}

func outcome(m *nats.Msg) protocol.Outcome {
	if v := m.Header.Get(protocol.HeaderOutcome); v != "" {
		return protocol.Outcome(v)
	}
	return protocol.Acknowledged
}

func wantOutcome(t *testing.T, m *nats.Msg, token string, want protocol.Outcome) {
	t.Helper()
	_, got, _ := protocol.SplitOutcome(m.Subject)
	if got != token || outcome(m) != want {
		t.Fatalf("outcome of %s is %s (%s), want %s of %s", got, outcome(m), m.Data, want, token)
	}
}

func wantCode(t *testing.T, err error, code protocol.Code) {
	t.Helper()
	if protocol.CodeOf(err) != code {
		t.Fatalf("error %v, want code %s", err, code)
	}
}

func token(i int) string { return fmt.Sprintf("t%06d", i) }
