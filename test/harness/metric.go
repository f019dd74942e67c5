package harness

import (
	"io"
	"net/http"
	"strconv"
	"strings"
)

// Metric is the sum of a metric's values on /metrics over all its labels.
func (m *Mesh) Metric(name string) (sum float64) {
	m.t.Helper()
	page, found := m.page("/metrics"), false
	for line := range strings.Lines(page) {
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
	if !found {
		m.t.Fatalf("/metrics has no %s: %s", name, page)
	}
	return sum
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
