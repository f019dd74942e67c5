package rabbitmq_test

import (
	"strconv"
	"strings"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/test/harness"
)

// unsettled is how many messages the broker has delivered of a queue that nobody has
// settled yet, by the queue itself: what is listed of it is some seconds old.
func (p *place) unsettled(queue string) int {
	p.Helper()
	said := p.server.Control(p, "eval", "{ok, {_, Of}, _} = ra:local_query({'"+p.vhost()+"_"+queue+"', node()}, fun rabbit_fifo:overview/1), maps:get(num_checked_out, Of).")
	n, err := strconv.Atoi(strings.TrimSpace(said))
	if err != nil {
		p.Fatalf("the queue %s says %q", queue, said)
	}
	return n
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
	last[0].End <- nil
	last[0] = harness.Receive(p, "a delivery in the place of one that has ended", two)
	atMost(8, "while the first worker ends")
	for _, d := range held {
		d.End <- nil
	}
	if err := harness.Receive(p, "the first worker's end", stopped); err != nil {
		p.Error(err)
	}
	for i := range last { // what was delivered before does not count any more when it has ended
		last[i].End <- nil
		last[i] = harness.Receive(p, "another", two)
	}
	p.awaitPrefetch(queue, 2)
	harness.Await(p, "the smaller window to hold", func() bool { return p.unsettled(queue) == 2 })
	for _, d := range last {
		d.End <- nil
	}
}
