package live

import "testing"

// Artemis is a running Apache ActiveMQ Artemis.
type Artemis struct{ *server }

var artemis = kind{
	name: "Artemis", script: "artemis.sh", ports: []string{"STOMP_PORT", "STOMP_PLAIN_PORT", "HTTP_PORT", "CORE_PORT"}, addresses: 3,
}

// SharedArtemis is the one that the tests of this program share; it ends with the
// program. Nobody may stop it. It has no virtual hosts: all that is in it goes with
// the test, so tests that ask for it do not run side by side.
func SharedArtemis(t testing.TB) *Artemis {
	t.Helper()
	a := &Artemis{artemis.shared(t)}
	t.Cleanup(func() { a.Clear(t) })
	return a
}

// RunArtemis starts one that ends with this program, and then is gone with its
// data, which is in a directory below the one given; default the system's for
// what passes. environment is of its script, as in HEAP=1G.
func RunArtemis(below string, environment ...string) (*Artemis, error) {
	s, err := artemis.run(below, environment...)
	return &Artemis{s}, err
}

// StartArtemis starts one for this test alone, that may be killed and started
// again.
func StartArtemis(t testing.TB) *Artemis {
	t.Helper()
	return &Artemis{artemis.start(t)}
}

// URL is where it takes STOMP, with user and password. A destination that begins
// with /queue/ is a queue there, one with /topic/ a topic.
func (a *Artemis) URL() string { return a.addresses[0] }

// PlainURL is where it takes STOMP and a destination is a name as it stands.
func (a *Artemis) PlainURL() string { return a.addresses[1] }
