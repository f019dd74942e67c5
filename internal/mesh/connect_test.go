package mesh_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/internal/mesh/meshtest"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

func TestAServerThatIsNotThereIsNamed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err = mesh.Connect(ctx, mesh.ConnectOptions{URL: "nats://" + address})
	if protocol.CodeOf(err) != protocol.CodeUnavailable || !strings.Contains(err.Error(), address) {
		t.Errorf("got %v, want UNAVAILABLE naming %s", err, address)
	}
}

func TestConnectingInProcess(t *testing.T) {
	s := meshtest.Server(t)
	nc, err := mesh.Connect(meshtest.Context(t), mesh.ConnectOptions{InProcess: s.InProcess()})
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if err := nc.FlushWithContext(meshtest.Context(t)); err != nil {
		t.Error(err)
	}
}

func TestNothingIsSentLaterWithoutABuffer(t *testing.T) {
	s := meshtest.Server(t)
	nc, err := mesh.Connect(meshtest.Context(t), mesh.ConnectOptions{URL: s.URL(), NoBuffer: true})
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	lost := nc.StatusChanged(nats.RECONNECTING)
	if err := s.Stop(meshtest.Context(t)); err != nil {
		t.Fatal(err)
	}
	select {
	case <-lost:
	case <-meshtest.Context(t).Done():
		t.Fatal("the lost connection was not noticed")
	}
	if err := nc.Publish("x", nil); err == nil {
		t.Error("a publish without a connection succeeded")
	}
}
