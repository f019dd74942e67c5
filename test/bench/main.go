// Command bench measures the mesh beside raw JetStream on the machine it runs
// on. Every scenario runs on every system in turn, round after round, so that
// what the machine does meanwhile happens to all of them; each measurement has
// a server of its own, in a process of its own, on a fresh directory. A message
// lost, repeated or dead-lettered in any of them fails the run.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

var version = "dev" // set by the build

type commands struct {
	Run       runCommand       `cmd:"" default:"withargs"   help:"Measure (the default)."`
	ServeRaw  serveRawCommand  `cmd:"" hidden:""            help:"Be the server of a raw measurement."`
	ServeMesh serveMeshCommand `cmd:"" hidden:""            help:"Be the mesh of a measurement."`
}

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	var c commands
	parser := kong.Must(&c, kong.Name("bench"), kong.Description("Measures the mesh beside raw JetStream on this machine."), kong.UsageOnError(), kong.Vars{
		"tmp":       os.TempDir(),
		"scenarios": names(scenarios(full), func(s scenario) string { return s.name }),
		"brokers":   brokerNames(),
		"systems":   names(systems, func(s system) string { return s.name }),
	})
	chosen, err := parser.Parse(args)
	if err != nil {
		parser.FatalIfErrorf(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	chosen.BindTo(ctx, (*context.Context)(nil))
	if err := chosen.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	return 0
}
