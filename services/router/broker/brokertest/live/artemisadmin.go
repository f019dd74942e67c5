package live

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
)

// StoredQueue is what Artemis says of a queue.
//
//nolint:tagliatelle // these are Artemis's own names
type StoredQueue struct {
	Name        string `json:"name"` // of which there is one in a broker
	Address     string `json:"address"`
	RoutingType string `json:"routingType"`         // ANYCAST, MULTICAST
	Messages    int64  `json:"messageCount,string"` // with those that are delivered or scheduled
	Delivering  int64  `json:"deliveringCount,string"`
	Scheduled   int64  `json:"scheduledCount,string"`
	Consumers   int64  `json:"consumerCount,string"`
	Added       int64  `json:"messagesAdded,string"` // since its start
	Killed      int64  `json:"messagesKilled,string"`
	Durable     bool   `json:"durable,string"`
	AutoDelete  bool   `json:"autoDelete,string"`
}

// StoredMessage is what Artemis says of a message.
type StoredMessage struct {
	ID         string
	Properties map[string]any // headers; numbers are float64
	Body       string         // at most its first 64 KiB
	Durable    bool
	Priority   int
}

// own are names that are not of tests: the broker's, and those that answers come
// to, which go with their connections. To remove one of these at that moment has been
// seen to block the broker's management for good.
func own(name string) bool {
	return strings.HasPrefix(name, "waybill.reply.") || name == "DLQ" || name == "ExpiryQueue" || strings.HasPrefix(name, "$") || strings.HasPrefix(name, "activemq.")
}

// Queues are all queues but its own, by name.
func (a *Artemis) Queues(t testing.TB) map[string]StoredQueue {
	t.Helper()
	all, err := a.queues()
	if err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(all, func(name string, _ StoredQueue) bool { return own(name) })
	return all
}

// queues lists them again if one was removed meanwhile, on which the broker stumbles.
func (a *Artemis) queues() (map[string]StoredQueue, error) {
	var text string
	for again := 0; ; again++ {
		err := a.manage(&text, "", "listQueues(java.lang.String,int,int)", "", 1, 1<<20)
		if err == nil {
			break
		}
		if again == listAgain || !strings.Contains(err.Error(), "NullPointerException") {
			return nil, err
		}
	}
	var page struct {
		Data []StoredQueue `json:"data"`
	}
	if err := json.Unmarshal([]byte(text), &page); err != nil {
		return nil, err
	}
	all := map[string]StoredQueue{}
	for _, q := range page.Data {
		all[q.Name] = q
	}
	return all, nil
}

// listAgain is how often it may stumble in a row.
const listAgain = 10

// Depth is how many messages a queue has, delivered and scheduled ones too; -1:
// there is no such queue.
func (a *Artemis) Depth(t testing.TB, queue string) int64 {
	t.Helper()
	all, err := a.queues()
	if err != nil {
		t.Fatal(err)
	}
	q, there := all[queue]
	if !there {
		return -1
	}
	return q.Messages
}

// Browse reads the messages of a queue that may be delivered or are, at most 200,
// and leaves them.
func (a *Artemis) Browse(t testing.TB, queue string) []StoredMessage {
	t.Helper()
	var all []map[string]any
	a.Manage(t, &all, a.bean(t, queue), "browse()")
	made := make([]StoredMessage, len(all))
	for i, m := range all {
		made[i] = stored(m)
	}
	return made
}

// Scheduled are the headers of the messages of a queue that wait for their time,
// which is in _AMQ_SCHED_DELIVERY, in milliseconds since the epoch.
func (a *Artemis) Scheduled(t testing.TB, queue string) (all []map[string]any) {
	t.Helper()
	a.Manage(t, &all, a.bean(t, queue), "listScheduledMessages()")
	return all
}

