// Package meshtest is what tests of the services and of the mesh's own packages need
// alike: a NATS server, connections to it, and waiting for something.
package meshtest

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/internal/natsserver"
)

// Patience keeps a test from hanging; nothing is expected to take that long.
const Patience = 3 * time.Minute

// Context ends after Patience; not with the test, so that its cleanups can use it.
func Context(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	t.Cleanup(cancel)
	return ctx
}

// Server is a NATS server that ends with the test.
func Server(t testing.TB) *natsserver.Server {
	t.Helper()
	s, err := natsserver.Start(Context(t), natsserver.Options{DataDir: t.TempDir(), Port: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(Context(t)); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Connect is a connection to s that ends with the test.
func Connect(t testing.TB, s *natsserver.Server) *nats.Conn {
	t.Helper()
	nc, err := mesh.Connect(Context(t), mesh.ConnectOptions{URL: s.URL(), Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// Eventually waits until ok holds, and fails the test after Patience.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	ctx := Context(t)
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for !ok() {
		select {
		case <-again.C:
		case <-ctx.Done():
			t.Fatalf("never: %s", what)
		}
	}
}
