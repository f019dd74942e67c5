package observer_test

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/test/harness"
)

// Every observer is called once for each message, with the payload as it was
// published, whatever JSON that is.
func TestEveryObserverHasEachMessageOnce(t *testing.T) {
	t.Parallel()
	m := harness.Start(t)
	c := m.Connect()
	payloads := []string{`1`, `null`, `"x"`, `{}`, `[]`, "", "\x00\xff{"}
	var diaries []*diary
	for i := range 3 {
		d := newDiary(t)
		diaries = append(diaries, d)
		observe(t, c, d.handle, client.ID("o"+strconv.Itoa(i)))
	}
	publish(t, c, 3, payloads...)
	for i, d := range diaries {
		d.await(len(payloads))
		balanced(t, m, queueOf("o"+strconv.Itoa(i)))
		d.once(payloads...)
	}
}

// What fails is tried again for that observer alone, three times where nothing is
// said, after a second and after two; then it is a dead letter of its queue.
func TestRetriesOfOneObserver(t *testing.T) {
	t.Parallel()
	m := harness.Start(t)
	c := m.Connect()
	failing, strict, other := newDiary(t), newDiary(t), newDiary(t)
	failing.fails, strict.fails = errTold, errTold
	observe(t, c, failing.handle, client.ID("failing"))
	observe(t, c, strict.handle, client.ID("strict"), client.MaxRetries(1))
	observe(t, c, other.handle, client.ID("other"))
	publish(t, c, 3, "x")
	harness.Await(t, "both have a dead letter", func() bool { return len(m.Dead(queueOf("failing"))) == 1 && len(m.Dead(queueOf("strict"))) == 1 })
	times := failing.times("x")
	if len(times) != 3 || len(strict.times("x")) != 1 || len(other.times("x")) != 1 {
		t.Fatalf("calls: %d, %d and %d", len(times), len(strict.times("x")), len(other.times("x")))
	}
	for i, least := range []time.Duration{time.Second, 2 * time.Second} {
		if gap := times[i+1].Sub(times[i]); gap < least {
			t.Errorf("try %d came %v after the one before, want %v", i+2, gap, least)
		}
	}
	if q := balanced(t, m, queueOf("failing")); q.Dead != 1 || q.Counters[protocol.CountFailed] != 3 {
		t.Errorf("%+v", q)
	}
}

