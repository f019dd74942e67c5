package trace_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/baggage"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/tracing"
	"github.com/waybill-mq/waybill/test/harness"
)

// declining is a client whose sampler chooses nothing.
func declining(m *harness.Mesh) *client.Client {
	return m.Connect(client.TracerProvider(sdk.NewTracerProvider(sdk.WithSampler(sdk.NeverSample()))))
}

// What a publisher's sampler does not choose nobody decides on again, though all
// the others sample all: not the mesh, not the worker's SDK, not who takes what
// its handler publishes.
func TestDeclinedOnce(t *testing.T) {
	c := harness.StartCollector(t)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
	m := harness.Start(t)
	f := &foreign{plain: startPlain(t, m, "next"), c: c}
	spans := tracetest.NewSpanRecorder()
	worker := m.Connect(client.TracerProvider(sdk.NewTracerProvider(sdk.WithSpanProcessor(spans))))
	handle := func(ctx context.Context, d *client.Delivery) error {
		if sc := trace.SpanContextFromContext(ctx); !sc.IsValid() || sc.IsSampled() || d.Header(protocol.HeaderTraceparent) != "" {
			t.Errorf("attempt %d is handled in %v, with the headers %v", d.Attempt, sc, d.Headers())
		}
		if d.Attempt == 1 {
			return errors.New("not yet")
		}
		_, err := worker.Publish(ctx, client.Queue("next", "step"), []byte("on"))
		return err
	}
	if _, err := worker.Work(t.Context(), "declined", "step", handle, client.MaxRetries(3), client.Backoff(10*time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	publish(t, t.Context(), declining(m), "declined")
	f.declined(t, nil)
	publishedWithoutTrace(t, f) // what is exported after it is there
	if ended := spans.Ended(); len(ended) > 0 {
		t.Errorf("the worker made %d spans, the first %s", len(ended), ended[0].Name())
	}
	if all := f.c.All(); slices.ContainsFunc(all, func(s *harness.Span) bool { return s.Trace != all[0].Trace }) {
		t.Errorf("more was exported than one trace: %v", all)
	}
}

// A mesh that makes no spans tells its workers all the same, and baggage travels.
func TestDeclinedOnAMeshWithoutTraces(t *testing.T) {
	m := harness.Start(t)
	f := &foreign{plain: startPlain(t, m, "next")}
	publish(t, t.Context(), declining(m), "next")
	f.declined(t, nil)
	tenant, err := baggage.Parse("tenant=a")
	if err != nil {
		t.Fatal(err)
	}
	publish(t, baggage.ContextWithBaggage(t.Context(), tenant), declining(m), "next")
	f.declined(t, []string{"tenant=a"})
}

func publish(t *testing.T, ctx context.Context, c *client.Client, execution string) { //nolint:revive // t first, as everywhere
	t.Helper()
	if _, err := c.Publish(ctx, client.Queue(execution, "step"), []byte("hello")); err != nil {
		t.Fatal(err)
	}
}

// declined takes a delivery, twice, that says it is not sampled.
func (f *foreign) declined(t *testing.T, want []string) {
	t.Helper()
	for _, outcome := range []protocol.Outcome{protocol.Failed, protocol.Acknowledged} {
		d := f.delivery(t)
		f.answer(t, d, outcome)
		checkDeclined(t, d, want)
	}
}

func checkDeclined(t *testing.T, d *nats.Msg, want []string) {
	t.Helper()
	if got := d.Header[protocol.HeaderTraceparent]; !slices.Equal(got, []string{tracing.DeclinedParent}) || len(d.Header[protocol.HeaderSpan]) > 0 {
		t.Errorf("it was delivered with %v", d.Header)
	}
	if got := d.Header[protocol.HeaderBaggage]; !slices.Equal(got, want) {
		t.Errorf("it was delivered with the baggage %q, want %q", got, want)
	}
}
