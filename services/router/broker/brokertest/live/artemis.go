package live

import (
	"os"
	"strings"
	"testing"
)

// Artemis is a running Apache ActiveMQ Artemis.
type Artemis struct{ server }

var sharedArtemis one[Artemis]

// SharedArtemis is the one that the tests of this program share; it ends with the
// program. Nobody may stop it. It has no virtual hosts: all that is in it goes with
// the test, so tests that ask for it do not run side by side.
func SharedArtemis(t testing.TB) *Artemis {
	t.Helper()
	a := sharedArtemis.get(t, "Artemis", func() (*Artemis, error) { return RunArtemis("") })
	t.Cleanup(func() { a.Clear(t) })
	return a
}

// RunArtemis starts one that ends with this program, and then is gone with its
// data, which is in a directory below the one given; default the system's for
// what passes. environment is of its script, as in HEAP=1G.
func RunArtemis(below string, environment ...string) (*Artemis, error) {
	dir, err := os.MkdirTemp(below, "waybill-artemis-")
	if err != nil {
		return nil, err
	}
	a, err := newArtemis(dir, environment...)
	if err != nil {
		return nil, err
	}
	if err := a.start(); err != nil {
		return nil, err
	}
	return a, nil
}

// StartArtemis starts one for this test alone, that may be killed and started
// again. properties are added to its broker.xml, as broker properties.
func StartArtemis(t testing.TB, properties ...string) *Artemis {
	t.Helper()
	a, err := newArtemis(t.TempDir(), "BROKER_CONFIG="+strings.Join(properties, "\n"))
	if err != nil {
		t.Fatal(err)
	}
	a.startFor(t)
	return a
}

func newArtemis(dir string, environment ...string) (*Artemis, error) {
	script, err := scriptOf("artemis.sh")
	if err != nil {
		return nil, err
	}
	p, err := ports(4)
	if err != nil {
		return nil, err
	}
	environment = append(environment, "STOMP_PORT="+p[0], "STOMP_PLAIN_PORT="+p[1], "HTTP_PORT="+p[2], "CORE_PORT="+p[3])
	return &Artemis{server{name: "Artemis", script: script, dir: dir, environment: environment}}, nil
}

// URL is where it takes STOMP, with user and password. A destination that begins
// with /queue/ is a queue there, one with /topic/ a topic.
func (a *Artemis) URL() string { return a.addresses[0] }

// PlainURL is where it takes STOMP and a destination is a name as it stands.
func (a *Artemis) PlainURL() string { return a.addresses[1] }
