package brokertest

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// counters: each thing that happens is counted once, under its own name, and
// the deliveries add up.
func (s *suite) counters() {
	spec := s.on("r")
	spec.MaxRetries = 2
	w := s.worker(spec)
	for _, life := range [][]protocol.Outcome{
		{protocol.Acknowledged},
		{protocol.Failed, protocol.Acknowledged},
		{protocol.Rejected},
		{protocol.Failed, protocol.Failed},
		{protocol.Pending, protocol.Cancelled, protocol.Acknowledged},
	} {
		s.publish("r", []byte("x"))
		for _, o := range life {
			w.next().end(o)
		}
	}
	letters := s.awaitLetters("r", 2)
	equal(s, "redriven", s.act(protocol.SubjectDeadRedrive, protocol.DeadActRequest{MessageID: letters[0].MessageID}), 1)
	w.next().end(protocol.Acknowledged)
	equal(s, "discarded", s.act(protocol.SubjectDeadDiscard, protocol.DeadActRequest{MessageID: letters[1].MessageID}), 1)
	q := s.awaitEmpty("r", 0)
	for name, want := range map[string]uint64{
		protocol.CountPublished: 5, protocol.CountDelivered: 10, protocol.CountAcknowledged: 4,
		protocol.CountFailed: 3, protocol.CountRejected: 1, protocol.CountIncomplete: 1, protocol.CountHandedBack: 1,
		protocol.CountRetried: 2, protocol.CountDeadLettered: 2, protocol.CountRedriven: 1, protocol.CountDiscarded: 1,
		protocol.CountVanished: 0, protocol.CountFiltered: 0, protocol.CountLost: 0,
	} {
		equal(s, name, q.Counters[name], want)
	}
}

// largest: what is exactly as large as may be goes the whole way, byte for
// byte: a failure, a dead letter, a redrive.
func (s *suite) largest() {
	spec := s.on("r")
	spec.MaxRetries = 2
	w := s.worker(spec)
	payload := bytes.Repeat([]byte{0, 255}, protocol.DefaultMaxPayload/2)
	value := strings.Repeat("v", protocol.MaxHeaderBytes/2)
	id := s.publish("r", payload, "x-large", value).MessageID
	expect := func(what string, data []byte, headers nats.Header) {
		s.Helper()
		if !bytes.Equal(data, payload) || len(headers["x-large"]) != 1 || headers["x-large"][0] != value {
			s.Errorf("%s: %d bytes and a header of %d, published were %d and %d", what, len(data), len(headers.Get("x-large")), len(payload), len(value))
		}
	}
	for range 2 {
		d := w.next()
		expect("a delivery", d.Data, d.Header)
		d.end(protocol.Failed)
	}
	letter := s.awaitLetters("r", 1)[0]
	expect("a dead letter", letter.Payload, whole(&letter))
	equal(s, "redriven", s.act(protocol.SubjectDeadRedrive, protocol.DeadActRequest{MessageID: id}), 1)
	d := w.next()
	expect("a redriven message", d.Data, d.Header)
	d.end(protocol.Acknowledged)
	s.awaitEmpty("r", 0)
}

// shortPassesLong: what fails with a short delay does not wait for what failed
// before it with a longer one, also if that is the more urgent. On a machine so slow
// that the longer one is over too by then, it is seen with longer ones.
func (s *suite) shortPassesLong() {
	spec := s.on("r")
	spec.MaxPriority = 9
	w := s.worker(spec)
	var orders [][]string
	for _, short := range []time.Duration{300 * time.Millisecond, 1200 * time.Millisecond, 5 * time.Second} {
		order := s.orderOfDelays(w, short)
		if slices.Equal(order, []string{"short", "middle", "long"}) {
			s.awaitEmpty("r", 0)
			return
		}
		orders = append(orders, order)
	}
	s.Errorf("a short delay waits for a longer one, however long that is: %v", orders)
}

// orderOfDelays is in which order three messages come back, the first of which fails
// with the longest delay. None comes early.
func (s *suite) orderOfDelays(w *worker, short time.Duration) []string {
	s.Helper()
	delays := map[string]time.Duration{"long": 10 * short, "middle": 3 * short, "short": short}
	ended := map[string]time.Time{}
	for _, name := range []string{"long", "middle", "short"} {
		s.publish("r", []byte(name), protocol.HeaderPriority, map[string]string{"long": "9", "middle": "0", "short": "5"}[name])
	}
	failing := map[string]delivery{}
	for range delays {
		d := w.next()
		failing[string(d.Data)] = d
	}
	for _, name := range []string{"long", "middle", "short"} {
		ended[name] = time.Now()
		failing[name].reply(&nats.Msg{Header: nats.Header{
			protocol.HeaderOutcome:    {string(protocol.Failed)},
			protocol.HeaderRetryAfter: {strconv.FormatInt(delays[name].Milliseconds(), 10)},
		}})
	}
	order := make([]string, 0, len(delays))
	for range delays {
		d := w.next()
		name := string(d.Data)
		order = append(order, name)
		if waited := d.arrived.Sub(ended[name]); waited < delays[name] {
			s.Errorf("%s came after %v, before its %v", name, waited, delays[name])
		}
		d.end(protocol.Acknowledged)
	}
	return order
}

// superseded: an outcome that comes after its delivery was given up changes
// nothing: neither what runs now nor what is counted of it.
func (s *suite) superseded() {
	spec := s.on("r")
	spec.TimeoutMs, spec.MaxRetries = 1500, 100
	w := s.worker(spec)
	s.publish("r", []byte("x"))
	first := w.next()
	spec.TimeoutMs = guard.Milliseconds() // of the second, unless that comes before it is known
	w.hello(spec)
	second := w.next()
	equal(s, "attempt", second.attempt(), 2)
	for second.Header.Get(protocol.HeaderTimeout) == "1500" {
		second = w.next()
	}
	before := s.counted(protocol.CountSuperseded)
	first.end(protocol.Rejected)
	s.eventually("the late outcome to be superseded", func() bool { return s.counted(protocol.CountSuperseded) > before })
	second.end(protocol.Acknowledged)
	q := s.await("r", "an end", func(q protocol.QueueInfo) bool { return q.Ready+q.InFlight+q.Waiting+q.Moving == 0 })
	equal(s, "dead", q.Dead, 0)
	equal(s, "rejected", q.Counters[protocol.CountRejected], 0)
	equal(s, "delivered", q.Counters[protocol.CountDelivered], q.Counters[protocol.CountFailed]+q.Counters[protocol.CountAcknowledged])
}
