package cli_test

import (
	"context"
	"os"
	"regexp"
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
		Dir:                "testdata",
		Setup:              startMesh,
		Cmds:               map[string]func(ts *testscript.TestScript, neg bool, args []string){"until": until},
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
	deadline := time.NewTimer(guard)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		ts.Check(ts.Exec(args[1], args[2:]...))
		if pattern.MatchString(ts.ReadFile("stdout")) {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			ts.Fatalf("output never matched %q", args[0])
		}
	}
}
