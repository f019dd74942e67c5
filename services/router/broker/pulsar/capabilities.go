package pulsar

import (
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker"
)

// Capabilities of Pulsar. Every failed message waits as long as configuration says.
// What is published twice under one id within the window is stored once as long as
// the queue's lane keeps its owner. What is scheduled waits in the mesh until it is
// due.
var Capabilities = broker.Capabilities{
	Durable: true, Retries: true, Delay: broker.DelayFixed, DeadLetters: true,
	FIFO: true, Schedules: true,
	Open: true, Dedup: protocol.DedupWindow,
}
