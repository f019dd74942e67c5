// Package cli is the waybill command.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/willabides/kongplete"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// Exit codes, as `waybill help` explains them.
const (
	ExitOK          = 0
	ExitFailure     = 1 // anything not listed here; filter test: no match; config diff: a difference
	ExitUsage       = 2 // the command line or the configuration is wrong (INVALID_ARGS, INVALID_FILTER)
	ExitRefused     = 3 // the mesh refused, with a code
	ExitUnreachable = 4 // no mesh, or a service of it, answers (UNAVAILABLE)
	ExitTimeout     = 5 // no answer in time (TIMEOUT): it may have happened
	ExitNotFound    = 6 // there is no such thing (NOT_FOUND, FUNCTION_NOT_FOUND)
	ExitDiffers     = 7 // waybill demo: its totals differ from the direct walk
)

const description = `The mesh, and everything an operator asks of it.

Commands other than up, nats, demo, filter, broker capabilities, config check and config schema talk to a running mesh: --nats, or WAYBILL_NATS, says where; config --data DIR to one that is stopped.

Exit codes: 0 done; 1 failed (filter test: no match; config diff: a difference); 2 wrong usage; 3 refused by the mesh, with a code; 4 no mesh or service answers; 5 no answer in time, it may have happened; 6 no such thing; 7 the demo's totals differ.`

type globals struct {
	NATS string `name:"nats" default:"nats://127.0.0.1:4222" env:"WAYBILL_NATS" help:"Where the mesh's NATS is. Default nats://127.0.0.1:4222." placeholder:"URL"`
	JSON bool   `name:"json" help:"Write JSON, for machines."`
}

type commands struct {
	globals

	Up           upCmd           `cmd:"" help:"Run a whole mesh in this process, NATS included."`
	NATS         natsCmd         `cmd:"" name:"nats" help:"Run NATS alone in this process, as the services want it, for those that run each by itself."`
	Demo         demoCmd         `cmd:"" help:"Run a mesh on a fresh directory and send real input through it."`
	Pub          pubCmd          `cmd:"" help:"Publish a message."`
	Work         workCmd         `cmd:"" help:"Handle the messages of a route: print them, or give each to a command."`
	Listen       listenCmd       `cmd:"" help:"Handle the messages of a topic while this runs, in one attempt each."`
	Observe      observeCmd      `cmd:"" help:"Handle the messages of a topic from a durable queue, with retries."`
	Filter       filterCmd       `cmd:"" help:"The filters of observers."`
	Call         callCmd         `cmd:"" help:"Call a function and print what it returns."`
	Enqueue      enqueueCmd      `cmd:"" help:"Leave a job for a function in a named queue; returns when it is stored."`
	Serve        serveCmd        `cmd:"" help:"Serve a function, its calls and its jobs: print the inputs, or give each to a command."`
	Queue        queueCmd        `cmd:"" help:"Queues and what is in them."`
	Subscription subscriptionCmd `cmd:"" help:"Who works on what."`
	Observer     observerCmd     `cmd:"" help:"The observers of topics: look at them, remove those that nobody is any more."`
	DLQ          dlqCmd          `cmd:"" name:"dlq" help:"Dead letters: look at them, redrive them, discard them."`
	Execution    executionCmd    `cmd:"" help:"Executions: what is in them; close them, drop what is left."`
	Retry        retryCmd        `cmd:"" help:"Messages that wait for their time: look at them, release them, cancel them."`
	Webhook      webhookCmd      `cmd:"" help:"Handlers that are called over HTTP: define, list and remove them."`
	Config       configCmd       `cmd:"" help:"The mesh's configuration: look at it, change it, take a change back."`
	Stats        statsCmd        `cmd:"" help:"What the mesh has counted."`
	Why          whyCmd          `cmd:"" help:"One message's life, in order: attempts, waits, dead letter, redrives, and where it is."`
	Reconcile    reconcileCmd    `cmd:"" help:"Compare what the mesh has counted with what it holds; exit 1 if they differ, 4 if not all could be looked at."`
	Diagnose     diagnoseCmd     `cmd:"" help:"Send a message of its own through every route and topic that is subscribed to, and back; exit 1 if one does not get through."`
	Broker       brokerCmd       `cmd:"" help:"The brokers that can keep a mesh's messages."`
	Bench        benchCmd        `cmd:"" help:"A quick look at how fast this mesh is here: messages of its own, published and handled, for a few seconds."`
	Completion   completionCmd   `cmd:"" help:"Print what makes a shell complete waybill's commands and flags."`
	Version      versionCmd      `cmd:"" help:"Print the version."`
}

