package router_test

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router"
)

// A router does not start beside somebody else who takes enqueued jobs, and does
// beside another router.
func TestForeignProviderIsRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.router("a", nil)
	start := func() error {
		r, err := router.New(router.Options{Mesh: mesh.ConnectOptions{URL: f.url}, Instance: "b", Lanes: lanes})
		f.must(err)
		if err := r.Start(f.guarded()); err != nil {
			return err
		}
		return r.Stop(f.guarded())
	}
	f.must(start())
	subject := protocol.FunctionSubject(protocol.DefaultNamespace, protocol.FunctionEnqueue)
	for name, answer := range map[string]*nats.Msg{
		"one that takes it": {Data: []byte("{}")},
		"one that fails":    {Header: nats.Header{protocol.HeaderServiceError: {"what?"}, protocol.HeaderServiceErrorCode: {"500"}}},
		"one without JSON":  {Data: []byte("what?")},
	} {
		foreign, err := f.nc.Subscribe(subject, func(m *nats.Msg) { f.must(m.RespondMsg(answer)) })
		f.must(err)
		f.must(f.nc.FlushWithContext(f.guarded()))
		if err := start(); protocol.CodeOf(err) != protocol.CodeConflict || !strings.Contains(err.Error(), protocol.FunctionEnqueue) {
			t.Errorf("beside %s: %v", name, err)
		}
		f.must(foreign.Unsubscribe())
	}
}
