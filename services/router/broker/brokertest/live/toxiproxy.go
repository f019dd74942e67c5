package live

import "testing"

// Toxiproxy starts one for this test and returns the address of its HTTP
// interface.
func Toxiproxy(t testing.TB) string {
	t.Helper()
	script, err := scriptOf("toxiproxy.sh")
	if err != nil {
		t.Fatal(err)
	}
	port, err := ports(1)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{name: "Toxiproxy", script: script, dir: t.TempDir(), environment: []string{"TOXIPROXY_PORT=" + port[0]}}
	s.startFor(t)
	return s.addresses[0]
}
