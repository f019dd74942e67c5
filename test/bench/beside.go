package main

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/waybill-mq/waybill/services/router/broker/brokertest/live"
)

// beside is a broker that the mesh's queues are on, and a raw client of it. It is
// one server for all measurements.
type beside struct {
	systems []system
	key     string // of the adapter's configuration, which has the address; none: that is all of it
	// cpu is the processor time that the server has used.
	cpu func() (time.Duration, error)
	// place is where nothing is, for one measurement, and how to remove it.
	place func() (at string, remove func() error, err error)
}

// brokers start the broker with its data below a directory.
var brokers = map[string]func(data string) (*beside, error){"artemis": besideArtemis, "pulsar": besidePulsar, "rabbitmq": besideRabbitMQ}

// used is the processor time that the broker has used, if there is one.
func (b *beside) used() (time.Duration, error) {
	if b == nil {
		return 0, nil
	}
	return b.cpu()
}

func besideRabbitMQ(data string) (*beside, error) {
	r, err := live.RunRabbitMQ(data)
	if err != nil {
		return nil, err
	}
	return &beside{key: "amqp_url", cpu: r.CPU, place: r.MakeVirtualHost, systems: []system{
		{name: rawRabbit, title: "raw RabbitMQ, quorum queues", connect: connectAMQP},
		{name: meshRabbit, title: "mesh on RabbitMQ", serve: meshBeside, connect: connectMesh},
	}}, nil
}

func besideArtemis(data string) (*beside, error) {
	a, err := live.RunArtemis(data, "HEAP=1G", "JAVA_OPTIONS=-XX:+UseParallelGC")
	if err != nil {
		return nil, err
	}
	place := func() (string, func() error, error) { return a.URL(), a.Empty, nil }
	return &beside{key: "url", cpu: a.CPU, place: place, systems: []system{
		{name: rawArtemis, title: "raw Artemis over STOMP", connect: connectSTOMP(a.Held)},
		{name: meshArtemis, title: "mesh on Artemis", serve: meshBeside, connect: connectMesh},
	}}, nil
}

func besidePulsar(data string) (*beside, error) {
	p, err := live.RunPulsar(data, "HEAP=1g", "DIRECT=512m", "JAVA_OPTIONS=-XX:+UseParallelGC")
	if err != nil {
		return nil, err
	}
	place := func() (string, func() error, error) { return placeOnPulsar(p) }
	return &beside{cpu: p.CPU, place: place, systems: []system{
		{name: rawPulsar, title: "raw Pulsar, unbatched", connect: connectPulsar(p)},
		{name: meshPulsar, title: "mesh on Pulsar", serve: meshBeside, connect: connectMesh},
	}}, nil
}

var meshBeside = []string{"serve-mesh", "--sync=always"}

// brokerNames are those of brokers, for people.
func brokerNames() string { return strings.Join(slices.Sorted(maps.Keys(brokers)), ", ") }
