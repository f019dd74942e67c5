package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/tracing"
)

const (
	// exitRejected is EX_DATAERR of sysexits.h: the input is wrong for good.
	exitRejected = 65
	// killDelay is how long a cancelled child may tidy up.
	killDelay = 2 * time.Second
)

// child handles each message with a shell command.
type child struct {
	command        string
	stdout, stderr io.Writer
	mu             sync.Mutex // of the streams the children share
}

func (c *child) handle(ctx context.Context, d *client.Delivery) error {
	return c.run(ctx, d.Data, environment(d), &shared{mu: &c.mu, w: c.stdout})
}

// run runs the command once.
func (c *child) run(ctx context.Context, input []byte, env []string, stdout io.Writer) error {
	tail := &tail{limit: protocol.MaxErrorText}
	cmd := exec.CommandContext(ctx, "sh", "-c", c.command) //nolint:gosec // the operator's own command
	cmd.Stdin = bytes.NewReader(input)                     // a child that does not read it is no failure
	cmd.Stdout = stdout
	cmd.Stderr = io.MultiWriter(tail, &shared{mu: &c.mu, w: c.stderr})
	cmd.Env = slices.Concat(os.Environ(), env, tracing.Environment(ctx))
	// The child has a group of its own, so that what it started ends with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = killDelay
	err := cmd.Run()
	if ctx.Err() != nil && cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // gone already, if it heeded SIGTERM
	}
	return outcome(ctx, err, tail)
}

// outcome is what a child's end means.
func outcome(ctx context.Context, err error, stderr *tail) error {
	failure, exited := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay): // it left something behind that held its streams open
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", context.Cause(ctx), ctx.Err())
	case exited && failure.ExitCode() == exitRejected:
		return client.Reject(stderr.or(failure))
	case exited:
		return stderr.or(failure)
	default:
		return fmt.Errorf("the command could not be run: %w", err)
	}
}

// environment is what a child knows of its message besides the payload.
func environment(d *client.Delivery) []string {
	headers := d.Headers()
	env := make([]string, 0, 6+len(headers))
	env = append(env,
		"WAYBILL_MESSAGE_ID="+d.ID,
		"WAYBILL_EXECUTION="+d.Execution,
		"WAYBILL_ROUTE="+d.Route,
		"WAYBILL_TOPIC="+d.Topic,
		"WAYBILL_ATTEMPT="+strconv.Itoa(d.Attempt),
		"WAYBILL_MAX_RETRIES="+strconv.Itoa(d.MaxRetries),
		"WAYBILL_GROUP="+d.Group,
		"WAYBILL_GENERATION="+strconv.Itoa(d.Generation),
	)
	for name, value := range headers {
		env = append(env, "WAYBILL_HEADER_"+variable(name)+"="+value)
	}
	return env
}

// variable is a header's name as the shell takes it: in capitals, _ for
// anything but letters and digits.
func variable(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		default:
			return '_'
		}
	}, name)
}

// shared lets children write to one stream.
type shared struct {
	mu *sync.Mutex
	w  io.Writer
}

func (s *shared) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(p)
}

// tail keeps the last bytes written.
type tail struct {
	limit int
	b     []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	if extra := len(t.b) - t.limit; extra > 0 {
		t.b = append(t.b[:0], t.b[extra:]...)
	}
	return len(p), nil
}

// or is what was written as an error, or err if nothing was.
func (t *tail) or(err error) error {
	if text := strings.TrimSpace(string(t.b)); text != "" {
		return errors.New(text)
	}
	return err
}
