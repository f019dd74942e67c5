//go:build !no_artemis

package artemis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/go-stomp/stomp/v3/frame"
	"github.com/nats-io/nuid"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
	"github.com/waybill-mq/waybill/services/router/broker"
	"github.com/waybill-mq/waybill/services/router/broker/remote"
)

// The earliest version whose management has all that is used.
const leastMajor, leastMinor = 2, 30

const product = "ActiveMQ-Artemis/"

// checkVersion refuses what is no Artemis, or too old.
func (b *Broker) checkVersion(server string) error {
	version, is := strings.CutPrefix(server, product)
	if !is {
		return b.Faultf(protocol.CodeUnsupported, "is no Artemis (it calls itself %q): use one, or another adapter", server)
	}
	version, _, _ = strings.Cut(version, " ")
	major, minor := remote.Version(version)
	if major < leastMajor || major == leastMajor && minor < leastMinor {
		return b.Faultf(protocol.CodeUnsupported, "is Artemis %s: %d.%d or later is needed", version, leastMajor, leastMinor)
	}
	return nil
}

// findNode finds out what the broker calls itself, which is its own alone.
func (b *Broker) findNode(ctx context.Context, conn *connection) error {
	answers, err := b.demand(ctx, conn, request{resource: onBroker, attribute: "nodeID"})
	if err == nil {
		b.node, err = answers[0].text()
	}
	return err
}

// Same implements broker.Comparing.
func (b *Broker) Same(_ context.Context, other broker.Remote) (bool, error) {
	o, is := other.(*Broker)
	return is && b.node != "" && o.node == b.node, nil
}

// findPrefixes finds out whether the acceptor takes /queue/ and /topic/ off a
// destination: a message is sent to one that both a name with it and a name
// without would take.
func (b *Broker) findPrefixes(ctx context.Context, conn *connection) error {
	base := "waybill.probe." + nuid.Next()
	var err error
	if b.queuePrefix, err = b.findPrefix(ctx, conn, scope.QueuePrefix, base+".queue", anycast); err != nil {
		return err
	}
	b.topicPrefix, err = b.findPrefix(ctx, conn, scope.TopicPrefix, base+".topic", multicast)
	return err
}

func (b *Broker) findPrefix(ctx context.Context, conn *connection, prefix, name, routing string) (string, error) {
	if _, err := b.demand(ctx, conn,
		request{resource: onBroker, operation: "createQueue", arguments: []any{passing(name, routing)}},
		request{resource: onBroker, operation: "createQueue", arguments: []any{passing(prefix+name, routing)}},
	); err != nil {
		return "", err
	}
	if err := conn.do(ctx, frame.New(frame.SEND, frame.Destination, prefix+name, destinationType, routing)); err != nil {
		return "", err
	}
	taken, err := b.takenOff(ctx, conn, prefix, name)
	if err != nil {
		return "", err
	}
	_, err = b.demand(ctx, conn,
		request{resource: onBroker, operation: "destroyQueue", arguments: []any{name, true, true}},
		request{resource: onBroker, operation: "destroyQueue", arguments: []any{prefix + name, true, true}},
	)
	if !taken {
		prefix = ""
	}
	return prefix, err
}

// takenOff says which of two queues a message has got to, which takes a moment.
func (b *Broker) takenOff(ctx context.Context, conn *connection, prefix, name string) (bool, error) {
	for {
		answers, err := b.demand(ctx, conn,
			request{resource: onQueue(name), attribute: messageCount}, request{resource: onQueue(prefix + name), attribute: messageCount})
		if err != nil {
			return false, err
		}
		bare, err := answers[0].number()
		if err != nil {
			return false, err
		}
		whole, err := answers[1].number()
		if err != nil || bare+whole > 0 {
			return bare > 0, err
		}
		if !remote.Sleep(ctx, againMin/10) {
			return false, ctx.Err()
		}
	}
}

// demand asks and takes no for an error.
func (b *Broker) demand(ctx context.Context, conn *connection, all ...request) ([]answer, error) {
	answers, err := b.desk.askOn(ctx, conn, all...)
	for _, a := range answers {
		err = errors.Join(err, a.err)
	}
	return answers, err
}

