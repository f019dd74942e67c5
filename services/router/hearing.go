package router

import (
	"context"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker"
)

// unheard is why the broker is not asked: it is known to be away, and who asks would wait
// for nothing. One that only takes nothing is asked.
func (r *remoteBroker) unheard() error {
	if h, hears := r.Remote.(broker.Hearing); hears {
		return h.Unheard()
	}
	return r.Away()
}

// Depth is the broker's, if it is there.
func (r *remoteBroker) Depth(ctx context.Context, queue string, delays []int64) (broker.Depth, error) {
	if err := r.unheard(); err != nil {
		return broker.Depth{}, err
	}
	return r.Remote.Depth(ctx, queue, delays)
}

// Browse is the broker's, if it is there.
func (r *remoteBroker) Browse(ctx context.Context, queue string, n int, id protocol.MessageID) ([]broker.Letter, error) {
	if err := r.unheard(); err != nil {
		return nil, err
	}
	return r.Remote.Browse(ctx, queue, n, id)
}

// Act is the broker's, if it is there.
func (r *remoteBroker) Act(ctx context.Context, queue string, a broker.Action) (int64, error) {
	if err := r.unheard(); err != nil {
		return 0, err
	}
	return r.Remote.Act(ctx, queue, a)
}
