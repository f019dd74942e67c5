package mesh_test

import (
	"testing"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/internal/mesh/meshtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func mustService(t *testing.T, nc *nats.Conn, name string) *mesh.Service {
	t.Helper()
	s, err := mesh.NewService(nc, mesh.ServiceOptions{Name: name, Instance: "one", Version: "v1.2.3"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(meshtest.Context(t)); err != nil {
			t.Error(err)
		}
	})
	return s
}
