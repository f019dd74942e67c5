// Package live runs real brokers for tests, with the scripts of deploy/brokers.
// One that cannot be had or started fails the test with the reason.
package live

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// server is one that a script runs. It ends with this process, however that
// does, since the script reads its standard input to the end.
type server struct {
	kind        *kind
	script      string
	dir         string
	environment []string
	cmd         *exec.Cmd
	stdin       io.Closer
	addresses   []string
	reserved    []int // sockets, while it is killed
}

// Start starts it, again after Kill, and returns once it is ready.
func (s *server) Start(t testing.TB) {
	t.Helper()
	if err := s.start(); err != nil {
		t.Fatalf("this test needs %s: %v", s.kind.name, err)
	}
}

// Kill ends it with SIGKILL.
func (s *server) Kill(t testing.TB) {
	t.Helper()
	if err := s.kill(); err != nil {
		t.Fatalf("killing %s: %v", s.kind.name, err)
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
	if err := s.release(); err != nil {
		return err
	}
	s.cmd = exec.Command(s.script, "hold")
	s.cmd.Env = s.environ()
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

// environ is what its script is run with.
func (s *server) environ() []string {
	return append(os.Environ(), append(s.environment, "BROKER_DIR="+s.dir)...)
}

// run runs its script and returns what that prints.
func (s *server) run(t testing.TB, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), s.script, args...)
	cmd.Env = s.environ()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", filepath.Base(s.script), strings.Join(args, " "), err, out)
	}
	return string(out)
}

// listens reads where the server does.
func (s *server) listens(stdout io.Reader) error {
	lines := bufio.NewScanner(stdout)
	s.addresses = nil
	for lines.Scan() {
		if s.addresses = append(s.addresses, lines.Text()); len(s.addresses) == s.kind.addresses {
			return nil
		}
	}
	err := errors.Join(lines.Err(), s.end())
	return fmt.Errorf("%s did not get ready: %w\n%s\n%s", s.script, err, s.tail("output"), s.tail("log"))
}

// end ends the server and removes what is its.
func (s *server) end() error {
	if s.cmd == nil {
		return s.release()
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
	s.reserve()
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
