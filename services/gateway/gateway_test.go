package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/internal/mesh/meshtest"
	"github.com/waybill-mq/waybill/internal/natsserver"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/gateway"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func mustStart(t *testing.T, s *natsserver.Server) *gateway.Service {
	t.Helper()
	g, err := gateway.New(gateway.Options{Mesh: mesh.ConnectOptions{URL: s.URL()}, Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Start(meshtest.Context(t)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Stop(meshtest.Context(t)); err != nil {
			t.Error(err)
		}
	})
	return g
}

// client keeps no connection, so that none is left when the test ends.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func get(t *testing.T, g *gateway.Service, path string, change ...func(*http.Request)) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(meshtest.Context(t), http.MethodGet, "http://"+g.Address()+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range change {
		c(r)
	}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// standIn is an instance of a service that answers what the gateway asks.
type standIn struct {
	ready atomic.Pointer[protocol.Ready]
	stats atomic.Pointer[protocol.Stats]
	mesh  *mesh.Service
	nc    *nats.Conn
}

func mustStandIn(t *testing.T, server *natsserver.Server, service string) *standIn {
	t.Helper()
	nc, err := mesh.Connect(meshtest.Context(t), mesh.ConnectOptions{URL: server.URL(), Name: service})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	s := &standIn{nc: nc}
	s.ready.Store(&protocol.Ready{Service: service, Instance: "i", Ready: true})
	s.stats.Store(&protocol.Stats{Service: service, Instance: "i"})
	s.mesh, err = mesh.NewService(nc, mesh.ServiceOptions{Name: service})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.mesh.Stop(meshtest.Context(t)); err != nil {
			t.Error(err)
		}
	})
	err = mesh.EveryInstance(s.mesh, "ready", protocol.SubjectReady, func(context.Context, protocol.Empty) (protocol.Ready, error) { return *s.ready.Load(), nil })
	if err != nil {
		t.Fatal(err)
	}
	err = mesh.EveryInstance(s.mesh, "stats", protocol.SubjectStats, func(context.Context, protocol.Empty) (protocol.Stats, error) { return *s.stats.Load(), nil })
	if err != nil {
		t.Fatal(err)
	}
	if err := s.mesh.Flush(meshtest.Context(t)); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestReadyWhenEveryServiceIs(t *testing.T) {
	server := meshtest.Server(t)
	g := mustStart(t, server)
	if status, body := get(t, g, "/healthz"); status != http.StatusOK || body != "ok\n" {
		t.Errorf("healthz: %d %s", status, body)
	}
	status, body := get(t, g, "/readyz")
	if status != http.StatusServiceUnavailable {
		t.Errorf("alone: %d %s", status, body)
	}
	for _, service := range []string{"router", "retry", "dlq", "registry"} {
		if !strings.Contains(body, service+": no instance answers") {
			t.Errorf("%s is not named as missing in %s", service, body)
		}
	}
	all := map[string]*standIn{}
	for _, service := range []string{"router", "retry", "dlq", "registry"} {
		all[service] = mustStandIn(t, server, service)
	}
	if status, body := get(t, g, "/readyz"); status != http.StatusOK || body != "ready\n" {
		t.Errorf("with all: %d %s", status, body)
	}
	all["router"].ready.Store(&protocol.Ready{Service: "router", Instance: "i", Waiting: []string{"router-03 is being opened"}})
	if status, body := get(t, g, "/readyz"); status != http.StatusServiceUnavailable || body != "not ready:\n- router i: router-03 is being opened\n" {
		t.Errorf("one is waiting: %d %s", status, body)
	}
	status, body = get(t, g, "/readyz", func(r *http.Request) { r.Header.Set("Accept", "application/json") })
	var readiness gateway.Readiness
	if err := json.Unmarshal([]byte(body), &readiness); err != nil || status != http.StatusServiceUnavailable {
		t.Fatalf("as JSON: %d %s, %v", status, body, err)
	}
	if readiness.Ready || len(readiness.Waiting) != 1 || len(readiness.Services) != 5 {
		t.Errorf("as JSON: %+v", readiness)
	}
}

func TestNotReadyWithoutNATS(t *testing.T) {
	server := meshtest.Server(t)
	g := mustStart(t, server)
	if err := server.Stop(meshtest.Context(t)); err != nil {
		t.Fatal(err)
	}
	for ctx := meshtest.Context(t); ; {
		status, body := get(t, g, "/readyz")
		if status == http.StatusServiceUnavailable && strings.Contains(body, "NATS is not connected") {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("readyz: %d %s", status, body)
		}
	}
	if status, _ := get(t, g, "/healthz"); status != http.StatusOK {
		t.Errorf("healthz: %d; the process is up all the same", status)
	}
	if _, body := get(t, g, "/metrics"); !strings.Contains(body, "waybill_nats_connected 0") {
		t.Errorf("metrics: %s", body)
	}
}

