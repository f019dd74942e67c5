package brokertest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

// Each test has a queue that is called as its execution is, and functions in the
// namespace of that name.

// define defines the test's queue and expects it to be so.
func (s *suite) define(config string) protocol.DefineReply {
	s.Helper()
	whole := json.RawMessage(config)
	if s.oneDelay() {
		whole = withoutDelay(whole)
	}
	var r protocol.DefineReply
	s.eventually("the definition", func() (done bool) {
		var err error
		r, err = mesh.Request[protocol.DefineReply](s.guarded(), s.nc, protocol.SubjectDefine, protocol.DefineRequest{Queue: s.execution, Config: whole})
		if err != nil && protocol.CodeOf(err) != protocol.CodeUnavailable { // else it is to be tried again
			s.Fatalf("defining a queue: %v", err)
		}
		return err == nil
	})
	return r
}

// tryDefine returns what a definition is refused with.
func (s *suite) tryDefine(queue, config string) *protocol.Error {
	s.Helper()
	_, err := mesh.Request[protocol.DefineReply](s.guarded(), s.nc, protocol.SubjectDefine, protocol.DefineRequest{Queue: queue, Config: json.RawMessage(config)})
	if err != nil {
		return protocol.AsError(err)
	}
	return nil
}

// server is a worker that takes jobs for functions of the test's namespace.
func (s *suite) server(functions ...string) *worker {
	s.Helper()
	w := s.unregistered()
	for _, f := range functions {
		w.serves = append(w.serves, protocol.DeclaredFunction{FunctionSpec: protocol.FunctionSpec{Namespace: s.execution, ID: f}})
	}
	w.hello()
	return w
}

// enqueue leaves a job in the test's queue.
func (s *suite) enqueue(function, data string) protocol.PublishAck {
	s.Helper()
	ack, refused := s.tryPublish(protocol.PublishJobSubject(s.execution), []byte(data), s.jobHeader(function))
	if refused != nil {
		s.Fatalf("enqueueing for %s: %v", function, refused)
	}
	return ack
}

func (s *suite) jobHeader(function string) nats.Header {
	return nats.Header{protocol.HeaderFunction: {function}, protocol.HeaderNamespace: {s.execution}}
}

// enqueueBy calls the function that enqueues.
func (s *suite) enqueueBy(q protocol.EnqueueRequest) (protocol.EnqueueReply, error) {
	s.Helper()
	return mesh.Request[protocol.EnqueueReply](s.guarded(), s.nc, protocol.FunctionSubject(protocol.DefaultNamespace, protocol.FunctionEnqueue), q)
}

func (s *suite) jobs() protocol.QueueInfo {
	s.Helper()
	return s.queueNamed(scope.JobsQueue(s.execution))
}

// awaitDone waits until all jobs of the test's queue are done or dead.
func (s *suite) awaitDone(dead int64) protocol.QueueInfo {
	s.Helper()
	return s.settled(scope.JobsQueue(s.execution), dead)
}

// jobRuns: a job reaches its function as it was enqueued, either way.
func (s *suite) jobRuns() {
	s.define(`{}`)
	w := s.server("text::upper")
	ack := s.enqueue("text::upper", `{"text": "a"}`)
	equal(s, "listeners", ack.Broker, s.Broker)
	d := w.next()
	equal(s, "id", d.id(), ack.MessageID)
	equal(s, "data", string(d.Data), `{"text": "a"}`)
	equal(s, "function", d.Header.Get(protocol.HeaderFunction), "text::upper")
	equal(s, "namespace", d.Header.Get(protocol.HeaderNamespace), s.execution)
	equal(s, "attempt", d.attempt(), 1)
	equal(s, "time limit", d.Header.Get(protocol.HeaderTimeout), strconv.Itoa(protocol.DefaultTimeoutMs))
	d.end(protocol.Acknowledged)
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	reply, err := s.enqueueBy(protocol.EnqueueRequest{
		Queue: s.execution, Namespace: s.execution, FunctionID: "text::upper", Data: json.RawMessage(`[1,null]`), ReceiptID: "r-1", Traceparent: parent, Baggage: "tenant=7",
	})
	if err != nil || reply.ReceiptID != "r-1" {
		s.Fatalf("enqueueing by a call: %+v, %v", reply, err)
	}
	d = w.next()
	equal(s, "data", string(d.Data), `[1,null]`)
	equal(s, "receipt", d.Header.Get(protocol.HeaderReceipt), "r-1")
	equal(s, "traceparent", d.Header.Get(protocol.HeaderTraceparent), parent)
	equal(s, "baggage", d.Header.Get(protocol.HeaderBaggage), "tenant=7")
	d.end(protocol.Failed)
	again := w.next()
	equal(s, "attempt", again.attempt(), 2)
	equal(s, "id", again.id(), d.id())
	equal(s, "receipt", again.Header.Get(protocol.HeaderReceipt), "r-1")
	again.end(protocol.Acknowledged)
	q := s.awaitDone(0)
	equal(s, "name", q.Counters[protocol.CountAcknowledged], 2)
}

