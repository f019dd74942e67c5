package harness

import (
	"compress/gzip"
	"context"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	collect "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Span is one that was exported, with its ids as text.
type Span struct {
	*otlp.Span

	Service           string
	Trace, ID, Parent string
	Linked            []string // spans' ids, in order
}

// Attribute is the text or number of one of the span's attributes.
func (s *Span) Attribute(key string) any { return attribute(s.GetAttributes(), key) }

func attribute(all []*common.KeyValue, key string) any {
	for _, kv := range all {
		if kv.GetKey() != key {
			continue
		}
		if n, ok := kv.GetValue().GetValue().(*common.AnyValue_IntValue); ok {
			return n.IntValue
		}
		return kv.GetValue().GetStringValue()
	}
	return nil
}

// Collector takes what programs export over OTLP/HTTP.
type Collector struct {
	mu    sync.Mutex
	spans []*Span
}

// StartCollector starts one and has the programs that the test starts from now
// on export to it, soon.
func StartCollector(t *testing.T) *Collector {
	t.Helper()
	c := &Collector{}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
	t.Setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
	return c
}

// TracerProvider has a client of the test's export to the collector too.
func TracerProvider(t *testing.T) *sdk.TracerProvider {
	t.Helper()
	exporter, err := otlptracehttp.New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p := sdk.NewTracerProvider(sdk.WithSyncer(exporter))
	t.Cleanup(func() {
		if err := p.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return p
}

// ServeHTTP implements http.Handler.
func (c *Collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	request, err := exported(r)
	if r.URL.Path != "/v1/traces" || err != nil {
		http.Error(w, "only traces are taken", http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, from := range request.GetResourceSpans() {
		service, _ := attribute(from.GetResource().GetAttributes(), "service.name").(string)
		for _, scope := range from.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				c.spans = append(c.spans, spanOf(service, s))
			}
		}
	}
}

func exported(r *http.Request) (*collect.ExportTraceServiceRequest, error) {
	var body io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		unzipped, err := gzip.NewReader(r.Body)
		if err != nil {
			return nil, err
		}
		body = unzipped
	}
	data, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	var request collect.ExportTraceServiceRequest
	return &request, proto.Unmarshal(data, &request)
}

func spanOf(service string, s *otlp.Span) *Span {
	one := &Span{
		Span: s, Service: service,
		Trace: hex.EncodeToString(s.GetTraceId()), ID: hex.EncodeToString(s.GetSpanId()), Parent: hex.EncodeToString(s.GetParentSpanId()),
	}
	for _, link := range s.GetLinks() {
		one.Linked = append(one.Linked, hex.EncodeToString(link.GetSpanId()))
	}
	return one
}

// Of are the spans of a trace whose names begin so, in the order they began.
func (c *Collector) Of(trace, name string) []*Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []*Span
	for _, s := range c.spans {
		if s.Trace == trace && strings.HasPrefix(s.GetName(), name) {
			found = append(found, s)
		}
	}
	slices.SortFunc(found, func(a, b *Span) int { return int(a.GetStartTimeUnixNano() - b.GetStartTimeUnixNano()) })
	return found
}

// Await is Of, once there are that many.
func (c *Collector) Await(t *testing.T, n int, trace, name string) []*Span {
	t.Helper()
	var found []*Span
	Await(t, name+" is exported", func() bool {
		found = c.Of(trace, name)
		return len(found) >= n
	})
	if len(found) != n {
		t.Errorf("%d spans %q in %s, want %d", len(found), name, trace, n)
	}
	return found
}

// All are those of every trace.
func (c *Collector) All() []*Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.spans)
}
