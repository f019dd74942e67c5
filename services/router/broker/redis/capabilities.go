package redis

import (
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker"
)

// Capabilities of Redis: it passes messages of topics on to who is there. What is
// published twice under one id within the window is passed on once as long as the
// topic's lane keeps its owner.
var Capabilities = broker.Capabilities{TopicsOnly: true, Delay: broker.DelayNone, Open: true, Dedup: protocol.DedupWindow}
