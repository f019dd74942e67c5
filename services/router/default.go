package router

import (
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker"
)

// ownDefaults hold where no broker says anything else.
var ownDefaults = broker.Defaults{MaxRetries: protocol.DefaultMaxRetries, Concurrency: protocol.DefaultConcurrency}

// defaults hold for the queue's subscribers that say nothing.
func (q *queue) defaults() broker.Defaults {
	if r := q.remote(); r != nil {
		if b, has := r.Remote.(broker.Defaulting); has {
			return b.Defaults()
		}
	}
	return ownDefaults
}

// on is the policy where the queue is: some brokers know one delay only.
func (p policy) on(q *queue) policy {
	if r := q.remote(); r != nil && r.Capabilities().Delay == broker.DelayFixed {
		p.backoffMs, p.BackoffType = q.defaults().RetryDelay.Milliseconds(), protocol.BackoffFixed
	}
	return p
}

// remote is the broker that what is published to the queue goes to; nil: it is
// the mesh's own.
func (q *queue) remote() *remote {
	if q.lane == nil {
		return nil
	}
	return q.lane.remoteAt(q.store)
}

// hasPriorities says whether the queue is one on a broker with priorities. Who
// asked for them may not be known any more, or yet.
func (q *queue) hasPriorities() bool {
	if !q.isRemote() {
		return false
	}
	made, tells := q.store.(broker.Prioritized)
	return q.policy.maxPriority > 0 || tells && made.Priorities(q.name) > 0
}

// prioritize gives a publish without a priority the one that its data says, if
// one of its queues has priorities and its broker a field for them.
func (l *lane) prioritize(p *publication, queues ...*queue) {
	for _, q := range queues {
		if p.message.Priority > 0 {
			return
		}
		if q.jobs != nil || !q.hasPriorities() {
			continue
		}
		if field := q.defaults().PriorityField; field != "" {
			p.message.Priority = priorityOf(l.document.Input(p.message.Body).Member(field))
		}
	}
}
