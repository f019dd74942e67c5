// Package live runs real brokers for tests, with the scripts of deploy/brokers.
// One that cannot be had or started fails the test with the reason.
package live

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// server is one that a script runs. It ends with this process, however that
// does, since the script reads its standard input to the end.
type server struct {
	name        string // for people
	script      string
	dir         string
	environment []string
	cmd         *exec.Cmd
	stdin       io.Closer
	addresses   []string
}

// startFor starts it for a test, with which it ends.
func (s *server) startFor(t testing.TB) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s:\n%s", s.name, s.tail("log"))
		}
		if err := s.end(); err != nil {
			t.Errorf("ending %s: %v", s.name, err)
		}
	})
	s.Start(t)
}

// Start starts it, again after Kill, and returns once it is ready.
func (s *server) Start(t testing.TB) {
	t.Helper()
	if err := s.start(); err != nil {
		t.Fatalf("this test needs %s: %v", s.name, err)
	}
}

// Kill ends it with SIGKILL.
func (s *server) Kill(t testing.TB) {
	t.Helper()
	if err := s.kill(); err != nil {
		t.Fatalf("killing %s: %v", s.name, err)
	}
}

// Address is host and port of what messages go through.
func (s *server) Address() string {
	at, err := url.Parse(s.addresses[0])
	if err != nil {
		return err.Error() // it is what our script prints
	}
	return at.Host
}

// start returns once the server is ready.
func (s *server) start() error {
	s.cmd = exec.Command(s.script, "hold")
	s.cmd.Env = append(os.Environ(), append(s.environment, "BROKER_DIR="+s.dir)...)
	said, err := os.Create(filepath.Join(s.dir, "output"))
	if err != nil {
		return err
	}
	defer said.Close()
	s.cmd.Stderr = said
	stdin, err := s.cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := s.cmd.Start(); err != nil {
		return err
	}
	s.stdin = stdin
	return s.listens(stdout)
}

// listens reads where the server does.
func (s *server) listens(stdout io.Reader) error {
	lines := bufio.NewScanner(stdout)
	s.addresses = nil
	for lines.Scan() {
		if s.addresses = append(s.addresses, lines.Text()); len(s.addresses) == wantAddresses[filepath.Base(s.script)] {
			return nil
		}
	}
	err := errors.Join(lines.Err(), s.end())
	return fmt.Errorf("%s did not get ready: %w\n%s\n%s", s.script, err, s.tail("output"), s.tail("log"))
}

// wantAddresses is how many lines a script prints.
var wantAddresses = map[string]int{"artemis.sh": 3, "pulsar.sh": 2, "rabbitmq.sh": 2, "redis.sh": 1, "toxiproxy.sh": 1}

// end ends the server and removes what is its.
func (s *server) end() error {
	if s.cmd == nil {
		return nil
	}
	closed := s.stdin.Close()
	ended := s.cmd.Wait()
	s.cmd = nil
	return errors.Join(closed, ended)
}

// kill ends the server's own process with SIGKILL and keeps its data.
func (s *server) kill() error {
	pid, err := s.pid()
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return err
	}
	err = s.cmd.Wait()
	s.cmd = nil
	return errors.Join(err, ignoreClosed(s.stdin.Close()))
}

// pid is the server's own process, not the script's.
func (s *server) pid() (int, error) {
	text, err := os.ReadFile(filepath.Join(s.dir, "server.pid"))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

func ignoreClosed(err error) error {
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// CPU is the processor time that the server's own process has used.
func (s *server) CPU() (time.Duration, error) {
	pid, err := s.pid()
	if err != nil {
		return 0, err
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, numbers, _ := strings.Cut(string(text), ") ") // behind the name, which may have spaces
	const user, system, hundredth = 11, 12, 10 * time.Millisecond
	fields := strings.Fields(numbers)
	if len(fields) <= system {
		return 0, fmt.Errorf("the process %d says nothing of its time", pid)
	}
	inUser, err := strconv.Atoi(fields[user])
	if err != nil {
		return 0, err
	}
	inSystem, err := strconv.Atoi(fields[system])
	return time.Duration(inUser+inSystem) * hundredth, err
}

// Log is what it has logged since it was started last.
func (s *server) Log(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// tail is the end of one of the server's files.
func (s *server) tail(name string) string {
	const most = 8 << 10
	text, err := os.ReadFile(filepath.Join(s.dir, name))
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-most):])
}

// one is the server of a kind that the tests of this program share.
type one[S any] struct {
	sync.Mutex
	running *S
}

// get starts it when it is needed first.
func (o *one[S]) get(t testing.TB, name string, run func() (*S, error)) *S {
	t.Helper()
	o.Lock()
	defer o.Unlock()
	if o.running == nil {
		s, err := run()
		if err != nil {
			t.Fatalf("this test needs %s: %v", name, err)
		}
		o.running = s
	}
	return o.running
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

// ports finds n successive ports that are free. They are below those the system
// gives to clients: a client that looks for a server that is down must not be
// given the server's port, nor be connected to itself.
func ports(n int) ([]string, error) {
	const lowest, highest = 20000, 32000
	for range 100 {
		first := lowest + rand.IntN(highest-lowest-n)
		if !free(first, n) {
			continue
		}
		found := make([]string, n)
		for i := range found {
			found[i] = strconv.Itoa(first + i)
		}
		return found, nil
	}
	return nil, fmt.Errorf("no %d free ports in a row from %d to %d", n, lowest, highest)
}

func free(first, n int) bool {
	for port := first; port < first+n; port++ {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			return false
		}
		l.Close()
	}
	return true
}
