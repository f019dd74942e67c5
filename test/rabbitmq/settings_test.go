package rabbitmq_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker/brokertest/live"
	"github.com/waybill-mq/waybill/test/harness"
)

// mostMessages is the limit of a queue.
const mostMessages = 30

// configured are the arguments of a mesh whose adapter has further keys.
func configured(t *testing.T, address, settings string) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "waybill.yaml")
	text := fmt.Sprintf("run_jobs_in: worker\nadapter:\n  name: rabbitmq\n  config: {amqp_url: %q, %s}\nlimits: {queue_messages: %d}\n", address, settings, mostMessages)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"--config", path}
}

// settings are two meshes on one RabbitMQ, each with other settings.
type settings struct {
	place

	other    *harness.Mesh // in order by default
	otherApp *client.Client
}

// TestSettings: each setting of the adapter has its effect, which the broker's own
// tools show.
func TestSettings(t *testing.T) {
	t.Parallel()
	server := live.SharedRabbitMQ(t)
	at := server.VirtualHost(t)
	mesh := harness.Start(t, configured(t, at, "max_attempts: 2, prefetch_count: 4, queue_mode: somehow, priority_field: urgency")...)
	other := harness.Start(t, configured(t, at, "queue_mode: fifo")...)
	if out := mesh.Process().Output(); !strings.Contains(out, "queue_mode") || !strings.Contains(out, "standard") {
		t.Errorf("nothing is said of a mode that there is not: %s", out)
	}
	for name, test := range map[string]func(*settings){
		"MaxAttempts": (*settings).maxAttempts, "Prefetch": (*settings).prefetch, "InOrderByDefault": (*settings).inOrder,
		"PriorityField": (*settings).priorityField, "JobsOfTakers": (*settings).jobsOfTakers, "Effective": (*settings).effective,
		"Quota": (*settings).quota,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, o := mesh.For(t), other.For(t)
			test(&settings{place{T: t, mesh: m, server: server, amqp: at, client: m.Connect(client.Namespace("blue"))}, o, o.Connect(client.Namespace("green"))})
		})
	}
}

// maxAttempts: who says nothing has as many tries as the adapter says, and who
// does has these.
func (s *settings) maxAttempts() {
	for route, c := range map[string]struct {
		tries int
		opts  []client.WorkOption
	}{
		"default": {2, nil},
		"own":     {3, []client.WorkOption{client.MaxRetries(3)}},
	} {
		deliveries := s.work("attempts", route, append(c.opts, client.Backoff(10*time.Millisecond))...)
		s.publish("attempts", route, "x")
		for attempt := 1; attempt <= c.tries; attempt++ {
			d := harness.Receive(s, "an attempt", deliveries)
			if d.Attempt != attempt {
				s.Errorf("%s: attempt %d, want %d", route, d.Attempt, attempt)
			}
			d.End <- errFails
		}
		s.awaitDepth("queue:attempts:"+route+".dlq", 1)
	}
}

// consumer is what the broker says of one.
type consumer struct {
	Prefetch int `json:"prefetch_count"`
	Queue    struct {
		Name string `json:"name"`
	} `json:"queue"`
}

// awaitPrefetch waits until the broker has room for so many at the consumers of a queue.
func (p *place) awaitPrefetch(queue string, n int) {
	p.Helper()
	harness.Await(p, fmt.Sprintf("consumers of %s with room for %d", queue, n), func() bool {
		var all []consumer
		p.server.Admin(p, http.MethodGet, "/api/consumers/"+p.vhost(), nil, &all)
		room := 0
		for _, c := range all {
			if c.Queue.Name == queue {
				room += c.Prefetch
			}
		}
		return room == n
	})
}

// prefetch: as many messages are unsettled as the adapter says, or the subscriber
// does; each subscriber has its own.
func (s *settings) prefetch() {
	first := s.work("prefetch", "r")
	s.awaitPrefetch("queue:prefetch:r", 4)
	for range 3 {
		s.publish("prefetch", "r", "x")
	}
	for range 3 {
		harness.Receive(s, "a delivery", first).End <- nil
	}
	s.work("prefetch", "r")
	s.awaitPrefetch("queue:prefetch:r", 8)
	s.work("prefetch", "own", client.Concurrency(7))
	s.awaitPrefetch("queue:prefetch:own", 7)
}

// inOrder: where the adapter's mode is fifo who says no type has one message after
// the other, and the broker one consumer.
func (s *settings) inOrder() {
	type running struct {
		data string
		end  chan struct{}
	}
	deliveries := make(chan running, 10)
	if _, err := s.otherApp.Observe(s.Context(), "serial", func(_ context.Context, d *client.Delivery) error {
		r := running{string(d.Data), make(chan struct{})}
		deliveries <- r
		<-r.end
		return nil
	}, client.ID("one")); err != nil {
		s.Fatal(err)
	}
	const queue = "iii.serial.observer:one.queue"
	s.awaitPrefetch(queue, 1)
	for _, q := range s.queues() {
		if q.Name == queue && q.Arguments["x-single-active-consumer"] != true {
			s.Errorf("%s is made with %v", queue, q.Arguments)
		}
	}
	for _, data := range []string{"1", "2", "3"} {
		if _, err := s.otherApp.Publish(s.Context(), client.Topic("serial"), []byte(data)); err != nil {
			s.Fatal(err)
		}
	}
	for _, data := range []string{"1", "2", "3"} {
		r := harness.Receive(s, "a delivery", deliveries)
		if r.data != data || len(deliveries) > 0 {
			s.Errorf("%s runs, and %d more, want %s alone", r.data, len(deliveries), data)
		}
		close(r.end)
	}
}

