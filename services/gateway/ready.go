package gateway

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// needed are the services without which the mesh is not ready.
var needed = []string{"router", "retry", "dlq", "registry"}

// gatherTimeout bounds the wait for the services' answers.
const gatherTimeout = 3 * time.Second

// Readiness is /readyz as JSON.
type Readiness struct {
	Ready bool `json:"ready"`
	// Waiting is what it is not ready for, one line each.
	Waiting []string `json:"waiting"`
	// Notes are what is not as it should be and hinders nobody, such as a broker that is
	// worked off and cannot be reached.
	Notes []string `json:"notes,omitempty"`
	// Services are the instances that answered.
	Services []protocol.Ready `json:"services"`
}

// readyz answers 200 when every service is there and each instance that is
// there is ready, else 503 and what is missing: as JSON if that is accepted,
// else as lines of text.
func (s *Service) readyz(w http.ResponseWriter, r *http.Request) {
	readiness := s.readiness(r.Context())
	status := http.StatusOK
	if !readiness.Ready {
		status = http.StatusServiceUnavailable
	}
	if strings.Contains(r.Header.Get("Accept"), "json") {
		answerJSON(w, status, readiness)
		return
	}
	text := "ready\n"
	if !readiness.Ready {
		text = "not ready:\n" + listed(readiness.Waiting)
	}
	answerText(w, status, text+listed(readiness.Notes))
}

func listed(lines []string) string {
	var text strings.Builder
	for _, line := range lines {
		text.WriteString("- " + line + "\n")
	}
	return text.String()
}

func (s *Service) readiness(ctx context.Context) Readiness {
	r := Readiness{Waiting: []string{}, Services: []protocol.Ready{}}
	if !s.nc.IsConnected() {
		r.Waiting = append(r.Waiting, "NATS is not connected; reconnecting")
		return r
	}
	ctx, cancel := context.WithTimeout(ctx, gatherTimeout)
	defer cancel()
	answers, err := mesh.Gather[protocol.Ready](ctx, s.nc, protocol.SubjectReady, protocol.Empty{}, 0)
	if err != nil {
		r.Waiting = append(r.Waiting, err.Error())
	}
	slices.SortFunc(answers, func(a, b protocol.Ready) int {
		return cmp.Or(strings.Compare(a.Service, b.Service), strings.Compare(a.Instance, b.Instance))
	})
	r.Services = append(r.Services, answers...)
	r.Waiting = append(r.Waiting, missing(answers)...)
	for _, a := range answers {
		for _, note := range a.Notes {
			r.Notes = append(r.Notes, fmt.Sprintf("%s %s: %s", a.Service, a.Instance, note))
		}
	}
	r.Ready = len(r.Waiting) == 0
	return r
}

// missing says which services are not there, and what those that are wait for.
func missing(answers []protocol.Ready) []string {
	var lines []string
	there := map[string]bool{}
	for _, a := range answers {
		there[a.Service] = true
		if !a.Ready && len(a.Waiting) == 0 {
			lines = append(lines, fmt.Sprintf("%s %s is not ready", a.Service, a.Instance))
		}
		for _, what := range a.Waiting {
			lines = append(lines, fmt.Sprintf("%s %s: %s", a.Service, a.Instance, what))
		}
	}
	for _, service := range needed {
		if !there[service] {
			lines = append(lines, service+": no instance answers; start one, or look into its log")
		}
	}
	return lines
}