// Run runs the command line and returns the exit code. ctx ends when the
// program is told to stop.
func Run(ctx context.Context, args []string, version string, stdin io.Reader, stdout, stderr io.Writer) (code int) {
	var c commands
	parser, err := kong.New(&c,
		kong.Name("waybill"), kong.Description(description), kong.UsageOnError(),
		kong.Writers(stdout, stderr), kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.Exit(func(code int) { panic(exit(code)) }), // --help ends there
	)
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "waybill:", err)
		return ExitFailure
	}
	defer catchExit(&code)
	explain(parser)
	kongplete.Complete(parser) // ends there if a shell asks
	command, err := parser.Parse(spelled(args))
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "waybill: %v\n  next: waybill help, or waybill help COMMAND\n", err)
		return ExitUsage
	}
	a := &app{ctx: ctx, stdin: stdin, stdout: stdout, stderr: stderr, version: version, flags: &c.globals}
	if err = checkGiven(command); err == nil {
		err = a.traced(func() error { return a.atRest(c.Config.Data, func() error { return command.Run(a) }) })
	}
	if err != nil && !errors.Is(err, errNoMatch) {
		_, _ = fmt.Fprintf(stderr, "waybill: %v\n", err)
		if next := a.next(command.Selected().Path(), err); next != "" && !strings.Contains(err.Error(), "next: ") {
			_, _ = fmt.Fprintf(stderr, "  next: %s\n", next)
		}
	}
	return exitCode(err)
}

// spelled lets people ask for help the other usual way: waybill help COMMAND.
func spelled(args []string) []string {
	if len(args) > 0 && args[0] == "help" {
		return append(slices.Clone(args[1:]), "--help")
	}
	return args
}

// next is the command to type after an error that names none itself.
func (a *app) next(asked string, err error) string {
	there := func(rest, why string) string { return command(a.flags.NATS, rest) + " " + why }
	switch protocol.CodeOf(err) {
	case protocol.CodeInvalidArgs, protocol.CodeInvalidName, protocol.CodeReservedHeader:
		return "waybill help " + asked
	case protocol.CodeQuotaExceeded:
		return there("queue ls", "shows what fills it")
	case protocol.CodeFunctionNotFound:
		return there("stats", "shows how many functions are served")
	case protocol.CodeTimeout:
		return there("stats", "shows which services answer")
	default:
		return ""
	}
}

type exit int

func catchExit(code *int) {
	switch r := recover().(type) {
	case nil:
	case exit:
		*code = int(r)
	default:
		panic(r)
	}
}

// errDiffers makes demo exit with ExitDiffers.
var errDiffers = errors.New("the totals differ from the direct walk")

func exitCode(err error) int {
	if err == nil {
		return ExitOK
	}
	if errors.Is(err, errDiffers) {
		return ExitDiffers
	}
	switch protocol.CodeOf(err) {
	case "", protocol.CodeInternal:
		return ExitFailure
	case protocol.CodeInvalidArgs, protocol.CodeInvalidFilter:
		return ExitUsage
	case protocol.CodeUnavailable:
		return ExitUnreachable
	case protocol.CodeTimeout:
		return ExitTimeout
	case protocol.CodeNotFound, protocol.CodeFunctionNotFound:
		return ExitNotFound
	default:
		return ExitRefused
	}
}

// Main is the program: signals, streams and exit code.
func Main(version string) int {
	ctx, stop := notify(context.Background())
	code := Run(ctx, os.Args[1:], version, os.Stdin, os.Stdout, os.Stderr)
	return cmp.Or(stop(), code)
}
