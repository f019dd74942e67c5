package live

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/nats-io/nuid"
)

// RabbitMQ is a running RabbitMQ.
type RabbitMQ struct{ server }

var sharedRabbitMQ one[RabbitMQ]

// SharedRabbitMQ is the one that the tests of this program share, each in virtual
// hosts of its own; it ends with the program. Nobody may stop it.
func SharedRabbitMQ(t testing.TB) *RabbitMQ {
	t.Helper()
	return sharedRabbitMQ.get(t, "RabbitMQ", func() (*RabbitMQ, error) { return RunRabbitMQ("") })
}

// RunRabbitMQ starts one that ends with this program, and then is gone with its
// data, which is in a directory below the one given; default the system's for
// what passes.
func RunRabbitMQ(below string) (*RabbitMQ, error) {
	dir, err := os.MkdirTemp(below, "waybill-rabbitmq-")
	if err != nil {
		return nil, err
	}
	r, err := newRabbitMQ(dir, "")
	if err != nil {
		return nil, err
	}
	if err := r.start(); err != nil {
		return nil, err
	}
	return r, nil
}

// StartRabbitMQ starts one for this test alone, that may be killed and started
// again. config has lines to add to its rabbitmq.conf.
func StartRabbitMQ(t testing.TB, config ...string) *RabbitMQ {
	t.Helper()
	r, err := newRabbitMQ(t.TempDir(), strings.Join(config, "\n"))
	if err != nil {
		t.Fatal(err)
	}
	r.startFor(t)
	return r
}

func newRabbitMQ(dir, config string) (*RabbitMQ, error) {
	script, err := scriptOf("rabbitmq.sh")
	if err != nil {
		return nil, err
	}
	p, err := ports(4)
	if err != nil {
		return nil, err
	}
	return &RabbitMQ{server{name: "RabbitMQ", script: script, dir: dir, environment: []string{
		"AMQP_PORT=" + p[0], "MANAGEMENT_PORT=" + p[1], "EPMD_PORT=" + p[2], "DISTRIBUTION_PORT=" + p[3],
		"BROKER_CONFIG=" + config,
	}}}, nil
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
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequest(method, r.addresses[1]+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	request.Close = true // no connection stays behind
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%s: %s", answer.Status, said)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(said, into)
}

// Control runs rabbitmqctl and returns what it prints.
func (r *RabbitMQ) Control(t testing.TB, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), r.script, append([]string{"ctl", "--quiet"}, args...)...)
	cmd.Env = append(os.Environ(), append(r.environment, "BROKER_DIR="+r.dir)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("rabbitmqctl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}
