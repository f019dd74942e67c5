package live

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A broker is started, killed and started again on the same addresses and data,
// and nothing of it is left in the end. The tests that kill them show the same of the
// others.
func TestKillAndStartAgain(t *testing.T) {
	var r *RabbitMQ
	var dir string
	t.Run("Life", func(t *testing.T) {
		r = StartRabbitMQ(t, "consumer_timeout = 60000")
		dir = r.dir
		at := r.VirtualHost(t)
		name := at[strings.LastIndex(at, "/")+1:]
		address := r.Address()
		r.Kill(t)
		if answers(address) {
			t.Errorf("%s still answers", address)
		}
		_, text, _ := strings.Cut(address, ":")
		if port, err := strconv.Atoi(text); err != nil || free(port, 1) {
			t.Errorf("another server may be given the port %s (%v)", text, err)
		}
		r.Start(t)
		if r.Address() != address || !answers(address) {
			t.Errorf("it is at %s now, was at %s", r.Address(), address)
		}
		var hosts []struct{ Name string }
		r.Admin(t, http.MethodGet, "/api/vhosts", nil, &hosts)
		if len(hosts) != 2 || hosts[0].Name != name && hosts[1].Name != name {
			t.Errorf("after the restart there are the virtual hosts %v", hosts)
		}
		if out := r.Control(t, "environment"); !strings.Contains(out, "{consumer_timeout,60000}") {
			t.Errorf("its consumer timeout is not as it was told")
		}
	})
	if answers(r.Address()) {
		t.Error("it outlives its test")
	}
	if _, err := os.Stat(filepath.Join(dir, "mnesia")); !os.IsNotExist(err) {
		t.Errorf("its data is there: %v", err)
	}
}

// answers says whether anybody takes connections at an address.
func answers(address string) bool {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// A broker that cannot be started says why.
func TestDoesNotStart(t *testing.T) {
	r, err := rabbitMQ.new(t.TempDir(), "BROKER_CONFIG=no_such_setting = 1")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.start(); err == nil || !strings.Contains(err.Error(), "no_such_setting") {
		t.Errorf("a broken configuration: %v", err)
	}
}

// So it is with the script in a shell: what it says is ready is not what it killed.
func TestScriptStartsAgainAfterKill(t *testing.T) {
	r, err := rabbitMQ.new(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer r.run(t, "stop")
	for range 2 {
		at, _, _ := strings.Cut(r.run(t, "start"), "\n")
		if _, address, _ := strings.Cut(at, "@"); !answers(address) {
			t.Errorf("it says that it is at %s, and is not", at)
		}
		r.run(t, "kill")
	}
}
