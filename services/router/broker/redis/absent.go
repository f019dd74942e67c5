//go:build no_redis

package redis

import (
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker"
)

// New refuses: this program was built without the adapter.
func New(Options) (broker.Remote, error) {
	return nil, protocol.Errorf(protocol.CodeUnsupported, "this program was built without the feature redis (-tags no_redis): use a build that has it, or another adapter")
}
