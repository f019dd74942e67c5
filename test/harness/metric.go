package harness

import (
	"bufio"
	"net/http"
	"strconv"
	"strings"
)

// Metric is the sum of a metric's values on /metrics over all its labels.
func (m *Mesh) Metric(name string) (sum float64) {
	m.t.Helper()
	request, err := http.NewRequestWithContext(m.t.Context(), http.MethodGet, m.HTTP+"/metrics", http.NoBody)
	if err != nil {
		m.t.Fatal(err)
	}
	answer, err := web.Do(request)
	if err != nil {
		m.t.Fatal(err)
	}
	defer answer.Body.Close()
	found := false
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		series, value, _ := strings.Cut(lines.Text(), " ")
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
		m.t.Fatalf("/metrics has no %s (%s)", name, answer.Status)
	}
	return sum
}
