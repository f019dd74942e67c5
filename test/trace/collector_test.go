package trace_test

import (
	"compress/gzip"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	collect "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/waybill-mq/waybill/test/harness"
)

// span is one that was exported, with its ids as text.
type span struct {
	*otlp.Span

	service           string
	trace, id, parent string
	links             []string // spans' ids, in order
}

// attribute is the text or number of one of the span's attributes.
func (s *span) attribute(key string) any { return attribute(s.GetAttributes(), key) }

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

// collector takes what programs export over OTLP/HTTP.
type collector struct {
	url string

	mu    sync.Mutex
	spans []*span
}

// startCollector starts one and has the programs that the test starts from now
// on export to it, soon.
func startCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	c.url = server.URL
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.url)
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
	t.Setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
	return c
}

// ServeHTTP implements http.Handler.
func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	request, err := read(r)
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
				c.spans = append(c.spans, taken(service, s))
			}
		}
	}
}

func read(r *http.Request) (*collect.ExportTraceServiceRequest, error) {
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

func taken(service string, s *otlp.Span) *span {
	one := &span{
		Span: s, service: service,
		trace: hex.EncodeToString(s.GetTraceId()), id: hex.EncodeToString(s.GetSpanId()), parent: hex.EncodeToString(s.GetParentSpanId()),
	}
	for _, link := range s.GetLinks() {
		one.links = append(one.links, hex.EncodeToString(link.GetSpanId()))
	}
	return one
}

// of are the spans of a trace whose names begin so, in the order they began.
func (c *collector) of(trace, name string) []*span {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []*span
	for _, s := range c.spans {
		if s.trace == trace && strings.HasPrefix(s.GetName(), name) {
			found = append(found, s)
		}
	}
	slices.SortFunc(found, func(a, b *span) int { return int(a.GetStartTimeUnixNano() - b.GetStartTimeUnixNano()) })
	return found
}

// await is of, once there are that many.
func (c *collector) await(t *testing.T, n int, trace, name string) []*span {
	t.Helper()
	var found []*span
	harness.Await(t, name+" is exported", func() bool {
		found = c.of(trace, name)
		return len(found) >= n
	})
	if len(found) != n {
		t.Errorf("%d spans %q in %s, want %d", len(found), name, trace, n)
	}
	return found
}

// all are those of every trace.
func (c *collector) all() []*span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.spans)
}
