package main

import (
	"context"
	"time"
)

// system is one of the things that are compared.
type system struct {
	name    string
	title   string
	serve   []string // arguments that make this program its server; none: it needs none
	connect func(ctx context.Context, url string) (broker, error)
	// at is where the queues of one measurement are, for the systems beside a broker,
	// and adapter how the mesh is told: "NAME KEY", or "NAME " if at is its whole
	// configuration.
	at, adapter string
	beside      *beside // what that broker is; nil: it is on none
}

// The systems, by name.
const (
	raw         = "raw"
	rawAlways   = "raw-always"
	mesh2m      = "mesh-2m"
	meshAlways  = "mesh-always"
	rawEach     = "raw-each"
	inProcess   = "in-process"
	rawRabbit   = "raw-rabbitmq"
	meshRabbit  = "mesh-rabbitmq"
	rawArtemis  = "raw-artemis"
	meshArtemis = "mesh-artemis"
	rawPulsar   = "raw-pulsar"
	meshPulsar  = "mesh-pulsar"
)

// systems are in the order they take turns. The two that are like each other
// are neighbours: what each answers for is the same.
var systems = []system{
	{name: raw, title: "raw JetStream, sync 2m", serve: []string{"serve-raw", "--sync=2m"}, connect: connectRaw},
	{name: mesh2m, title: "mesh, sync 2m", serve: []string{"serve-mesh", "--sync=2m"}, connect: connectMesh},
	{name: rawAlways, title: "raw JetStream, sync always", serve: []string{"serve-raw", "--sync=always"}, connect: connectRaw},
	{name: meshAlways, title: "mesh, sync always", serve: []string{"serve-mesh", "--sync=always"}, connect: connectMesh},
	{name: rawEach, title: "raw JetStream, sync 2m, a consumer for each queue", serve: []string{"serve-raw", "--sync=2m"}, connect: connectRawEach},
	{name: inProcess, title: "a Go channel", connect: func(context.Context, string) (broker, error) { return newInProcess(), nil }},
}

// broker is a system as its users see it. Queues have numbers.
type broker interface {
	// work has the messages of all queues, or those of one topic by each of its
	// observers, handled until close.
	work(ctx context.Context, w work) error
	// publish sends without waiting for the answer, within a window of
	// unanswered ones.
	publish(ctx context.Context, queue int, payload []byte) error
	// flush returns when all that was published is answered, and fails if any
	// was refused.
	flush(ctx context.Context) error
	// left counts what is not settled, wherever it waits, and the dead letters.
	left(ctx context.Context) (unsettled, dead int64, err error)
	// redrive sends all dead letters to their queues again. It returns when
	// that is certain to happen.
	redrive(ctx context.Context) error
	close(ctx context.Context) error
}

// work is what work does.
type work struct {
	queues  int
	backoff func(queue int) time.Duration // before a failed message comes again
	handle  func(payload []byte) verdict
	// observers of a topic, which is then what is published to; 0: there are
	// queues.
	observers int
	filter    string // of the observers; empty: none
}

// verdict is how a handler ends.
type verdict int

const (
	done   verdict = iota // acknowledged
	failed                // comes again after the queue's backoff
	dead                  // dead-lettered
)

const (
	// window is how many publishes may be unanswered.
	window = 4096
	// inHand is how many messages may be in workers' hands, of all queues.
	inHand = 8192
)
