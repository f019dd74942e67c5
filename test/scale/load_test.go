package scale_test

import (
	"context"
	"encoding/binary"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/test/harness"
)

// atLarge is one of two sizes: full with WAYBILL_SOAK, else small.
func atLarge[T any](t *testing.T, full, small T) T {
	t.Helper()
	if harness.Soak(t) > 0 {
		return full
	}
	return small
}

// alone has the machine to itself at full size, when figures count; small tests
// run side by side.
func alone(t *testing.T) {
	t.Helper()
	if harness.Soak(t) == 0 {
		t.Parallel()
	}
}

// most reports a figure and, at full size, fails the test if it is over the bound.
func most[T int64 | time.Duration](t *testing.T, what string, figure, bound T) {
	t.Helper()
	if harness.Soak(t) > 0 && figure > bound {
		t.Errorf("%s: %v, want at most %v", what, figure, bound)
	}
}

const (
	mebibyte = 1 << 20
	longest  = 30 * time.Minute // that a handler may take
)

// publishing is what a test publishes to, of payloads that begin with a number.
type publishing struct {
	t         *testing.T
	publisher *client.Publisher
	size      int // of a payload
	failed    atomic.Int64
}

func startPublishing(t *testing.T, c *client.Client, size int) *publishing {
	t.Helper()
	publisher, err := c.NewPublisher(client.Window(window(size)), client.AnswerTimeout(harness.Guard))
	if err != nil {
		t.Fatal(err)
	}
	return &publishing{t: t, publisher: publisher, size: size}
}

// window is how many messages may be unanswered: a lane refuses more than 64 MiB
// that it has still to write.
func window(size int) int { return min(4096, 16*mebibyte/size) }

// publish publishes a message with the number.
func (p *publishing) publish(to client.Destination, number int) {
	p.t.Helper()
	err := p.publisher.PublishFunc(p.t.Context(), client.Message{To: to, Data: numbered(number, p.size)}, func(_ *client.Receipt, err error) {
		if err != nil && p.failed.Add(1) == 1 {
			p.t.Errorf("a publish is refused: %v", err)
		}
	})
	if err != nil {
		p.t.Fatal(err)
	}
}

// finish returns when all is answered.
func (p *publishing) finish() {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 2*harness.Guard)
	defer cancel()
	if err := p.publisher.Flush(ctx); err != nil || p.failed.Load() > 0 {
		p.t.Fatalf("%d publishes are refused (%v)", p.failed.Load(), err)
	}
}

func numbered(number, size int) []byte {
	return binary.BigEndian.AppendUint64(make([]byte, 0, size), uint64(number))[:size]
}

func numberOf(data []byte) int { return int(binary.BigEndian.Uint64(data)) }

// book counts how often each number is handled.
type book struct {
	t       *testing.T
	times   []atomic.Int32
	handled atomic.Int64
}

func newBook(t *testing.T, numbers int) *book {
	return &book{t: t, times: make([]atomic.Int32, numbers)}
}

func (b *book) handle(_ context.Context, d *client.Delivery) error {
	b.times[numberOf(d.Data)].Add(1)
	b.handled.Add(1)
	return nil
}

// await returns when that many deliveries have been handled.
func (b *book) await(n int, within time.Duration) {
	b.t.Helper()
	harness.AwaitWithin(b.t, within, "the messages to be handled", func() bool { return b.handled.Load() >= int64(n) })
}

// once fails the test unless those that are expected were handled once, and the
// others never.
func (b *book) once(expected func(number int) bool) {
	b.t.Helper()
	lost, repeated := 0, 0
	for i := range b.times {
		switch n := int(b.times[i].Load()); {
		case n == 0 && expected(i):
			lost++
		case n > 1 || n > 0 && !expected(i):
			repeated++
		}
	}
	if lost+repeated > 0 {
		b.t.Errorf("of %d messages %d are lost and %d were handled too often", len(b.times), lost, repeated)
	}
}

func all(int) bool { return true }

// timed is how long f takes.
func timed(f func()) time.Duration {
	began := time.Now()
	f()
	return time.Since(began).Round(time.Millisecond)
}

// figuref logs a test's line of figures, with the machine's load.
func figuref(t *testing.T, format string, args ...any) {
	t.Helper()
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf(format+" (load %s)", append(args, strings.Fields(string(load))[0])...)
}
