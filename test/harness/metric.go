package harness

import (
	"io"
	"net/http"
	"strconv"
	"strings"
)

// BrokerMetrics begin the names of what /metrics says of each broker outside of the mesh.
const BrokerMetrics = "waybill_broker_"

// Metric is the sum of a metric's values on /metrics over all its labels, or the value of
// one series, with its labels.
func (m *Mesh) Metric(name string) float64 {
	m.t.Helper()
	sum, found := m.metric(name)
	if !found {
		m.t.Fatalf("/metrics has no %s: %s", name, m.page("/metrics"))
	}
	return sum
}

// metric is Metric of what may not be there.
func (m *Mesh) metric(name string) (sum float64, found bool) {
	m.t.Helper()
	for line := range strings.Lines(m.page("/metrics")) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if series != name && !strings.HasPrefix(series, name+"{") {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			m.t.Fatalf("metric %s: %v", series, err)
		}
		sum, found = sum+n, true
	}
	return sum, found
}

// page is what the mesh answers over HTTP.
func (m *Mesh) page(path string) string {
	m.t.Helper()
	request, err := http.NewRequestWithContext(m.t.Context(), http.MethodGet, m.HTTP+path, http.NoBody)
	if err != nil {
		m.t.Fatal(err)
	}
	answer, err := web.Do(request)
	if err != nil {
		m.t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		m.t.Fatal(err)
	}
	return string(body)
}
