package live

import "testing"

var toxiproxy = kind{name: "Toxiproxy", script: "toxiproxy.sh", ports: []string{"TOXIPROXY_PORT"}, addresses: 1}

// Toxiproxy starts one for this test and returns the address of its HTTP
// interface.
func Toxiproxy(t testing.TB) string {
	t.Helper()
	return toxiproxy.start(t).addresses[0]
}
