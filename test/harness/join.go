package harness

import (
	"context"
	"log/slog"
	"time"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router"
)

// JoinRouter starts one more router, in this process and until the test ends, beside
// that of a mesh. It returns the mesh as one that has two, once they share the lanes
// evenly.
func (m *Mesh) JoinRouter(name string) *Separate {
	m.t.Helper()
	s, err := router.New(router.Options{
		Mesh: mesh.ConnectOptions{URL: m.URL}, Instance: name, Configured: true, Drain: time.Second,
		Logger: slog.New(slog.NewTextHandler(m.t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		m.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), Guard)
	defer cancel()
	if err := s.Start(ctx); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), Guard)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			m.t.Errorf("stopping %s: %v", name, err)
		}
	})
	shared := *m
	shared.copies = func(service string) int {
		if service == "router" {
			return 2
		}
		return 1
	}
	both := &Separate{Mesh: &shared}
	both.AwaitReady()
	return both
}

// Counted is a counter over all instances of all services.
func (m *Separate) Counted(counter string) (n uint64) {
	m.t.Helper()
	for _, s := range gather[protocol.Stats](m.Mesh, protocol.SubjectStats, protocol.Empty{}, askTimeout, m.answering()) {
		n += s.Counters[counter]
	}
	return n
}
