package harness

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Process is a child process. What it prints is shown when its test fails; that
// it panics or races fails it.
type Process struct {
	t    testing.TB
	name string
	cmd  *exec.Cmd
	out  output
	done chan struct{}
}

// spawn starts a process in a group of its own and kills it when the test ends,
// at the latest. Its standard output goes to stdout as well, if there is one.
func spawn(t testing.TB, name string, cmd *exec.Cmd, stdout io.Writer) *Process {
	t.Helper()
	p := &Process{t: t, name: name, cmd: cmd, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &p.out, &p.out
	if stdout != nil {
		cmd.Stdout = stdout
	}
	cmd.SysProcAttr = ownGroup()
	if err := cmd.Start(); err != nil {
		t.Fatalf("%s does not start: %v", name, err)
	}
	go func() {
		_ = cmd.Wait() // ProcessState says how it ended
		close(p.done)
	}()
	t.Cleanup(p.cleanUp)
	return p
}

func (p *Process) cleanUp() {
	p.Kill()
	text := p.out.String()
	if fault := faults.FindString(text); fault != "" {
		p.t.Errorf("%s: %s", p.name, fault)
	}
	if p.t.Failed() {
		p.t.Logf("output of %s (%v):\n%s", p.name, p.cmd.ProcessState, text)
	}
}

var faults = regexp.MustCompile(`(?m)^(panic: .*|fatal error: .*|WARNING: DATA RACE)$`)

// PID is the process's id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Kill ends the process and its children with SIGKILL and waits for its end.
func (p *Process) Kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}

// Terminate asks the process to end, with SIGTERM, and does not wait.
func (p *Process) Terminate() { p.signal(syscall.SIGTERM) }

// Interrupt sends SIGINT, as Ctrl-C does.
func (p *Process) Interrupt() { p.signal(syscall.SIGINT) }

// Pause stops the process where it stands, with SIGSTOP, until Resume.
func (p *Process) Pause() { p.signal(syscall.SIGSTOP) }

// Resume lets a paused process go on.
func (p *Process) Resume() { p.signal(syscall.SIGCONT) }

func (p *Process) signal(s syscall.Signal) {
	if err := syscall.Kill(-p.cmd.Process.Pid, s); err != nil && !errors.Is(err, syscall.ESRCH) && !p.Ended() {
		p.t.Errorf("%s cannot be sent %v: %v", p.name, s, err)
	}
}

// Ended says whether the process has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Exit waits for the end, at most that long, and returns the exit code; -1 if a
// signal ended it.
func (p *Process) Exit(within time.Duration) int {
	p.t.Helper()
	ReceiveWithin(p.t, within, "the end of "+p.name, p.done)
	return p.cmd.ProcessState.ExitCode()
}

// Output is what the process has printed so far, from its last start on.
func (p *Process) Output() string { return p.out.String() }

// Printed waits until the process has printed something the expression matches
// and returns the match and its groups. It fails the test if the process ends
// before.
func (p *Process) Printed(expression *regexp.Regexp) []string {
	p.t.Helper()
	var match []string
	Await(p.t, p.name+" prints "+expression.String(), func() bool {
		ended := p.Ended()
		match = expression.FindStringSubmatch(p.Output())
		if match == nil && ended {
			p.t.Fatalf("%s ended (%v) without printing %s:\n%s", p.name, p.cmd.ProcessState, expression, p.Output())
		}
		return match != nil
	})
	return match
}

// output keeps what a process prints: the beginning, and the newest.
type output struct {
	mu   sync.Mutex
	head strings.Builder
	tail []byte
}

const keepOutput = 64 << 10

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(b)
	if room := keepOutput - o.head.Len(); room > 0 {
		o.head.Write(b[:min(room, n)])
		b = b[min(room, n):]
	}
	o.tail = append(o.tail, b...)
	if len(o.tail) > 2*keepOutput {
		o.tail = append(o.tail[:0], o.tail[len(o.tail)-keepOutput:]...)
	}
	return n, nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.tail) == 0 {
		return o.head.String()
	}
	return o.head.String() + "\n…\n" + string(o.tail)
}

// environment is this process's with some variables added.
func environment(add ...string) []string { return append(os.Environ(), add...) }
