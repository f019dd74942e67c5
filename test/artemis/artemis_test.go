// Package artemis_test looks at a mesh on a real Artemis with Artemis's own
// management, with a plain STOMP client and from in between: where messages are at
// each stage, what strangers may do, which frames are sent, and what becomes of it
// all when the broker goes away.
package artemis_test

import (
	"errors"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/go-stomp/stomp/v3"
	"github.com/go-stomp/stomp/v3/frame"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/services/router/broker/brokertest/live"
	"github.com/waybill-mq/waybill/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// running is a server that tests share. It ends with the program and is never cleared:
// what each of them has there is its own.
var running = sync.OnceValues(func() (*live.Artemis, error) { return live.RunArtemis("") })

// shared is one that others use at the same time. Nobody may stop it.
func shared(t *testing.T) *live.Artemis {
	t.Helper()
	server, err := running()
	if err != nil {
		t.Fatalf("this test needs Artemis: %v", err)
	}
	return server
}

// place is a mesh and the Artemis that has its queues.
type place struct {
	*testing.T
	mesh   *harness.Mesh
	server *live.Artemis
	client *client.Client
	mark   int // where the server's log was
}

// on starts a mesh on a broker, reached by a URL of it.
func on(t *testing.T, server *live.Artemis, at string) *place {
	t.Helper()
	mark := len(server.Log(t))
	m := harness.Start(t, harness.OnArtemis(t, at)...)
	return &place{T: t, mesh: m, server: server, client: m.Connect(), mark: mark}
}

// stranger is a program that knows STOMP and not the mesh.
func (p *place) stranger() *stomp.Conn {
	p.Helper()
	at, err := url.Parse(p.server.URL())
	if err != nil {
		p.Fatal(err)
	}
	password, _ := at.User.Password()
	conn, err := stomp.Dial("tcp", at.Host, stomp.ConnOpt.Login(at.User.Username(), password), stomp.ConnOpt.HeartBeat(0, 0), stomp.ConnOpt.AcceptVersion(stomp.V12))
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() {
		if err := conn.Disconnect(); err != nil && !errors.Is(err, stomp.ErrAlreadyClosed) {
			p.Errorf("disconnecting: %v", err)
		}
	})
	return conn
}

// put stores a stranger's message; headers come in pairs.
func (p *place) put(conn *stomp.Conn, destination, body string, headers ...string) {
	p.Helper()
	opts := []func(*frame.Frame) error{stomp.SendOpt.Receipt, stomp.SendOpt.Header("persistent", "true")}
	for i := 0; i < len(headers); i += 2 {
		opts = append(opts, stomp.SendOpt.Header(headers[i], headers[i+1]))
	}
	if err := conn.Send(destination, "", []byte(body), opts...); err != nil {
		p.Fatalf("sending to %s: %v", destination, err)
	}
}

func (p *place) publish(to client.Destination, data string, opts ...client.PublishOption) *client.Receipt {
	p.Helper()
	return harness.Publish(p, p.client, to, data, opts...)
}

// work has a route's deliveries ended by the test.
func (p *place) work(execution, route string, opts ...client.WorkOption) (<-chan harness.Taken, *client.Worker) {
	p.Helper()
	return harness.Take(p, p.client, execution, route, opts...)
}

// handle has a route's deliveries handled.
func (p *place) handle(execution, route string, h client.Handler, opts ...client.WorkOption) {
	p.Helper()
	harness.Work(p, p.client, execution, route, h, opts...)
}

// awaitRest waits until all that was published to a route is acknowledged or dead,
// and so many are dead.
func (p *place) awaitRest(execution, route string, dead int64) {
	p.Helper()
	p.mesh.AwaitDead(execution, route, dead)
}

// counted is one of the mesh's counters.
func (p *place) counted(counter string) (n uint64) {
	p.Helper()
	for _, s := range p.mesh.Stats() {
		n += s.Counters[counter]
	}
	return n
}

// faults are what the broker says of a frame that it should not have been sent.
var faults = regexp.MustCompile(`Sent ERROR frame to STOMP client \S+ (AMQ339|Cannot|no message)`)

// noErrors: the broker has found fault with no frame.
func (p *place) noErrors() {
	p.Helper()
	log := p.server.Log(p)
	for line := range strings.Lines(log[min(p.mark, len(log)):]) {
		if faults.MatchString(line) {
			p.Errorf("the broker had to complain: %s", line)
		}
	}
}

var errFails = errors.New("no luck")
