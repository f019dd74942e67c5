package rabbitmq_test

import (
	"strconv"
	"strings"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/test/harness"
)

// unsettled is how many messages the broker has delivered of a queue that nobody has
// settled yet.
func (p *place) unsettled(queue string) int {
	p.Helper()
	for line := range strings.Lines(p.server.Control(p, "list_queues", "--vhost", p.vhost(), "--no-table-headers", "name", "messages_unacknowledged")) {
		name, count, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if n, err := strconv.Atoi(count); err == nil && name == queue {
			return n
		}
	}
	p.Fatalf("the broker has no queue %s", queue)
	return 0
}

// windows: as workers come and go, what is unsettled at the broker is never more than
// the larger of what was asked for and what is, and falls to that.
func (p *place) windows() {
	const queue = "queue:windows:r"
	atMost := func(n int, when string) {
		p.Helper()
		for range 2 {
			if is := p.unsettled(queue); is > n {
				p.Errorf("%s the broker has %d messages unsettled, of %d", when, is, n)
			}
		}
	}
	for range 30 {
		p.publish("windows", "r", "x")
	}
	six, first := harness.Take(p, p.mesh.Connect(client.DrainWindow(harness.Guard)), "windows", "r", client.Concurrency(6))
	held := make([]harness.Taken, 0, 6)
	for range 6 {
		held = append(held, harness.Receive(p, "a delivery to the first worker", six))
	}
	two, _ := harness.Take(p, p.client, "windows", "r", client.Concurrency(2))
	harness.Receive(p, "a delivery to the second", two).End <- nil
	last := []harness.Taken{harness.Receive(p, "another", two), harness.Receive(p, "another", two)}
	atMost(8, "with both")
	stopped := make(chan error, 1)
	go func() { stopped <- first.Stop(p.Context()) }()
	p.awaitPrefetch(queue, 0) // what there is in hand is as much as there was
	last[0].End <- nil
	last[0] = harness.Receive(p, "a delivery in the place of one that has ended", two)
	atMost(8, "while the first worker ends")
	for _, d := range held {
		d.End <- nil
	}
	if err := harness.Receive(p, "the first worker's end", stopped); err != nil {
		p.Error(err)
	}
	p.awaitPrefetch(queue, 2)
	last[1].End <- nil // the last that was delivered before
	last[1] = harness.Receive(p, "another", two)
	harness.Await(p, "the smaller window to hold", func() bool { return p.unsettled(queue) == 2 })
	for _, d := range last {
		d.End <- nil
	}
}
