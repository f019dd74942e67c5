package chaos_test

import (
	"context"
	"testing"
	"time"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/test/harness"
)

// The only router stands still for longer than the deliveries it has given out
// may take, and they are handled meanwhile: their answers, which it has not read
// yet when it goes on, count, and no time limit does.
func TestAnAnswerInTimeCountsAfterAStandstill(t *testing.T) {
	t.Parallel()
	m := harness.StartSeparate(t, nil)
	for _, limit := range []time.Duration{5 * time.Second, 20 * time.Second, 80 * time.Second} {
		if standsStill(t, m, "within-"+limit.String(), limit) {
			return
		}
		t.Logf("%v are not enough for this machine", limit)
	}
	t.Error("the time limit is always over before the router stands still")
}

// standsStill says whether all answers were in time: on a machine that is slow the limit
// may be over before.
func standsStill(t *testing.T, m *harness.Separate, execution string, limit time.Duration) (inTime bool) {
	t.Helper()
	const messages = 50
	c := m.Connect()
	defer c.Close(t.Context())
	routes := map[string][]client.WorkOption{"plain": nil, "ordered": {client.FIFO()}}
	// They wait for the workers, so that they begin together: the time of the
	// first must not be up when the last begins.
	for route := range routes {
		for n := range messages {
			if _, err := c.Publish(t.Context(), client.Queue(execution, route), nil, client.InGroup(string(rune('A'+n)))); err != nil {
				t.Fatal(err)
			}
		}
	}
	all := messages * len(routes)
	began, finish, handled := make(chan struct{}, 4*all), make(chan struct{}), make(chan struct{}, 4*all)
	working := time.Now()
	for route, opts := range routes {
		opts = append(opts, client.Timeout(limit), client.Concurrency(messages))
		if _, err := c.Work(t.Context(), execution, route, func(ctx context.Context, _ *client.Delivery) error {
			began <- struct{}{}
			<-finish
			handled <- struct{}{}
			return ctx.Err()
		}, opts...); err != nil {
			t.Fatal(err)
		}
	}
	for range all {
		harness.Receive(t, "a handler begins", began)
	}
	router := m.Instance("router-1")
	router.Pause()
	close(finish)
	for range all {
		harness.Receive(t, "a handler ends", handled)
	}
	if inTime = time.Since(working) < limit; inTime {
		harness.Wait(t, 2*limit)
	}
	router.Resume()
	if !inTime {
		return false
	}
	for route := range routes {
		harness.Await(t, "the messages are settled", func() bool {
			q := m.Queue(execution, route)
			return q.Queue != "" && q.Ready+q.InFlight+q.Waiting+q.Moving == 0
		})
		if q := m.Queue(execution, route); q.Counters[protocol.CountAcknowledged] != messages || q.Counters[protocol.CountFailed] != 0 || len(handled) != 0 {
			t.Errorf("%s: %+v, %d handled again", route, q, len(handled))
		}
	}
	return true
}
