package mesh_test

import (
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/internal/mesh/meshtest"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// stockNATS is a NATS as somebody else may have configured it.
func stockNATS(t *testing.T, o *server.Options) *nats.Conn {
	t.Helper()
	o.Host, o.Port, o.NoSigs, o.StoreDir = "127.0.0.1", server.RANDOM_PORT, true, t.TempDir()
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	nc, err := mesh.Connect(meshtest.Context(t), mesh.ConnectOptions{URL: s.ClientURL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func TestWhatANATSLacksIsNamed(t *testing.T) {
	for name, c := range map[string]struct {
		options server.Options
		lacks   string
	}{
		"nothing":      {server.Options{JetStream: true}, ""},
		"no JetStream": {server.Options{}, "no JetStream"},
		"no headers":   {server.Options{JetStream: true, NoHeaderSupport: true}, "no message headers"},
		"small":        {server.Options{JetStream: true, MaxPayload: 64 << 10}, "max_payload is 65536"},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := mesh.Probe(meshtest.Context(t), stockNATS(t, &c.options))
			if c.lacks == "" && err != nil || c.lacks != "" && (protocol.CodeOf(err) != protocol.CodeUnsupported || !strings.Contains(err.Error(), c.lacks)) {
				t.Errorf("%v, want a lack of %q", err, c.lacks)
			}
			if !found.Small() || found.Version != server.VERSION {
				t.Errorf("found %+v", found)
			}
		})
	}
}

func TestAPasswordIsNotTold(t *testing.T) {
	_, err := mesh.Connect(meshtest.Context(t), mesh.ConnectOptions{URL: "nats://me:secret@127.0.0.1:1,nats://me:secret@127.0.0.1:2", Patience: 1})
	if protocol.CodeOf(err) != protocol.CodeUnavailable || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "127.0.0.1:2") {
		t.Errorf("got %v", err)
	}
}
