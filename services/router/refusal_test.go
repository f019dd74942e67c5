package router_test

import (
	"context"
	"iter"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router"
	"github.com/waybill-mq/waybill/services/router/broker"
)

// frugal is a broker that takes messages and can do nothing else.
type frugal struct{}

func (frugal) Name() string                      { return "frugal" }
func (frugal) Capabilities() broker.Capabilities { return broker.Capabilities{Delay: broker.DelayNone} }
func (frugal) Durability() string                { return protocol.DurabilityFsync }
func (frugal) Open(context.Context) error        { return nil }
func (frugal) Close(context.Context) error       { return nil }
func (frugal) Away() error                       { return nil }
func (frugal) Attach(_ *ledger.Ledger, lane broker.Lane) broker.Store {
	return &frugalStore{lane: lane, queues: make(map[string][]int64)}
}

// Depth says that something waits in every queue.
func (frugal) Depth(context.Context, string, []int64) (broker.Depth, error) {
	return broker.Depth{Waiting: 1}, nil
}

func (frugal) Browse(context.Context, string, int, protocol.MessageID) ([]broker.Letter, error) {
	panic("there are no dead letters")
}

func (frugal) Act(context.Context, string, broker.Action) (int64, error) {
	panic("there are no dead letters")
}

type frugalStore struct {
	lane   broker.Lane
	queues map[string][]int64
}

func (s *frugalStore) Publish(p broker.Publish) error {
	s.queues[p.Queue] = nil
	s.lane.Post(func() { s.lane.Stored(p.Tag, broker.Receipt{ID: p.Message.ID}) })
	return nil
}

func (s *frugalStore) Demand(string, broker.Demand)                {}
func (s *frugalStore) Message(*broker.Entry) *broker.Message       { return nil }
func (s *frugalStore) Load([]*broker.Entry)                        {}
func (s *frugalStore) Meta(*broker.Entry) broker.Meta              { return broker.Meta{} }
func (s *frugalStore) Settle(*broker.Entry, broker.Counter)        {}
func (s *frugalStore) SettleNow(*broker.Entry, broker.Counter)     {}
func (s *frugalStore) Return(*broker.Entry, broker.Meta) bool      { return false }
func (s *frugalStore) Retry(*broker.Entry, broker.Meta) bool       { return false }
func (s *frugalStore) Leave(*broker.Entry, func(func()) bool) bool { return false }
func (s *frugalStore) Close()                                      {}
func (s *frugalStore) GiveBack(*broker.Entry)                      {}
func (s *frugalStore) Entry(ledger.Key) *broker.Entry              { return nil }
func (s *frugalStore) Entries() iter.Seq[*broker.Entry]            { return func(func(*broker.Entry) bool) {} }
func (s *frugalStore) Live(string) int                             { return 0 }
func (s *frugalStore) Queues() iter.Seq2[string, []int64]          { return maps.All(s.queues) }
func (s *frugalStore) Has(queue string) bool                       { _, has := s.queues[queue]; return has }
func (s *frugalStore) Comes(string) int                            { return 0 }
func (s *frugalStore) Rest(_ string, done func(bool))              { done(true) }
func (s *frugalStore) Bind(_, _ string, done func())               { done() }
func (s *frugalStore) Unbind(_, _ string)                          {}
func (s *frugalStore) Forget(queue string)                         { delete(s.queues, queue) }
func (s *frugalStore) DeadLetter(*broker.Entry, broker.Meta) bool  { return false }

// What a broker cannot do is refused where that would change what happens to a
// message, by the broker's name and with what to do; what is only tuned there is
// a warning.
func TestBrokersRefuseWhatTheyCannotDo(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.router("a", func(o *router.Options) { o.Lanes, o.Brokers, o.Adapter = 1, []broker.Remote{frugal{}}, "frugal" })
	refused := func(what string, err error) {
		t.Helper()
		if protocol.CodeOf(err) != protocol.CodeUnsupported || !strings.Contains(err.Error(), "frugal") || !strings.Contains(err.Error(), ": ") {
			t.Errorf("%s: %v", what, err)
		}
	}
	publish := func(header ...string) error {
		m := &nats.Msg{Subject: protocol.PublishQueueSubject("run", "r"), Header: nats.Header{}}
		for i := 0; i < len(header); i += 2 {
			m.Header.Set(header[i], header[i+1])
		}
		answer, err := f.nc.RequestMsgWithContext(f.guarded(), m)
		f.must(err)
		if e := protocol.ParseErrorBody(answer.Data); e != nil {
			return e
		}
		return nil
	}
	f.await("a publish", func() bool { return publish() == nil })
	refused("a delay", publish(protocol.HeaderDelayMs, "1000"))
	refused("a time", publish(protocol.HeaderDeliverAt, time.Now().Add(time.Hour).Format(time.RFC3339)))
	refused("an id", publish(protocol.HeaderDedup, "once"))

	lane := protocol.SubjectLane + ledger.Name("router", 0) + "."
	grant := func(sub protocol.Subscription) ([]string, error) {
		sub.Queue = "/queue/run/r"
		granted, err := mesh.Request[protocol.Granted](f.guarded(), f.nc, lane+protocol.VerbGrant, protocol.GrantRequest{Subscriptions: []protocol.Subscription{sub}})
		return granted.Warnings, err
	}
	plain := protocol.Subscription{MaxRetries: 3, BackoffMs: protocol.DefaultBackoffMs, RetriesDefault: true}
	for what, change := range map[string]func(*protocol.Subscription){
		"fifo":    func(s *protocol.Subscription) { s.Type = protocol.TypeFIFO },
		"tries":   func(s *protocol.Subscription) { s.RetriesDefault = false },
		"backoff": func(s *protocol.Subscription) { s.BackoffMs++ },
		"delay":   func(s *protocol.Subscription) { s.DelayMs = 1 },
	} {
		sub := plain
		change(&sub)
		_, err := grant(sub)
		refused(what, err)
	}
	if warnings, err := grant(plain); err != nil || len(warnings) > 0 {
		t.Errorf("a plain subscription: %v, %v", warnings, err)
	}
	urgent := plain
	urgent.MaxPriority = 5
	if warnings, err := grant(urgent); err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], "max_priority 5") {
		t.Errorf("a priority: %v, %v", warnings, err)
	}

	for verb, q := range map[string]any{
		protocol.VerbLetters:          protocol.BrokerLettersRequest{Queue: "/queue/run/r", Limit: 1},
		protocol.VerbLettersAct:       protocol.BrokerActRequest{Action: "redrive", Queue: "/queue/run/r"},
		protocol.VerbBrokerWaitingAct: protocol.BrokerWaitingAct{Action: "release", WaitingActRequest: protocol.WaitingActRequest{Queue: "/queue/run/r"}},
	} {
		_, err := mesh.Request[protocol.Empty](f.guarded(), f.nc, lane+verb, q)
		refused(verb, err)
	}
	page, err := mesh.Request[protocol.BrokerLetters](f.guarded(), f.nc, lane+protocol.VerbLetters, protocol.BrokerLettersRequest{Limit: 1})
	if err != nil || page.Total != 0 {
		t.Errorf("all dead letters there are: %+v, %v", page, err)
	}
	waiting, err := mesh.Request[protocol.WaitingPage](f.guarded(), f.nc, lane+protocol.VerbBrokerWaiting, protocol.WaitingListRequest{Limit: 1})
	if err != nil || waiting.Total != 1 || len(waiting.Messages) != 0 {
		t.Errorf("what waits: %+v, %v", waiting, err)
	}
}