// jobDefined: a definition is told once, with a warning of what has no effect, and one
// that is bad in any way changes nothing.
func (s *suite) jobDefined() {
	first := s.define(`{"max_retries": 5, "max_priority": 5, "poll_interval_ms": 100}`)
	equal(s, "changed", first.Changed, true)
	warnings := 1 // nothing is polled
	if !s.Capabilities.Priorities {
		warnings++
	}
	equal(s, "warnings", len(first.Warnings), warnings)
	equal(s, "changed again", s.define(`{"max_retries": 5, "max_priority": 5, "poll_interval_ms": 100}`).Changed, false)
	equal(s, "changed to another", s.define(`{"max_retries": 4, "max_priority": 5}`).Changed, true)
	for config, code := range map[string]protocol.Code{
		`{"max_priority": 9}`: protocol.CodeConflict, `{}`: protocol.CodeConflict,
		`{"type": "fifo"}`: protocol.CodeInvalidArgs, `{"concurrency": 0}`: protocol.CodeInvalidArgs, `{"retries": 1}`: protocol.CodeInvalidArgs, `7`: protocol.CodeInvalidArgs,
	} {
		refused := s.tryDefine(s.execution, config)
		if refused == nil || refused.Code != code || code == protocol.CodeConflict && !strings.Contains(refused.Message, s.execution) {
			s.Errorf("%s: %v, want %s", config, refused, code)
		}
	}
	for name, code := range map[string]protocol.Code{
		"": protocol.CodeInvalidArgs, " ": protocol.CodeInvalidArgs, s.execution + " ": protocol.CodeInvalidArgs,
		s.execution + ".dlq": protocol.CodeInvalidName, "a b": protocol.CodeInvalidName, "a/b": protocol.CodeInvalidName,
	} {
		if refused := s.tryDefine(name, `{}`); refused == nil || refused.Code != code {
			s.Errorf("a queue called %q: %v, want %s", name, refused, code)
		}
	}
	equal(s, "policy", ask[protocol.Policy](s, protocol.SubjectPolicy, protocol.PolicyRequest{Queue: scope.JobsQueue(s.execution)}).MaxRetries, 4)
	page := ask[protocol.DefinitionsPage](s, protocol.SubjectDefinitions, protocol.DefinitionsRequest{Queue: s.execution})
	want := protocol.DefaultQueueDefinition()
	want.MaxRetries, want.MaxPriority = 4, 5
	if len(page.Queues) != 1 || page.Queues[0].Config != want {
		s.Errorf("it is defined as %+v, want %+v", page.Queues, want)
	}
	all := ask[protocol.DefinitionsPage](s, protocol.SubjectDefinitions, protocol.DefinitionsRequest{})
	if !slices.ContainsFunc(all.Queues, func(q protocol.DefinedQueue) bool { return q.Queue == protocol.DefaultQueue }) {
		s.Errorf("there is no queue called default")
	}
}

