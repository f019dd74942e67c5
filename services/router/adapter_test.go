package router_test

import (
	"testing"

	"github.com/waybill-mq/waybill/services/router"
)

// Beside a registry of before there was a configuration a router starts, on the
// built-in adapter.
func TestARegistryWithoutConfiguration(t *testing.T) {
	f := newFixture(t)
	f.router("a", func(o *router.Options) { o.Configured = true })
}
