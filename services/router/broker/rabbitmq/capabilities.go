package rabbitmq

import (
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker"
)

// maxName is the longest name of a queue: AMQP takes 255 bytes, of which some
// are for its .retry. place.
const maxName = 255 - len(".retry.") - 19

// Capabilities of RabbitMQ. What is published twice under one id within the
// window is stored once as long as the queue's lane keeps its owner.
func Capabilities() broker.Capabilities {
	return broker.Capabilities{
		Durable: true, Delay: broker.DelayExact, DeadLetters: true,
		Dedup: protocol.DedupWindow, MaxName: maxName,
	}
}
