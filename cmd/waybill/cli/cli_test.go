package cli_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/waybill-mq/waybill/cmd/waybill/cli"
	"github.com/waybill-mq/waybill/cmd/waybill/up"
)

// guard ends what hangs.
const guard = 30 * time.Second

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"waybill": func() { os.Exit(cli.Main("v1.2.3")) },
	})
}

// TestCommands runs testdata/*.txtar, each against a mesh of its own.
func TestCommands(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:   "testdata",
		Setup: startMesh,
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"until": until, "gone": gone, "get": get,
		},
		RequireUniqueNames: true,
	})
}

func startMesh(env *testscript.Env) error {
	m, err := up.Start(context.Background(), up.Options{Data: env.WorkDir + "/mesh", Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0"})
	if err != nil {
		return err
	}
	env.Defer(func() {
		if err := m.Stop(context.Background()); err != nil {
			panic(err)
		}
	})
	env.Setenv("WAYBILL_NATS", m.NATS())
	env.Setenv("HTTP", m.HTTP())
	return nil
}

// until PATTERN COMMAND… runs the command again and again until its output
// matches.
func until(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: until PATTERN COMMAND...")
	}
	pattern := regexp.MustCompile("(?m)" + args[0])
	poll(ts, "its output matches "+args[0], func() bool {
		ts.Check(ts.Exec(args[1], args[2:]...))
		return pattern.MatchString(ts.ReadFile("stdout"))
	})
}

// gone FILE returns when the process whose id is in the file has ended.
func gone(ts *testscript.TestScript, _ bool, args []string) {
	pid, err := strconv.Atoi(strings.TrimSpace(ts.ReadFile(args[0])))
	ts.Check(err)
	poll(ts, "the process has ended", func() bool {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) || err == nil && strings.Contains(string(status), "State:\tZ")
	})
}

// get FILE PATH reads the path from the HTTP address in the output of waybill
// up, into stdout.
func get(ts *testscript.TestScript, _ bool, args []string) {
	address := regexp.MustCompile(`HTTP (http://[0-9.:]+)`).FindStringSubmatch(ts.ReadFile(args[0]))[1]
	answer, err := http.Get(address + args[1])
	ts.Check(err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	ts.Check(err)
	fmt.Fprintf(ts.Stdout(), "%d %s", answer.StatusCode, body)
}

func poll(ts *testscript.TestScript, what string, there func() bool) {
	deadline := time.NewTimer(guard)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !there() {
		select {
		case <-tick.C:
		case <-deadline.C:
			ts.Fatalf("waited in vain until %s", what)
		}
	}
}
