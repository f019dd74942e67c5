package live

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/nats-io/nuid"
)

// RabbitMQ is a running RabbitMQ.
type RabbitMQ struct{ *server }

var rabbitMQ = kind{
	name: "RabbitMQ", script: "rabbitmq.sh", ports: []string{"AMQP_PORT", "MANAGEMENT_PORT", "EPMD_PORT", "DISTRIBUTION_PORT"}, addresses: 2,
}

// SharedRabbitMQ is the one that the tests of this program share, each in virtual
// hosts of its own; it ends with the program. Nobody may stop it.
func SharedRabbitMQ(t testing.TB) *RabbitMQ {
	t.Helper()
	return &RabbitMQ{rabbitMQ.shared(t)}
}

// RunRabbitMQ starts one that ends with this program, and then is gone with its
// data, which is in a directory below the one given; default the system's for
// what passes.
func RunRabbitMQ(below string) (*RabbitMQ, error) {
	s, err := rabbitMQ.run(below)
	return &RabbitMQ{s}, err
}

// StartRabbitMQ starts one for this test alone, that may be killed and started
// again. config has lines to add to its rabbitmq.conf.
func StartRabbitMQ(t testing.TB, config ...string) *RabbitMQ {
	t.Helper()
	return &RabbitMQ{rabbitMQ.start(t, config...)}
}

// VirtualHost makes an empty virtual host, which goes with the test, and returns
// its AMQP URL.
func (r *RabbitMQ) VirtualHost(t testing.TB) string {
	t.Helper()
	at, remove, err := r.MakeVirtualHost()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if r.cmd == nil {
			return // it was killed
		}
		if err := remove(); err != nil {
			t.Error(err)
		}
	})
	return at
}

// MakeVirtualHost is VirtualHost for who is no test.
func (r *RabbitMQ) MakeVirtualHost() (amqp string, remove func() error, err error) {
	name := "t" + nuid.Next()
	if err := r.admin(http.MethodPut, "/api/vhosts/"+name, struct{}{}, nil); err != nil {
		return "", nil, err
	}
	all := map[string]string{"configure": ".*", "write": ".*", "read": ".*"}
	if err := r.admin(http.MethodPut, "/api/permissions/"+name+"/guest", all, nil); err != nil {
		return "", nil, err
	}
	remove = func() error { return r.admin(http.MethodDelete, "/api/vhosts/"+name, nil, nil) }
	return r.addresses[0] + "/" + name, remove, nil
}

// CloseConnections has the broker close every connection to a virtual host,
// given by its AMQP URL.
func (r *RabbitMQ) CloseConnections(t testing.TB, amqp string) {
	t.Helper()
	at, err := url.Parse(amqp)
	if err != nil {
		t.Fatal(err)
	}
	r.Control(t, "close_all_connections", "--vhost", strings.TrimPrefix(at.Path, "/"), "severed by a test")
}

// Admin asks the management interface: path begins with /api/. into may be nil.
func (r *RabbitMQ) Admin(t testing.TB, method, path string, body, into any) {
	t.Helper()
	if err := r.admin(method, path, body, into); err != nil {
		t.Fatalf("%s %s of RabbitMQ: %v", method, path, err)
	}
}

func (r *RabbitMQ) admin(method, path string, body, into any) error {
	return ask(method, r.addresses[1]+path, body, into)
}

// Control runs rabbitmqctl and returns what it prints.
func (r *RabbitMQ) Control(t testing.TB, args ...string) string {
	t.Helper()
	return r.run(t, append([]string{"ctl", "--quiet"}, args...)...)
}
