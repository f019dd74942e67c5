package artemis

import (
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker"
)

// Capabilities of Artemis. What is published twice under one id within the
// window is stored once as long as the queue's lane keeps its owner. What is
// scheduled waits in the mesh until it is due.
var Capabilities = broker.Capabilities{
	Durable: true, Retries: true, Delay: broker.DelayExact, DeadLetters: true, Waiting: true,
	FIFO: true, Priorities: true, Schedules: true,
	Open: true, Dedup: protocol.DedupWindow,
}
