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
	s := &server{script: script, dir: t.TempDir(), environment: []string{"TOXIPROXY_PORT=" + port[0]}}
	t.Cleanup(func() {
		if err := s.end(); err != nil {
			t.Errorf("ending Toxiproxy: %v", err)
		}
	})
	if err := s.start(); err != nil {
		t.Fatalf("this test needs Toxiproxy: %v", err)
	}
	return s.addresses[0]
}