// priorityField: a member of the data is a message's priority where its
// subscriber has priorities, and nowhere else.
func (s *settings) priorityField() {
	got := make(chan string, 10)
	handle := func(_ context.Context, d *client.Delivery) error {
		got <- string(d.Data)
		return nil
	}
	observe := func(id string, opts ...client.WorkOption) *client.Worker {
		w, err := s.client.Observe(s.Context(), "alerts", handle, append(opts, client.ID(id))...)
		if err != nil {
			s.Fatal(err)
		}
		return w
	}
	paused := observe("urgent", client.MaxPriority(9), client.Concurrency(0))
	observe("plain", client.Concurrency(0))
	const queue = "iii.alerts.observer:urgent.queue"
	for _, urgency := range []string{"1", "9", "5"} {
		if _, err := s.client.Publish(s.Context(), client.Topic("alerts"), []byte(`{"urgency":`+urgency+`}`)); err != nil {
			s.Fatal(err)
		}
	}
	s.awaitDepth(queue, 3)
	for _, q := range s.queues() {
		if q.Name == queue && (q.Type != "classic" || q.Arguments["x-max-priority"] != float64(9)) {
			s.Errorf("%s is a %s queue with %v", q.Name, q.Type, q.Arguments)
		}
	}
	ch := s.channel()
	first, there, err := ch.Get(queue, false)
	if err != nil || !there || first.Priority != 9 {
		s.Errorf("the broker's first is %q with priority %d, %v, %v", first.Body, first.Priority, there, err)
	}
	if err := ch.Close(); err != nil { // and has it back
		s.Fatal(err)
	}
	s.awaitDepth(queue, 3)
	if err := paused.Stop(s.Context()); err != nil {
		s.Fatal(err)
	}
	observe("urgent", client.MaxPriority(9), client.Concurrency(1))
	for _, urgency := range []string{"9", "5", "1"} {
		if data := harness.Receive(s, "the most urgent", got); data != `{"urgency":`+urgency+`}` {
			s.Errorf("%s is handled, want %s", data, urgency)
		}
	}
}

// effective: what nobody sets is as documented.
func (s *settings) effective() {
	shown := s.other.Run("config", "show").Stdout
	for _, line := range []string{"max_attempts: 3", "prefetch_count: 10", "queue_mode: fifo", "amqp_url: amqp://"} {
		if !strings.Contains(shown, line) {
			s.Errorf("%q is not in what holds:\n%s", line, shown)
		}
	}
	if strings.Contains(shown, "priority_field") {
		s.Errorf("there is a priority_field:\n%s", shown)
	}
}

// jobsOfTakers: a job runs as the function of whoever takes it, in any app that
// consumes the queue, and is at its first attempt there.
func (s *settings) jobsOfTakers() {
	for _, c := range []*client.Client{s.client, s.otherApp} {
		if _, err := c.Define(s.Context(), "shared", client.QueueConfig{}); err != nil {
			s.Fatal(err)
		}
	}
	type run struct {
		app     string
		attempt int
	}
	runs := make(chan run, 10)
	serve := func(app string, c *client.Client, function string) {
		if _, err := c.Handle(s.Context(), app, function, func(ctx context.Context, _ []byte) ([]byte, error) {
			runs <- run{app, client.JobOf(ctx).Attempt}
			return nil, nil
		}); err != nil {
			s.Fatal(err)
		}
	}
	serve("blue", s.client, "work::here")
	serve("green", s.otherApp, "work::there")
	for range 3 {
		for _, to := range []client.Destination{client.Job("shared", "red", "work::there"), client.Job("shared", "red", "work::here")} {
			if _, err := s.client.Publish(s.Context(), to, []byte(`{}`)); err != nil {
				s.Fatal(err)
			}
		}
	}
	seen := map[run]int{}
	for range 6 {
		seen[harness.Receive(s, "a job's run", runs)]++
	}
	if seen[run{"blue", 1}] != 3 || seen[run{"green", 1}] != 3 {
		s.Errorf("they ran as %v", seen)
	}
	s.awaitDepth("iii.__fn_queue::shared.queue", 0)
}

// quota: a queue's limit counts what the broker holds, whoever put it there.
func (s *settings) quota() {
	const queue = "queue:quota:r"
	full := func() bool {
		_, err := s.client.Publish(s.Context(), client.Queue("quota", "r"), nil)
		if err != nil && protocol.CodeOf(err) != protocol.CodeQuotaExceeded {
			s.Fatal(err)
		}
		return err != nil
	}
	published := 0
	for !full() {
		published++
	}
	// What is published while the broker is looked at is seen at the next look.
	if published < mostMessages-2 || published > 10*mostMessages {
		s.Errorf("%d messages are taken by a queue of %d", published, mostMessages)
	}
	ch := s.channel()
	if _, err := ch.QueuePurge(queue, false); err != nil {
		s.Fatal(err)
	}
	harness.Await(s, "room again", func() bool { return !full() })
	for range mostMessages {
		if err := ch.PublishWithContext(s.Context(), "", queue, true, false, amqp.Publishing{Body: []byte("a stranger's")}); err != nil {
			s.Fatal(err)
		}
	}
	harness.Await(s, "what others put there to count", full)
}
