package router_test

import (
	"strings"
	"testing"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router"
)

// Beside a registry of before there was a configuration a router starts, on the
// built-in adapter.
func TestARegistryWithoutConfiguration(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.router("a", func(o *router.Options) { o.Configured = true })
}

// Jobs run in their takers' namespaces where somebody tells what functions there
// are; without it a router does not start, and says so.
func TestTakersNamespacesNeedFunctions(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.serve(protocol.SubjectConfig, func([]byte) any {
		return protocol.StoredConfig{Config: protocol.Config{RunJobsIn: "worker", Adapter: protocol.Adapter{Name: "builtin"}}}
	})
	start := func() error {
		s, err := router.New(router.Options{Mesh: mesh.ConnectOptions{URL: f.url}, Configured: true, Lanes: 1, Logger: f.log})
		f.must(err)
		err = s.Start(f.guarded())
		f.must(s.Stop(f.guarded()))
		return err
	}
	if err := start(); protocol.CodeOf(err) != protocol.CodeUnsupported || !strings.Contains(err.Error(), protocol.FunctionInfoOf) {
		t.Errorf("without: %v", err)
	}
	f.serve(protocol.FunctionSubject(protocol.DefaultNamespace, protocol.FunctionInfoOf), func([]byte) any { return protocol.FunctionDetail{} })
	if err := start(); err != nil {
		t.Errorf("with it: %v", err)
	}
}
