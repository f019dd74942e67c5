package mesh_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/internal/mesh/meshtest"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

type question struct {
	N int `json:"n"`
}

type answer struct {
	N    int    `json:"n"`
	From string `json:"from,omitempty"`
}

func double(_ context.Context, q question) (answer, error) { return answer{N: 2 * q.N}, nil }

func TestARequestIsAnswered(t *testing.T) {
	nc := meshtest.Connect(t, meshtest.Server(t))
	s := mustService(t, nc, "router")
	if err := mesh.Endpoint(s, "double", "wb.test.double", double); err != nil {
		t.Fatal(err)
	}
	got, err := mesh.Request[answer](meshtest.Context(t), nc, "wb.test.double", map[string]any{"n": 21, "added_later": true})
	if err != nil || got.N != 42 {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err := mesh.Request[answer](meshtest.Context(t), nc, "wb.test.double", nil); err != nil || got.N != 0 {
		t.Errorf("null: got %+v, %v", got, err)
	}
}

func TestErrorsKeepTheirCode(t *testing.T) {
	nc := meshtest.Connect(t, meshtest.Server(t))
	s := mustService(t, nc, "router")
	fail := func(name string, err error) {
		t.Helper()
		h := func(context.Context, question) (answer, error) { return answer{}, err }
		if err := mesh.Endpoint(s, name, "wb.test."+name, h); err != nil {
			t.Fatal(err)
		}
	}
	fail("coded", fmt.Errorf("wrapped: %w", protocol.Errorf(protocol.CodeConflict, "two\nlines")))
	fail("secret", errors.New("password is hunter2"))
	panics := func(context.Context, question) (answer, error) { panic("boom") }
	if err := mesh.Endpoint(s, "panics", "wb.test.panics", panics); err != nil {
		t.Fatal(err)
	}
	for subject, want := range map[string]*protocol.Error{
		"wb.test.coded":   {Code: protocol.CodeConflict, Message: "two\nlines"},
		"wb.test.secret":  {Code: protocol.CodeInternal},
		"wb.test.panics":  {Code: protocol.CodeInternal},
		"wb.test.nowhere": {Code: protocol.CodeUnavailable},
	} {
		_, err := mesh.Request[answer](meshtest.Context(t), nc, subject, question{})
		if !errors.Is(err, want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got %v, want %v", subject, err, want)
		}
	}
	msg, err := nc.Request("wb.test.coded", []byte("{nonsense"), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if e := protocol.ParseErrorBody(msg.Data); e == nil || e.Code != protocol.CodeInvalidArgs {
		t.Errorf("malformed JSON: got %s", msg.Data)
	}
	if msg.Header.Get(micro.ErrorCodeHeader) != "400" || msg.Header.Get(micro.ErrorHeader) == "" {
		t.Errorf("malformed JSON: micro's headers are %v", msg.Header)
	}
}

func TestAHandlerThatStallsIsGivenUp(t *testing.T) {
	nc := meshtest.Connect(t, meshtest.Server(t))
	s, err := mesh.NewService(nc, mesh.ServiceOptions{Name: "router"})
	if err != nil {
		t.Fatal(err)
	}
	stalls := func(ctx context.Context, _ question) (answer, error) { <-ctx.Done(); return answer{}, ctx.Err() }
	if err := mesh.Endpoint(s, "stalls", "wb.test.stalls", stalls); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := mesh.Request[answer](ctx, nc, "wb.test.stalls", question{}); protocol.CodeOf(err) != protocol.CodeTimeout {
		t.Errorf("no answer: got %v, want TIMEOUT", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	if _, err := mesh.Request[answer](ctx, nc, "wb.test.stalls", question{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v", err)
	}
	if err := s.Stop(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("stopping without patience: got %v", err)
	}
}

func TestEveryInstanceIsGathered(t *testing.T) {
	server := meshtest.Server(t)
	asker := meshtest.Connect(t, server)
	if got, err := mesh.Gather[answer](meshtest.Context(t), asker, "wb.test.who", nil, 0); err != nil || len(got) != 0 {
		t.Errorf("nobody there: got %v, %v", got, err)
	}
	for _, name := range []string{"a", "b", "c"} {
		s := mustService(t, meshtest.Connect(t, server), "router")
		who := func(context.Context, question) (answer, error) { return answer{From: name}, nil }
		if name == "c" {
			who = func(context.Context, question) (answer, error) {
				return answer{}, protocol.Errorf(protocol.CodeUnavailable, "not yet")
			}
		}
		if err := mesh.EveryInstance(s, "who", "wb.test.who", who); err != nil {
			t.Fatal(err)
		}
		mustFlush(t, s)
	}
	got, err := mesh.Gather[answer](meshtest.Context(t), asker, "wb.test.who", nil, time.Second)
	if len(got) != 2 || got[0].From == got[1].From {
		t.Errorf("got %v, want one answer of a and one of b", got)
	}
	if protocol.CodeOf(err) != protocol.CodeUnavailable {
		t.Errorf("got error %v, want c's", err)
	}
}

func mustFlush(t *testing.T, s *mesh.Service) {
	t.Helper()
	if err := s.Flush(meshtest.Context(t)); err != nil {
		t.Fatal(err)
	}
}

func TestMicroToolsSeeTheService(t *testing.T) {
	server := meshtest.Server(t)
	s := mustService(t, meshtest.Connect(t, server), "router")
	if err := mesh.Endpoint(s, "double", "wb.test.double", double); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Raw("publish", "wb.test.pub.>", "q", func(*nats.Msg) {}); err != nil {
		t.Fatal(err)
	}
	mustFlush(t, s)
	asker := meshtest.Connect(t, server)
	if _, err := mesh.Request[answer](meshtest.Context(t), asker, "wb.test.double", question{N: 1}); err != nil {
		t.Fatal(err)
	}
	var ping micro.Ping
	ask(t, asker, "$SRV.PING", &ping)
	if ping.Name != "waybill-router" || ping.Version != "1.2.3" || ping.Type != micro.PingResponseType || ping.Metadata["instance"] != "one" {
		t.Errorf("ping: %+v", ping)
	}
	var info micro.Info
	ask(t, asker, "$SRV.INFO.waybill-router", &info)
	if len(info.Endpoints) != 2 || info.Endpoints[1].Subject != "wb.test.pub.>" || info.Type != micro.InfoResponseType {
		t.Errorf("info: %+v", info)
	}
	var stats micro.Stats
	ask(t, asker, "$SRV.STATS.waybill-router."+ping.ID, &stats)
	if len(stats.Endpoints) != 2 || stats.Endpoints[0].NumRequests != 1 || stats.Type != micro.StatsResponseType {
		t.Errorf("stats: %+v", stats)
	}
}

func ask(t *testing.T, nc *nats.Conn, subject string, answer any) {
	t.Helper()
	msg, err := nc.Request(subject, nil, time.Minute)
	if err != nil {
		t.Fatalf("%s: %v", subject, err)
	}
	if err := json.Unmarshal(msg.Data, answer); err != nil {
		t.Fatalf("%s: %v", subject, err)
	}
}

func TestAnyVersionIsShownToMicroTools(t *testing.T) {
	nc := meshtest.Connect(t, meshtest.Server(t))
	for given, want := range map[string]string{
		"": "0.0.0", "v1.2.3-rc.1": "1.2.3-rc.1", "dev": "0.0.0+dev", "deadbeef dirty": "0.0.0+deadbeef-dirty",
	} {
		s, err := mesh.NewService(nc, mesh.ServiceOptions{Name: "router", Version: given})
		if err != nil {
			t.Fatal(err)
		}
		var ping micro.Ping
		ask(t, nc, "$SRV.PING", &ping)
		if ping.Version != want {
			t.Errorf("%q is shown as %q, want %q", given, ping.Version, want)
		}
		if err := s.Stop(meshtest.Context(t)); err != nil {
			t.Error(err)
		}
	}
}

func TestStopAnswersWhatHasArrived(t *testing.T) {
	server := meshtest.Server(t)
	s := mustService(t, meshtest.Connect(t, server), "router")
	began, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	slow := func(context.Context, question) (answer, error) {
		once.Do(func() { close(began) })
		<-release
		return answer{N: 1}, nil
	}
	if err := mesh.Endpoint(s, "slow", "wb.test.slow", slow); err != nil {
		t.Fatal(err)
	}
	mustFlush(t, s)
	asker := meshtest.Connect(t, server)
	answered := make(chan error, 1)
	go func() {
		_, err := mesh.Request[answer](meshtest.Context(t), asker, "wb.test.slow", nil)
		answered <- err
	}()
	<-began
	stopped := make(chan error, 1)
	go func() { stopped <- s.Stop(meshtest.Context(t)) }()
	close(release)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if err := <-answered; err != nil {
		t.Errorf("what had arrived was answered with %v", err)
	}
	if _, err := mesh.Request[answer](meshtest.Context(t), asker, "wb.test.slow", nil); protocol.CodeOf(err) != protocol.CodeUnavailable {
		t.Errorf("after Stop: got %v, want UNAVAILABLE", err)
	}
	if err := mesh.Endpoint(s, "late", "wb.test.late", slow); err == nil {
		t.Error("an endpoint could be added after Stop")
	}
}

func TestARawSubscriptionDrains(t *testing.T) {
	server := meshtest.Server(t)
	s := mustService(t, meshtest.Connect(t, server), "router")
	var handled atomic.Int64
	raw, err := s.Raw("publish", "wb.test.raw", "", func(*nats.Msg) { handled.Add(1) })
	if err != nil {
		t.Fatal(err)
	}
	mustFlush(t, s)
	asker := meshtest.Connect(t, server)
	for range 1000 {
		if err := asker.Publish("wb.test.raw", []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if err := asker.FlushWithContext(meshtest.Context(t)); err != nil {
		t.Fatal(err)
	}
	if err := raw.Drain(meshtest.Context(t)); err != nil {
		t.Fatal(err)
	}
	if n := handled.Load(); n != 1000 {
		t.Errorf("%d of 1000 were handled when Drain returned", n)
	}
	if err := raw.Drain(meshtest.Context(t)); err != nil {
		t.Errorf("draining again: %v", err)
	}
}

func TestAServedEndpointDrainsItsRequests(t *testing.T) {
	server := meshtest.Server(t)
	s := mustService(t, meshtest.Connect(t, server), "dlq")
	began, release := make(chan struct{}), make(chan struct{})
	served, err := mesh.Serve(s, "show", "wb.test.show", func(context.Context, question) (answer, error) {
		close(began)
		<-release
		return answer{N: 1}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	mustFlush(t, s)
	answered := make(chan error, 1)
	asker := meshtest.Connect(t, server)
	go func() {
		_, err := mesh.Request[answer](meshtest.Context(t), asker, "wb.test.show", nil)
		answered <- err
	}()
	<-began
	impatient, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := served.Drain(impatient); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Drain did not wait for the request: %v", err)
	}
	close(release)
	if err := served.Drain(meshtest.Context(t)); err != nil {
		t.Error(err)
	}
	if err := <-answered; err != nil {
		t.Error(err)
	}
}

func TestStartAndStopUnderLoad(t *testing.T) {
	server := meshtest.Server(t)
	asker := meshtest.Connect(t, server)
	done := make(chan struct{})
	var load sync.WaitGroup
	for range 4 {
		load.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				_, err := mesh.Request[answer](meshtest.Context(t), asker, "wb.test.double", question{N: 1})
				if err != nil && protocol.CodeOf(err) != protocol.CodeUnavailable {
					t.Error(err)
				}
			}
		})
	}
	for range 20 {
		nc := meshtest.Connect(t, server)
		s := mustService(t, nc, "router")
		if err := mesh.Endpoint(s, "double", "wb.test.double", double); err != nil {
			t.Fatal(err)
		}
		var stops sync.WaitGroup
		for range 2 {
			stops.Go(func() {
				if err := s.Stop(meshtest.Context(t)); err != nil {
					t.Error(err)
				}
			})
		}
		stops.Wait()
		nc.Close()
	}
	close(done)
	load.Wait()
}

func TestStoppingWithoutAConnection(t *testing.T) {
	server := meshtest.Server(t)
	nc := meshtest.Connect(t, server)
	s := mustService(t, nc, "router")
	if err := mesh.Endpoint(s, "double", "wb.test.double", double); err != nil {
		t.Fatal(err)
	}
	nc.Close()
	if err := s.Stop(meshtest.Context(t)); err != nil {
		t.Error(err)
	}
	if _, err := mesh.NewService(nc, mesh.ServiceOptions{Name: "router"}); err == nil {
		t.Error("a service was made on a closed connection")
	}
}