// jobRefused: what can be no job is refused, with nothing stored.
func (s *suite) jobRefused() {
	subject := protocol.PublishJobSubject(s.execution)
	_, refused := s.tryPublish(subject, nil, s.jobHeader("f"))
	if refused == nil || refused.Code != protocol.CodeNotFound || !strings.Contains(refused.Message, "queue define") {
		s.Errorf("a queue that is not defined: %v", refused)
	}
	s.define(`{"type": "fifo", "message_group_field": "session"}`)
	for what, one := range map[string]struct {
		header nats.Header
		data   string
		code   protocol.Code
	}{
		"no function":     {nats.Header{}, `{"session": "a"}`, protocol.CodeInvalidArgs},
		"a bad function":  {s.jobHeader("a b"), `{"session": "a"}`, protocol.CodeInvalidName},
		"an own function": {s.jobHeader(protocol.FunctionRedrive), `{"session": "a"}`, protocol.CodeForbidden},
		"a reserved name": {nats.Header{protocol.HeaderFunction: {"f"}, "Waybill-Epoch": {"1"}}, `{"session": "a"}`, protocol.CodeReservedHeader},
		"no group":        {s.jobHeader("f"), `{}`, protocol.CodeInvalidArgs},
		"an empty group":  {s.jobHeader("f"), `{"session": ""}`, protocol.CodeInvalidArgs},
		"no such group":   {s.jobHeader("f"), `{"session": {"id": 1}}`, protocol.CodeInvalidArgs},
		"no object":       {s.jobHeader("f"), `"session"`, protocol.CodeInvalidArgs},
		"no JSON":         {s.jobHeader("f"), `{`, protocol.CodeInvalidArgs},
	} {
		if _, refused := s.tryPublish(subject, []byte(one.data), one.header); refused == nil || refused.Code != one.code {
			s.Errorf("%s: %v, want %s", what, refused, one.code)
		}
	}
	for what, q := range map[string]protocol.EnqueueRequest{
		"no queue":    {FunctionID: "f"},
		"no function": {Queue: s.execution},
		"no group":    {Queue: s.execution, FunctionID: "f", Data: json.RawMessage(`{}`)},
		"a receipt":   {Queue: s.execution, FunctionID: "f", Data: json.RawMessage(`{"session": 1}`), ReceiptID: strings.Repeat("x", 300)},
	} {
		if _, err := s.enqueueBy(q); protocol.CodeOf(err) != protocol.CodeInvalidArgs {
			s.Errorf("a call with %s: %v", what, err)
		}
	}
	if _, refused := s.tryPublish(protocol.PublishQueueSubject(s.execution, "r"), nil, s.jobHeader("f")); refused == nil || refused.Code != protocol.CodeReservedHeader {
		s.Errorf("a job's headers in a publish: %v", refused)
	}
	equal(s, "jobs", s.jobs().Ready, 0)
	s.enqueue("f", `{"session": 7}`)
	// A broker may be on its way to deliver it, when neither it nor the lane counts it.
	s.eventually("the one job that was taken", func() bool { return s.jobs().Ready == 1 })
}

// jobIsJSON: what no function could take is refused by a standard queue too;
// nothing is null.
func (s *suite) jobIsJSON() {
	s.define(`{}`)
	for _, data := range []string{"{", "a", "1 2", "\"\xff\""} {
		if _, refused := s.tryPublish(protocol.PublishJobSubject(s.execution), []byte(data), s.jobHeader("f")); refused == nil || refused.Code != protocol.CodeInvalidArgs {
			s.Errorf("%q: %v", data, refused)
		}
	}
	equal(s, "jobs", s.jobs().Ready, 0)
	w := s.server("f")
	s.enqueue("f", "")
	d := w.next()
	equal(s, "what is no data", string(d.Data), "null")
	d.end(protocol.Acknowledged)
}

// jobWaits: jobs for a function that nobody serves wait, unspent and looked at
// once, and hold up nobody else's.
func (s *suite) jobWaits() {
	s.define(`{"concurrency": 4}`)
	const n = 100
	for i := range n {
		s.enqueue("missing", strconv.Itoa(i))
		s.enqueue("there", strconv.Itoa(i))
	}
	w := s.server("there")
	for range n {
		w.next().end(protocol.Acknowledged)
	}
	s.eventually("the others to wait", func() bool {
		q := s.jobs()
		return q.Ready == n && len(q.Unserved) == 1 && q.Unserved[0].Jobs == n
	})
	q := s.jobs()
	equal(s, "function", q.Unserved[0].ID, "missing")
	equal(s, "looks", q.Unserved[0].Looks, 1)
	late := s.server("missing")
	came := map[string]bool{} // in any order: nobody asked for one
	for range n {
		d := late.next()
		came[string(d.Data)] = true
		equal(s, "attempt", d.attempt(), 1)
		d.end(protocol.Acknowledged)
	}
	equal(s, "jobs", len(came), n)
	equal(s, "delivered", s.awaitDone(0).Counters[protocol.CountDelivered], 2*n)
}

