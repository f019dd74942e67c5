package redis

import "github.com/waybill-mq/waybill/services/router/broker"

// Capabilities of Redis: it passes messages of topics on to who is there.
var Capabilities = broker.Capabilities{TopicsOnly: true, Delay: broker.DelayNone}
