package registry

import (
	"context"
	"time"

	"github.com/waybill-mq/waybill/internal/config"
	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

const (
	adapterTime  = 6 * time.Second // for the first router that tries
	adapterStall = time.Second     // for another
)

// moves says whether messages are kept elsewhere after an edit.
func moves(before, after *configState) bool {
	was, now := before.config().Adapter, after.config().Adapter
	return was.Name != now.Name || now.Name != config.AdapterBuiltin && string(was.Config) != string(now.Config)
}

// checkAdapter has every router try an adapter before it is stored, lest they
// cannot start again.
func (s *Service) checkAdapter(ctx context.Context, before, after *configState) error {
	if !moves(before, after) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, adapterTime)
	defer cancel()
	_, err := mesh.Gather[protocol.Empty](ctx, s.nc, protocol.SubjectAdapterCheck, after.config().Adapter, adapterStall)
	if err != nil {
		e := protocol.AsError(err)
		return protocol.Errorf(e.Code, "a router cannot use the adapter %s, and nothing was changed: %s", after.config().Adapter.Name, e.Message)
	}
	return nil
}