// jobConcurrency: the queue's, over all workers and functions together, also when
// it is defined anew; and the worker's own.
func (s *suite) jobConcurrency() {
	s.define(`{"concurrency": 3}`)
	all := make(chan delivery, 64)
	s.server("f", "g").into(all)
	s.server("f").into(all)
	for i := range 8 {
		s.enqueue([]string{"f", "g"}[i%2], "{}")
	}
	var held []delivery
	take := func(n int) {
		for range n {
			held = append(held, s.next(all))
		}
		s.stays("no more at once", func() bool { return len(all) == 0 })
	}
	take(3)
	s.define(`{"concurrency": 5}`)
	take(2)
	for _, d := range held {
		d.end(protocol.Acknowledged)
	}
	held = nil
	take(3)
	for _, d := range held {
		d.end(protocol.Acknowledged)
	}
	s.awaitDone(0)
	one := s.unregistered()
	one.serves = []protocol.DeclaredFunction{{FunctionSpec: protocol.FunctionSpec{Namespace: s.execution, ID: "h"}, Concurrency: 1}}
	one.hello()
	s.enqueue("h", "1")
	s.enqueue("h", "2")
	d := one.next()
	s.stays("one at once", func() bool { return len(one.deliveries) == 0 })
	s.enqueue("f", "3")
	s.next(all).end(protocol.Acknowledged)
	d.end(protocol.Acknowledged)
	one.next().end(protocol.Acknowledged)
	s.awaitDone(0)
}

// jobOrder: the jobs of a group are handled in order, also when one fails; the
// groups side by side.
func (s *suite) jobOrder() {
	s.define(`{"type": "fifo", "message_group_field": "session", "backoff_ms": 1, "concurrency": 2}`)
	w := s.server("f")
	for _, job := range []string{"A", "B", "C"} {
		s.enqueue("f", fmt.Sprintf(`{"session": "x", "job": %q}`, job))
	}
	name := func(d delivery) string {
		var data struct {
			Job string `json:"job"`
		}
		if err := json.Unmarshal(d.Data, &data); err != nil {
			s.Errorf("a job is %s: %v", d.Data, err)
		}
		return data.Job + d.Header.Get(protocol.HeaderAttempt)
	}
	d := w.next()
	s.enqueue("f", `{"session": 5, "job": "D"}`)
	other := w.next()
	equal(s, "another group's", name(other), "D1")
	equal(s, "group", other.Header.Get(protocol.HeaderGroup), "5")
	other.end(protocol.Acknowledged)
	for _, want := range []string{"A1", "A2", "B1", "C1"} {
		equal(s, "next", name(d), want)
		if want == "A1" {
			d.end(protocol.Failed)
		} else {
			d.end(protocol.Acknowledged)
		}
		if want != "C1" {
			d = w.next()
		}
	}
	q := s.awaitDone(0)
	equal(s, "type", q.Type, protocol.TypeFIFO)
}

// jobTimeout: the time limit is the queue's; what is past it has failed, and the
// last time it is a dead letter.
func (s *suite) jobTimeout() {
	s.define(`{"timeout_ms": 200, "max_retries": 2, "backoff_ms": 1}`)
	w := s.server("f")
	s.enqueue("f", "{}")
	late := w.next()
	equal(s, "attempt", w.next().attempt(), 2)
	late.end(protocol.Acknowledged) // of an attempt that has ended
	q := s.awaitDone(1)
	equal(s, "failed", q.Counters[protocol.CountFailed], 2)
	page := ask[protocol.DeadPage](s, protocol.SubjectDeadList, protocol.DeadListRequest{Queue: scope.JobsQueue(s.execution)})
	equal(s, "reason", page.Letters[0].Reason, protocol.ReasonTimeout)
	s.define(`{"max_retries": 1}`)
	equal(s, "redriven", s.act(protocol.SubjectDeadRedrive, protocol.DeadActRequest{Queue: scope.JobsQueue(s.execution)}), 1)
	d := w.next()
	equal(s, "attempt", d.attempt(), 1)
	equal(s, "function", d.Header.Get(protocol.HeaderFunction), "f")
	d.end(protocol.Failed)
	s.awaitDone(1)
}

// jobBudget: three tries, the second a second after the first, if the definition
// says nothing else and the broker has no delay of its own.
func (s *suite) jobBudget() {
	s.define(`{}`)
	w := s.server("f")
	s.enqueue("f", "{}")
	var failed time.Time
	for attempt, wait := range []time.Duration{0, time.Second, 2 * time.Second} {
		d := w.next()
		equal(s, "attempt", d.attempt(), attempt+1)
		if waited := d.arrived.Sub(failed); attempt > 0 && !s.oneDelay() && waited < wait {
			s.Errorf("attempt %d came after %v, before its %v", attempt+1, waited, wait)
		}
		failed = time.Now()
		d.end(protocol.Failed)
	}
	q := s.awaitDone(1)
	equal(s, "failed", q.Counters[protocol.CountFailed], 3)
}