func stored(of map[string]any) StoredMessage {
	m := StoredMessage{Properties: map[string]any{}, ID: fmt.Sprint(of["messageID"])}
	for name, value := range of {
		if properties, is := value.(map[string]any); is && strings.HasSuffix(name, "Properties") {
			maps.Copy(m.Properties, properties)
		}
	}
	m.Body, _ = of["text"].(string)
	if body, is := of["BodyPreview"].([]any); is {
		m.Body = string(octets(body))
	}
	m.Durable, _ = of["durable"].(bool)
	priority, _ := of["priority"].(float64)
	m.Priority = int(priority)
	return m
}

// octets are bytes that came as signed numbers.
func octets(numbers []any) []byte {
	b := make([]byte, len(numbers))
	for i, n := range numbers {
		f, _ := n.(float64)
		b[i] = byte(int(f))
	}
	return b
}

// bean is how management calls a queue.
func (a *Artemis) bean(t testing.TB, queue string) string {
	t.Helper()
	all, err := a.queues()
	if err != nil {
		t.Fatal(err)
	}
	q, there := all[queue]
	if !there {
		t.Fatalf("Artemis has no queue %q", queue)
	}
	return fmt.Sprintf("component=addresses,address=%q,subcomponent=queues,routing-type=%q,queue=%q", q.Address, strings.ToLower(q.RoutingType), q.Name)
}

// Connections is how many connections there are, and how many there ever were
// since its start.
func (a *Artemis) Connections(t testing.TB) (now, ever int64) {
	t.Helper()
	a.Manage(t, &now, "", "getConnectionCount()")
	a.Manage(t, &ever, "", "getTotalConnectionCount()")
	return now, ever
}

// Clear removes every queue and address but its own, with their messages.
func (a *Artemis) Clear(t testing.TB) {
	t.Helper()
	if err := a.Empty(); err != nil {
		t.Fatal(err)
	}
}

// Empty is Clear for who is no test. What goes by itself meanwhile, with the
// connection it belongs to, is looked for again.
func (a *Artemis) Empty() (err error) {
	const rounds = 3
	for range rounds {
		if err = a.emptyOnce(); err == nil {
			return nil
		}
	}
	return err
}

func (a *Artemis) emptyOnce() error {
	all, err := a.queues()
	if err != nil {
		return err
	}
	for name := range all {
		if !own(name) {
			err = errors.Join(err, a.manage(nil, "", "destroyQueue(java.lang.String,boolean,boolean)", name, true, true))
		}
	}
	var addresses []string
	err = errors.Join(err, a.manage(&addresses, "", "getAddressNames()"))
	for _, name := range addresses {
		if !own(name) {
			err = errors.Join(err, a.manage(nil, "", "deleteAddress(java.lang.String,boolean)", name, true))
		}
	}
	return err
}

// Held is how many messages it has in all queues but its own.
func (a *Artemis) Held() (n int64, err error) {
	all, err := a.queues()
	for name, q := range all {
		if !own(name) {
			n += q.Messages
		}
	}
	return n, err
}

// Manage has the broker's management do an operation of one of its beans, which
// are called by what follows the broker's name; empty: the broker itself. into may
// be nil.
func (a *Artemis) Manage(t testing.TB, into any, bean, operation string, arguments ...any) {
	t.Helper()
	if err := a.manage(into, bean, operation, arguments...); err != nil {
		t.Fatal(err)
	}
}

func (a *Artemis) manage(into any, bean, operation string, arguments ...any) error {
	if bean != "" {
		bean = "," + bean
	}
	body := map[string]any{"type": "exec", "mbean": `org.apache.activemq.artemis:broker="waybill"` + bean, "operation": operation, "arguments": arguments}
	if attribute, is := strings.CutPrefix(strings.TrimSuffix(operation, "()"), "get"); is && len(arguments) == 0 {
		body["type"], body["attribute"] = "read", attribute
	}
	var answer struct {
		Status int
		Error  string
		Value  json.RawMessage
	}
	if err := ask(http.MethodPost, a.addresses[2]+"/console/jolokia/", body, &answer); err != nil {
		return fmt.Errorf("%s%s of Artemis: %w", operation, bean, err)
	}
	if answer.Status != http.StatusOK {
		return fmt.Errorf("%s%s of Artemis: %s", operation, bean, answer.Error)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(answer.Value, into)
}