func TestMetricsAddUpInstances(t *testing.T) {
	server := meshtest.Server(t)
	g := mustStart(t, server)
	one, two := mustStandIn(t, server, "router"), mustStandIn(t, server, "router")
	published := func(s *standIn, n uint64) {
		s.stats.Store(&protocol.Stats{
			Service: "router", Instance: "i",
			Counters: map[string]uint64{"published": n, "superseded": 1, "bad name!": 1},
			Gauges:   map[string]float64{"lanes": 8, "instances": 99},
			Brokers: map[string]protocol.BrokerStats{
				"there": {Up: true, Ready: 3, Waiting: 2, Dead: 1}, "away": {Up: n != 7, Ready: 5},
			},
		})
	}
	expect := func(lines ...string) {
		t.Helper()
		status, body := get(t, g, "/metrics")
		for _, line := range lines {
			if status != http.StatusOK || !strings.Contains(body, "\n"+line+"\n") {
				t.Errorf("%d, %s is not in\n%s", status, line, body)
			}
		}
		if strings.Contains(body, "bad") {
			t.Error("a malformed name came through")
		}
		if strings.Contains(body, `waybill_broker_up{broker="away"} 0`) == strings.Contains(body, `waybill_broker_ready{broker="away"}`) {
			t.Error("what a broker holds that is away is known, or not known of one that is there")
		}
	}
	published(one, 5)
	published(two, 7)
	expect(`waybill_published_total{service="router"} 12`, `waybill_superseded_total{service="router"} 2`,
		`waybill_lanes{service="router"} 16`, `waybill_instances{service="router"} 2`, `waybill_instances{service="gateway"} 1`,
		`waybill_broker_up{broker="there"} 1`, `waybill_broker_ready{broker="there"} 6`, `waybill_broker_waiting{broker="there"} 4`,
		`waybill_broker_dead{broker="there"} 2`, `waybill_broker_unknown_queues{broker="there"} 0`,
		`waybill_broker_up{broker="away"} 0`, `# HELP waybill_broker_up Whether every router can use the broker.`,
		`waybill_nats_connected 1`, `# TYPE waybill_published_total counter`, `# HELP waybill_published_total Messages published and committed.`)
	published(two, 0) // its ledgers are on their way to another
	expect(`waybill_published_total{service="router"} 12`)
	published(one, 20)
	expect(`waybill_published_total{service="router"} 20`)
}

func TestOnlyLoopbackIsServed(t *testing.T) {
	g := mustStart(t, meshtest.Server(t))
	_, port, err := net.SplitHostPort(g.Address())
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]int{
		"localhost:" + port: http.StatusOK, "127.0.0.1": http.StatusOK, "[::1]:" + port: http.StatusOK, "[::1]": http.StatusOK,
		"evil.example": http.StatusForbidden, "localhost.evil.example:" + port: http.StatusForbidden, "10.0.0.1:" + port: http.StatusForbidden,
	} {
		for _, path := range []string{"/healthz", "/metrics"} {
			if status, _ := get(t, g, path, func(r *http.Request) { r.Host = host }); status != want {
				t.Errorf("Host %s, %s: %d, want %d", host, path, status, want)
			}
		}
	}
	if status, _ := get(t, g, "/elsewhere"); status != http.StatusNotFound {
		t.Errorf("an unknown path: %d", status)
	}
	resp, err := client.Post("http://"+g.Address()+"/healthz", "text/plain", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", resp.StatusCode)
	}
}

func TestAddressesThatAreRefused(t *testing.T) {
	server := meshtest.Server(t)
	taken := mustStart(t, server)
	for listen, code := range map[string]protocol.Code{
		":8000": protocol.CodeForbidden, "0.0.0.0:0": protocol.CodeForbidden, "[::]:0": protocol.CodeForbidden, "192.0.2.1:80": protocol.CodeForbidden,
		"8000": protocol.CodeInvalidArgs, taken.Address(): protocol.CodeUnavailable,
	} {
		g, err := gateway.New(gateway.Options{Mesh: mesh.ConnectOptions{URL: server.URL()}, Listen: listen})
		if err == nil {
			err = g.Start(meshtest.Context(t))
		}
		if protocol.CodeOf(err) != code {
			t.Errorf("%s: got %v, want %s", listen, err, code)
		}
	}
	if _, err := gateway.New(gateway.Options{Instance: "a b"}); protocol.CodeOf(err) != protocol.CodeInvalidName {
		t.Errorf("a bad instance: %v", err)
	}
}

func TestStopFinishesRequests(t *testing.T) {
	server := meshtest.Server(t)
	for range 5 {
		g := mustStart(t, server)
		var asking sync.WaitGroup
		for range 4 {
			asking.Go(func() {
				resp, err := client.Get("http://" + g.Address() + "/readyz")
				if err != nil {
					if !notTaken(err) {
						t.Error(err)
					}
					return
				}
				if _, err := io.Copy(io.Discard, resp.Body); err != nil {
					t.Errorf("a request under way was cut off: %v", err)
				}
				_ = resp.Body.Close()
			})
		}
		for range 3 {
			asking.Go(func() {
				if err := g.Stop(meshtest.Context(t)); err != nil {
					t.Error(err)
				}
			})
		}
		asking.Wait()
		<-g.Done()
		if err := g.Err(); err != nil {
			t.Error(err)
		}
	}
}

// notTaken says whether err is that of a connection that was not taken any
// more, as it may be once Stop has begun.
func notTaken(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF)
}

// While NATS is away what has to be asked for is refused at once, and what tells
// of it does.
func TestWithoutNATSNothingIsWaitedFor(t *testing.T) {
	server := meshtest.Server(t)
	g := mustStart(t, server)
	if err := server.Stop(meshtest.Context(t)); err != nil {
		t.Fatal(err)
	}
	for ctx := meshtest.Context(t); ; {
		_, text := get(t, g, "/api/v1/ready")
		if strings.Contains(text, "NATS is not connected") {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("ready: %s", text)
		}
	}
	for _, path := range []string{"/system/reconcile", "/dead-letters", "/queues", "/waiting", "/executions", "/workers", "/stats", "/webhooks", "/functions"} {
		status, text := get(t, g, "/api/v1"+path)
		var p gateway.Problem
		if err := json.Unmarshal([]byte(text), &p); err != nil || status != http.StatusServiceUnavailable || p.Status != status || p.Code != protocol.CodeUnavailable || !strings.Contains(p.Detail, "NATS") {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
}