// jobPriority: the higher first, by the data.
func (s *suite) jobPriority() {
	if !s.Capabilities.Priorities {
		return // "priority" has what is said of it
	}
	s.define(`{"max_priority": 9, "priority_field": "urgency", "concurrency": 1}`)
	for _, data := range []string{`{"urgency": 1}`, `{"urgency": 300}`, `{"urgency": "no"}`, `{"urgency": 5}`, `[]`} {
		s.enqueue("f", data)
	}
	w := s.server("f")
	for _, want := range []string{`{"urgency": 300}`, `{"urgency": 5}`, `{"urgency": 1}`, `{"urgency": "no"}`, `[]`} {
		d := w.next()
		equal(s, "job", string(d.Data), want)
		d.end(protocol.Acknowledged)
	}
	s.awaitDone(0)
}

// jobNamespaces: a function is that of the namespace the job was enqueued in.
func (s *suite) jobNamespaces() {
	s.define(`{}`)
	one, other := s.server("f"), s.unregistered()
	other.serves = []protocol.DeclaredFunction{{FunctionSpec: protocol.FunctionSpec{Namespace: s.execution + "-2", ID: "f"}}}
	other.hello()
	s.enqueue("f", "1")
	if _, err := s.enqueueBy(protocol.EnqueueRequest{Queue: s.execution, Namespace: s.execution + "-2", FunctionID: "f", Data: json.RawMessage("2")}); err != nil {
		s.Fatal(err)
	}
	for want, w := range map[string]*worker{"1": one, "2": other} {
		d := w.next()
		equal(s, "job", string(d.Data), want)
		d.end(protocol.Acknowledged)
	}
	s.awaitDone(0)
}

// jobQueueRemoved: a queue that holds something is removed on a second word
// alone, and takes nothing any more.
func (s *suite) jobQueueRemoved() {
	s.define(`{}`)
	s.enqueue("f", "{}")
	_, err := mesh.Request[protocol.QueueRemoved](s.guarded(), s.nc, protocol.SubjectQueueRemove, protocol.QueueRemoveRequest{Queue: s.execution})
	if protocol.CodeOf(err) != protocol.CodeConflict {
		s.Errorf("removing a queue with a job: %v, want CONFLICT", err)
	}
	refused := s.tryDefine(s.execution, `{"type": "fifo", "message_group_field": "g"}`)
	if refused == nil || refused.Code != protocol.CodeConflict || !strings.Contains(refused.Message, "message_group_field") {
		s.Errorf("grouping what came without groups: %v, want CONFLICT", refused)
	}
	removed := ask[protocol.QueueRemoved](s, protocol.SubjectQueueRemove, protocol.QueueRemoveRequest{Queue: s.execution, Purge: true})
	equal(s, "removed", removed.Removed, true)
	equal(s, "discarded", removed.Discarded, 1)
	if _, refused := s.tryPublish(protocol.PublishJobSubject(s.execution), nil, s.jobHeader("f")); refused == nil || refused.Code != protocol.CodeNotFound {
		s.Errorf("a job for it: %v, want NOT_FOUND", refused)
	}
	equal(s, "removed again", ask[protocol.QueueRemoved](s, protocol.SubjectQueueRemove, protocol.QueueRemoveRequest{Queue: s.execution}).Removed, false)
	s.define(`{"max_priority": 3}`)
	w := s.server("f")
	s.enqueue("f", "1")
	equal(s, "job", string(w.next().Data), "1")
}

// jobsOverRestart: a queue stays as it was defined, with what it holds and what
// runs.
func (s *suite) jobsOverRestart() {
	s.define(`{"type": "fifo", "message_group_field": "session", "max_retries": 7}`)
	w := s.server("f")
	s.enqueue("f", `{"session": 1, "n": 1}`)
	s.enqueue("f", `{"session": 1, "n": 2}`)
	s.enqueue("missing", `{"session": 2}`)
	d := w.next()
	s.Restart(s.T)
	if !s.Capabilities.Resumes {
		d = w.next()
		equal(s, "again", string(d.Data), `{"session": 1, "n": 1}`)
	}
	d.end(protocol.Acknowledged)
	second := w.next()
	equal(s, "next", string(second.Data), `{"session": 1, "n": 2}`)
	equal(s, "tries", second.Header.Get(protocol.HeaderMaxRetries), "7")
	second.end(protocol.Acknowledged)
	late := s.server("missing")
	waited := late.next()
	equal(s, "attempt", waited.attempt(), 1)
	waited.end(protocol.Acknowledged)
	s.awaitDone(0)
	s.enqueue("f", `{"session": 1, "n": 3}`)
	w.next().end(protocol.Acknowledged)
	s.awaitDone(0)
}
