package gateway

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-mq/waybill/internal/operate"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// statsAnswer is what every instance counts.
type statsAnswer struct {
	Services []protocol.Stats `json:"services" nullable:"false"`
	// Missing are parts of the services that have not answered in time.
	Missing operate.Missing `json:"missing,omitempty"`
}

type nothing struct{}

func (s *Service) health(api huma.API) {
	operation(api, huma.Operation{
		OperationID: "stats", Method: http.MethodGet, Path: "/stats", Tags: []string{tagMesh},
		Summary: "What each instance of each service has counted, and has now",
	}, s.listStats)
	operation(api, huma.Operation{
		OperationID: "ready", Method: http.MethodGet, Path: "/ready", Tags: []string{tagMesh},
		Summary: "Whether the mesh is ready, and what it waits for; the status is 200 either way, unlike that of /readyz",
	}, func(ctx context.Context, _ *nothing) (*answer[Readiness], error) {
		return answered(s.readiness(ctx), nil)
	})
}

func (s *Service) listStats(ctx context.Context, _ *nothing) (*answer[statsAnswer], error) {
	all, missing, err := operate.Stats(ctx, s.nc)
	slices.SortFunc(all, func(a, b protocol.Stats) int {
		return cmp.Or(strings.Compare(a.Service, b.Service), strings.Compare(a.Instance, b.Instance))
	})
	return answered(statsAnswer{all, missing}, err)
}
