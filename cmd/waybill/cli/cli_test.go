package cli_test

import (
	"context"
	"encoding/json"
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
	"github.com/waybill-mq/waybill/pkg/client"
)

// guard ends what hangs.
const guard = 3 * time.Minute

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
			"until": until, "gone": gone, "get": get, "json": isJSON, "serve": serve,
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
	env.Setenv("GORACE", "atexit_sleep_ms=0") // else each command waits for a second before it ends
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

// json N checks that the last stdout is N JSON values and nothing else.
func isJSON(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(strings.Join(args, " "))
	ts.Check(err)
	d := json.NewDecoder(strings.NewReader(ts.ReadFile("stdout")))
	for range want {
		var value any
		ts.Check(d.Decode(&value))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		ts.Fatalf("more than %d JSON values", want)
	}
}

// serve serves a function that returns what it is given.
func serve(ts *testscript.TestScript, _ bool, args []string) {
	c, err := client.Connect(context.Background(), ts.Getenv("WAYBILL_NATS"))
	ts.Check(err)
	ts.Defer(func() { ts.Check(c.Close(context.Background())) })
	for _, function := range args {
		_, err := c.Handle(context.Background(), "default", function, func(_ context.Context, input []byte) ([]byte, error) { return input, nil })
		ts.Check(err)
	}
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