// settings are those of an address by the broker's names for them. What is not said
// is the broker's default.
type settings map[string]any

// number is a setting's, fallback if it is not said.
func (s settings) number(name string, fallback int64) int64 {
	if n, is := s[name].(float64); is {
		return int64(n)
	}
	return fallback
}

// leastDeliveries is more often than a message is given back in an ordinary life.
const leastDeliveries = 100

// defaultDeliveries is the broker's own.
const defaultDeliveries = 10

// checkSettings refuses a broker whose settings would lose messages, or bring
// them back at another time or in another order than was promised.
func (b *Broker) checkSettings(ctx context.Context, conn *connection) error {
	address, err := b.physical(scope.QueuePrefix + "waybill/check")
	if err != nil {
		return err
	}
	answers, err := b.demand(ctx, conn, settingsOf(address))
	if err != nil {
		return err
	}
	wrong, err := wrongIn(answers[0])
	if err == nil && wrong != "" {
		return b.Faultf(protocol.CodeUnsupported, "is set up so that messages would be lost or late: %s (address-setting of %s in its broker.xml; deploy/brokers/artemis/broker.xml has one that fits)", wrong, address)
	}
	return err
}

func settingsOf(address string) request {
	return request{resource: onBroker, operation: "getAddressSettingsAsJSON", arguments: []any{address}}
}

// wrongIn is settings.wrong of those that are told.
func wrongIn(told answer) (string, error) {
	text, err := told.text()
	if err != nil {
		return "", err
	}
	var s settings
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return "", fmt.Errorf("its address settings are no JSON: %w", err)
	}
	return s.wrong(), nil
}

// warnOf tells of a setting that is for one queue, which the start has not seen. What is
// in the queue is handled all the same.
func (b *Broker) warnOf(queue string, told answer) {
	wrong, err := wrongIn(told)
	if err != nil || wrong == "" {
		return
	}
	if _, said := b.warned.LoadOrStore(queue+" "+wrong, true); !said {
		b.log.Warn("an address setting of the broker acts in a queue instead of the mesh: its messages may be lost or late", "code", protocol.CodeUnsupported, "queue", queue, "setting", wrong)
	}
}

// wrong names a setting and what it is to be; empty: all fit.
func (s settings) wrong() string {
	deliveries := s.number("maxDeliveryAttempts", defaultDeliveries)
	switch {
	case deliveries >= 0 && deliveries < leastDeliveries:
		return fmt.Sprintf("max-delivery-attempts is %d: set it to -1, or to %d at least, since each lost connection counts", deliveries, leastDeliveries)
	case deliveries >= 0 && s["deadLetterAddress"] == nil:
		return "max-delivery-attempts is bounded and there is no dead-letter-address: set one, or max-delivery-attempts to -1"
	case s["addressFullMessagePolicy"] == "DROP":
		return "address-full-policy is DROP: set it to PAGE, BLOCK or FAIL"
	case s["autoCreateQueues"] == false:
		return "auto-create-queues is false: set it to true, since what is published to a queue that somebody has deleted would be confirmed and dropped"
	case s.number("slowConsumerThreshold", -1) >= 0 && s["slowConsumerPolicy"] == "KILL":
		return "slow-consumer-policy is KILL: set it to NOTIFY, or slow-consumer-threshold to -1"
	}
	for _, x := range []struct {
		name, shown string
		most        int64
	}{
		{"redeliveryDelay", "redelivery-delay", 0}, // what a router gives back would be late and out of order
		{"expiryDelay", "expiry-delay", -1}, {"maxExpiryDelay", "max-expiry-delay", -1}, {"minExpiryDelay", "min-expiry-delay", -1},
		{"defaultRingSize", "default-ring-size", -1},
	} {
		if n := s.number(x.name, x.most); n > x.most {
			return fmt.Sprintf("%s is %d: set it to %d", x.shown, n, x.most)
		}
	}
	return ""
}
