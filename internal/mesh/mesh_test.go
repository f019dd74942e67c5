package mesh_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/internal/natsserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// guard keeps a test from hanging; nothing is expected to take that long.
func guard(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func mustServer(t *testing.T) *natsserver.Server {
	t.Helper()
	s, err := natsserver.Start(guard(t), natsserver.Options{DataDir: t.TempDir(), Port: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(guard(t)); err != nil {
			t.Error(err)
		}
	})
	return s
}

func mustConnect(t *testing.T, s *natsserver.Server) *nats.Conn {
	t.Helper()
	nc, err := mesh.Connect(guard(t), mesh.ConnectOptions{URL: s.URL(), Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func mustService(t *testing.T, nc *nats.Conn, name string) *mesh.Service {
	t.Helper()
	s, err := mesh.NewService(nc, mesh.ServiceOptions{Name: name, Instance: "one", Version: "v1.2.3"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(guard(t)); err != nil {
			t.Error(err)
		}
	})
	return s
}
