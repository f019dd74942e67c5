package broker

import (
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

// Wish is what a subscription, a queue or a publish asks of a broker and not
// every broker can do.
type Wish int

// Wishes.
const (
	WishQueue   Wish = iota // a queue
	WishFIFO                // one that keeps the order of each group
	WishRetries             // more than one try
	WishBackoff             // a delay of one's own before the next try
	WishLater               // a publish that is due later
	WishOnce                // a publish that is stored once however often it is sent
	WishDLQ                 // an operation on dead letters
	countWishes             // is none
)

// wishes say of each what it is called, whether it is granted, and what to ask
// for instead.
var wishes = [countWishes]struct {
	what    string
	granted func(c Capabilities) bool
	instead string
}{
	WishQueue:   {"queues", func(c Capabilities) bool { return !c.TopicsOnly }, "publish to a topic"},
	WishFIFO:    {"queues of the type fifo", func(c Capabilities) bool { return c.FIFO }, "ask for the type concurrent"},
	WishRetries: {"another try of a message that failed", func(c Capabilities) bool { return c.Retries }, "ask for max_retries 1"},
	WishBackoff: {"a delay of one's own before the next try", func(c Capabilities) bool { return c.Delay.Any() }, "leave backoff_ms and delays out"},
	WishLater:   {"messages that are due later", func(c Capabilities) bool { return c.Schedules }, "publish when the time has come"},
	WishOnce:    {"publishes that are stored once", func(c Capabilities) bool { return c.Dedup > 0 }, "leave " + protocol.HeaderDedup + " out and let the handler see to it"},
	WishDLQ:     {"dead letters", func(c Capabilities) bool { return c.DeadLetters }, "keep what fails in the handler"},
}

// Refusal is UNSUPPORTED if the broker cannot do one of the wishes: it names
// the broker, the wish and what to do. nil if it can do all.
func Refusal(b Broker, asked ...Wish) error {
	c := b.Capabilities()
	for _, w := range asked {
		if wish := wishes[w]; !wish.granted(c) {
			return protocol.Errorf(protocol.CodeUnsupported, "the broker %s does not have %s: %s, or use a broker that has (waybill broker capabilities)", b.Name(), wish.what, wish.instead)
		}
	}
	return nil
}

// WishesOf are those of a subscription. More than one try is the default and not
// a wish: a broker without retries has every message tried once.
func WishesOf(sub *protocol.Subscription) []Wish {
	var asked []Wish
	if scope.SubscribedTopic(sub.Queue) == "" {
		asked = append(asked, WishQueue)
	}
	if sub.Type == protocol.TypeFIFO {
		asked = append(asked, WishFIFO)
	}
	if sub.MaxRetries > 1 && !sub.RetriesDefault {
		asked = append(asked, WishRetries)
	}
	if sub.DelayMs > 0 {
		asked = append(asked, WishLater)
	}
	if sub.MaxRetries > 1 && sub.BackoffMs != protocol.DefaultBackoffMs {
		asked = append(asked, WishBackoff)
	}
	return asked
}
