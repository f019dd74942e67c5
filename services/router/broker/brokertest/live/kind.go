package live

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// kind is a kind of server.
type kind struct {
	name      string   // for people
	script    string   // of deploy/brokers
	ports     []string // what the script calls its ports
	addresses int      // how many lines the script prints

	mu      sync.Mutex
	running *server // the one that tests share
}

// new is one that keeps its data in a directory. environment is of its script, as in
// HEAP=1g.
func (k *kind) new(dir string, environment ...string) (*server, error) {
	script, err := scriptOf(k.script)
	if err != nil {
		return nil, err
	}
	free, err := ports(len(k.ports))
	if err != nil {
		return nil, err
	}
	for i, port := range k.ports {
		environment = append(environment, port+"="+free[i])
	}
	return &server{kind: k, script: script, dir: dir, environment: environment}, nil
}

// run starts one that ends with this program, and then is gone with its data, which is
// in a directory below the one given; default the system's for what passes.
func (k *kind) run(below string, environment ...string) (*server, error) {
	dir, err := os.MkdirTemp(below, "waybill-"+strings.ToLower(k.name)+"-")
	if err != nil {
		return nil, err
	}
	s, err := k.new(dir, environment...)
	if err != nil {
		return nil, err
	}
	err = s.start()
	return s, err
}

// start starts one for this test alone, that may be killed and started again. config
// has lines to add to its configuration.
func (k *kind) start(t testing.TB, config ...string) *server {
	t.Helper()
	s, err := k.new(t.TempDir(), "BROKER_CONFIG="+strings.Join(config, "\n"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s:\n%s", k.name, s.tail("log"))
		}
		if err := s.end(); err != nil {
			t.Errorf("ending %s: %v", k.name, err)
		}
	})
	s.Start(t)
	return s
}

// shared is the one that the tests of this program share, started when it is needed
// first.
func (k *kind) shared(t testing.TB) *server {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.running == nil {
		s, err := k.run("")
		if err != nil {
			t.Fatalf("this test needs %s: %v", k.name, err)
		}
		k.running = s
	}
	return k.running
}

// scriptOf finds a script of deploy/brokers from the working directory. It reads
// it, so that a test's cached result does not outlive a change.
func scriptOf(name string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for at := dir; ; at = filepath.Dir(at) {
		brokers := filepath.Join(at, "deploy", "brokers")
		script := filepath.Join(brokers, name)
		if _, err := os.ReadFile(script); err == nil {
			_, err := os.ReadFile(filepath.Join(brokers, "lib.sh"))
			return script, err
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("no directory above %s has deploy/brokers/%s", dir, name)
		}
	}
}
