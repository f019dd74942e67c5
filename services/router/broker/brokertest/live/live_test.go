package live

import (
	"bufio"
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
// and nothing of it is left in the end.
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

// So is Artemis: a message that it has on the disk is there again.
func TestKillAndStartArtemisAgain(t *testing.T) {
	var a *Artemis
	t.Run("Life", func(t *testing.T) {
		a = StartArtemis(t, `addressSettings."kept.#".maxDeliveryAttempts=7`)
		store(t, a, "/queue/kept", "hello")
		address := a.Address()
		a.Kill(t)
		if answers(address) {
			t.Errorf("%s still answers", address)
		}
		a.Start(t)
		if a.Address() != address || !answers(address) {
			t.Errorf("it is at %s now, was at %s", a.Address(), address)
		}
		kept := a.Browse(t, "kept")
		if len(kept) != 1 || kept[0].Body != "hello" || kept[0].Properties["x-n"] != "1" || !kept[0].Durable {
			t.Errorf("after the restart there are %+v", kept)
		}
		var settings string
		a.Manage(t, &settings, "", "getAddressSettingsAsJSON(java.lang.String)", "kept")
		if !strings.Contains(settings, `"maxDeliveryAttempts":7`) {
			t.Errorf("its settings are not as it was told: %s", settings)
		}
		a.Clear(t)
		if n := a.Depth(t, "kept"); n != -1 {
			t.Errorf("it has a queue that was removed, with %d messages", n)
		}
	})
	if answers(a.Address()) {
		t.Error("it outlives its test")
	}
	if _, err := os.Stat(filepath.Join(a.dir, "instance")); !os.IsNotExist(err) {
		t.Errorf("its data is there: %v", err)
	}
}

// So is Pulsar: a topic and its subscription are there again.
func TestKillAndStartPulsarAgain(t *testing.T) {
	var p *Pulsar
	t.Run("Life", func(t *testing.T) {
		p = StartPulsar(t, "defaultRetentionTimeInMinutes=7")
		space := p.Namespace(t)
		p.Admin(t, http.MethodPut, "persistent/public/"+space+"/kept", nil, nil)
		p.Admin(t, http.MethodPut, "persistent/public/"+space+"/kept/subscription/s", nil, nil)
		address := p.Address()
		p.Kill(t)
		if answers(address) {
			t.Errorf("%s still answers", address)
		}
		p.Start(t)
		if p.Address() != address || !answers(address) {
			t.Errorf("it is at %s now, was at %s", p.Address(), address)
		}
		if topics := p.Topics(t, space); len(topics) != 1 || topics[0] != "kept" {
			t.Errorf("after the restart there are the topics %v", topics)
		}
		if _, there := p.Subscriptions(t, space, "kept")["s"]; !there {
			t.Error("the subscription is gone")
		}
		settings := map[string]string{}
		p.Admin(t, http.MethodGet, "brokers/configuration/runtime", nil, &settings)
		if settings["defaultRetentionTimeInMinutes"] != "7" {
			t.Errorf("its settings are not as it was told: %v", settings["defaultRetentionTimeInMinutes"])
		}
	})
	if answers(p.Address()) {
		t.Error("it outlives its test")
	}
	if _, err := os.Stat(filepath.Join(p.dir, "bookie")); !os.IsNotExist(err) {
		t.Errorf("its data is there: %v", err)
	}
}

// store sends a message over STOMP and waits for its receipt.
func store(t *testing.T, a *Artemis, destination, body string) {
	t.Helper()
	conn, err := net.Dial("tcp", a.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	answers := bufio.NewReader(conn)
	for _, frame := range []string{
		"CONNECT\naccept-version:1.2\nhost:any\nlogin:waybill\npasscode:waybill\n\n\x00",
		"SEND\ndestination:" + destination + "\npersistent:true\nreceipt:1\nx-n:1\n\n" + body + "\x00",
	} {
		if _, err := conn.Write([]byte(frame)); err != nil {
			t.Fatal(err)
		}
		if answer, err := answers.ReadString(0); err != nil || strings.Contains(answer, "ERROR") {
			t.Fatalf("Artemis answers %q, %v", answer, err)
		}
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