// The members of a group share one queue, in whatever program and namespace, and
// whatever function they are for.
func TestAGroupAcrossNamespaces(t *testing.T) {
	t.Parallel()
	m := harness.Start(t)
	here, there := m.Connect(client.Namespace("here")), m.Connect(client.Namespace("there"))
	d := newDiary(t)
	observe(t, here, d.handle, client.Group("billing"))
	if _, err := there.Handle(t.Context(), "there", "billing::charge", func(ctx context.Context, input []byte) ([]byte, error) {
		return nil, d.handle(ctx, &client.Delivery{Data: input})
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := there.ObserveFunction(t.Context(), topic, "", "billing::charge", client.Group("billing")); err != nil {
		t.Fatal(err)
	}
	payloads := numbered("p", 200)
	publish(t, here, 1, payloads...)
	d.await(len(payloads))
	q := balanced(t, m, topic+"::@billing")
	d.once(payloads...)
	info := m.AwaitObserver(q.Queue, protocol.ObserverActive)
	if len(info.Members) != 2 || info.Group != "billing" || info.Owner != nil {
		t.Errorf("%+v", info)
	}
}

// What is published after an observer is ready is received.
func TestNothingIsMissedOnceReady(t *testing.T) {
	t.Parallel()
	m := harness.Start(t)
	c, p := m.Connect(), m.Connect()
	for i := range 30 {
		d := newDiary(t)
		w := observe(t, c, d.handle, client.ID("o"+strconv.Itoa(i)))
		if err := w.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		publish(t, p, 1, "x")
		d.await(1)
		dispose(t, w)
		if removed, err := m.RemoveObserver(queueOf("o" + strconv.Itoa(i))); err != nil || removed.Discarded != 0 {
			t.Fatalf("%+v, %v", removed, err)
		}
	}
}

// Nothing is delivered once an observer is disposed of, under load.
func TestDisposeStopsAtOnce(t *testing.T) {
	t.Parallel()
	m := harness.Start(t)
	c, p := m.Connect(), m.Connect()
	stop := make(chan struct{})
	var publishing sync.WaitGroup
	publishing.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				if _, err := p.Publish(context.Background(), client.Topic(topic), []byte(strconv.Itoa(i))); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	defer publishing.Wait()
	defer close(stop)
	for range 5 {
		d := newDiary(t)
		w := observe(t, c, d.handle, client.ID("a"))
		d.await(20)
		dispose(t, w)
		before := d.total()
		published := m.QueueNamed(queueOf("a")).Counters[protocol.CountPublished]
		harness.Await(t, "more is published", func() bool {
			return m.QueueNamed(queueOf("a")).Counters[protocol.CountPublished] > published+20
		})
		if after := d.total(); after != before {
			t.Fatalf("%d deliveries after it was disposed of", after-before)
		}
	}
}

// While its worker does not serve the function it is for, an observer's messages
// wait, and cost nothing.
func TestAFunctionThatIsNotServed(t *testing.T) {
	t.Parallel()
	m := harness.Start(t)
	c := m.Connect()
	attempts := make(chan string, 10)
	serve := func() *client.Function {
		f, err := c.Handle(t.Context(), "default", "orders::process", func(_ context.Context, input []byte) ([]byte, error) {
			attempts <- string(input)
			return []byte("ignored"), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	if _, err := c.ObserveFunction(t.Context(), topic, "default", "orders::process", client.ID("a"), client.MaxRetries(1)); err != nil {
		t.Fatal(err)
	}
	for _, payload := range []string{"first", "second"} {
		m.AwaitObserver(queueOf("a"), protocol.ObserverNotActive)
		publish(t, c, 1, payload)
		harness.Await(t, "it waits, in nobody's hands", func() bool {
			q := m.QueueNamed(queueOf("a"))
			return q.Ready == 1 && q.InFlight == 0
		})
		f := serve()
		if got := harness.Receive(t, "the delivery", attempts); got != payload {
			t.Errorf("got %q", got)
		}
		balanced(t, m, queueOf("a"))
		if err := f.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if q := m.QueueNamed(queueOf("a")); q.Counters[protocol.CountFailed]+q.Counters[protocol.CountIncomplete] != 0 || q.Counters[protocol.CountAcknowledged] != 2 {
		t.Errorf("%v", q.Counters)
	}
}

// A call that takes longer than the activation timeout fails and is tried again
// while it runs on. What it says later changes nothing.
func TestCallsThatTakeTooLong(t *testing.T) {
	t.Parallel()
	m := harness.Start(t)
	const limit = 2000
	m.Set(protocol.SettingsChange{Observers: protocol.ObserverSettingsChange{ActivationTimeoutMs: new(int64(limit))}})
	c := m.Connect()
	release := make(chan struct{})
	begun := make(chan int, 10)
	var running sync.WaitGroup
	running.Add(3)
	observe(t, c, func(_ context.Context, d *client.Delivery) error {
		defer running.Done()
		begun <- d.Attempt
		<-release
		return nil // late
	}, client.ID("slow"), client.Backoff(time.Millisecond))
	publish(t, c, 1, "x")
	for attempt := 1; attempt <= 3; attempt++ {
		if got := harness.Receive(t, "a call", begun); got != attempt {
			t.Errorf("call %d is of attempt %d", attempt, got)
		}
	}
	var letters []protocol.DeadLetter
	harness.Await(t, "the dead letter, while all three run", func() bool { letters = m.Dead(queueOf("slow")); return len(letters) == 1 })
	if l := letters[0]; l.Attempts != 3 || !strings.HasPrefix(l.Error, string(protocol.CodeTimeout)) {
		t.Errorf("%+v", l)
	}
	close(release)
	running.Wait()
	harness.Await(t, "the late answers are counted", func() bool {
		return m.Stats()["router"].Counters[protocol.CountSuperseded] >= 3
	})
	q := balanced(t, m, queueOf("slow"))
	if q.Dead != 1 || q.Counters[protocol.CountFailed] != 3 || q.Counters[protocol.CountAcknowledged] != 0 {
		t.Errorf("after the late answers: %+v", q)
	}
}
