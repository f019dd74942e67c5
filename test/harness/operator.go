package harness

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

const (
	askTimeout = 5 * time.Second // before a question is asked again
	pageSize   = 500
)

// ask is one question to a service of the mesh, as an operator's program asks it.
func ask[A any](ctx context.Context, nc *nats.Conn, subject string, question any) (A, error) {
	return askWithin[A](ctx, nc, askTimeout, subject, question)
}

func askWithin[A any](ctx context.Context, nc *nats.Conn, within time.Duration, subject string, question any) (answer A, err error) {
	body, err := json.Marshal(question)
	if err != nil {
		return answer, err
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	msg, err := nc.RequestWithContext(ctx, subject, body)
	if err != nil {
		return answer, fmt.Errorf("%s: %w", subject, err)
	}
	if e := protocol.ParseErrorBody(msg.Data); e != nil {
		return answer, e
	}
	err = json.Unmarshal(msg.Data, &answer)
	return answer, err
}

// must is ask, repeated while the mesh is away.
func must[A any](m *Mesh, subject string, question any) A {
	m.t.Helper()
	var answer A
	var err error
	if !poll(Guard, func() bool {
		answer, err = ask[A](m.t.Context(), m.nc, subject, question)
		return err == nil
	}) {
		m.t.Fatal(err)
	}
	return answer
}

// Queue is what the mesh knows of a queue, over all its services.
func (m *Mesh) Queue(execution, route string) protocol.QueueInfo {
	m.t.Helper()
	return m.QueueNamed(scope.ScopedName(execution, route))
}

// QueueNamed is Queue by the queue's name in the ledger.
func (m *Mesh) QueueNamed(name string) protocol.QueueInfo {
	m.t.Helper()
	sum := protocol.QueueInfo{Queue: name, Counters: make(map[string]uint64)}
	for _, q := range m.queues(protocol.QueuesRequest{Queue: name}) {
		add(&sum, q)
	}
	return sum
}

// Queues is what the mesh knows of each queue of an execution, or of all.
func (m *Mesh) Queues(execution string) map[string]protocol.QueueInfo {
	m.t.Helper()
	sums := make(map[string]protocol.QueueInfo)
	for _, q := range m.queues(protocol.QueuesRequest{Execution: execution}) {
		sum, known := sums[q.Queue]
		if !known {
			sum.Counters = make(map[string]uint64)
		}
		add(&sum, q)
		sums[q.Queue] = sum
	}
	return sums
}

// queues asks the services in the order in which messages move away from the
// router, page by page.
func (m *Mesh) queues(question protocol.QueuesRequest) (all []protocol.QueueInfo) {
	m.t.Helper()
	for _, of := range []struct{ service, subject string }{
		{"router", protocol.SubjectQueues}, {"retry", protocol.SubjectWaitingQueues}, {"dlq", protocol.SubjectDeadQueues},
	} {
		subject := of.subject
		if m.copies != nil {
			all = append(all, m.queuesOfAll(subject, question, m.copies(of.service))...)
			continue
		}
		for more := true; more; {
			page := must[protocol.QueuesPage](m, subject, question)
			all = append(all, page.Queues...)
			if more = page.More && len(page.Queues) > 0; more {
				question.After = page.Queues[len(page.Queues)-1].Queue
			}
		}
		question.After = ""
	}
	return all
}

func add(sum *protocol.QueueInfo, q protocol.QueueInfo) {
	sum.Unserved = append(sum.Unserved, q.Unserved...)
	sum.Queue, sum.Execution, sum.Route = q.Queue, q.Execution, q.Route
	sum.Ready += q.Ready
	sum.InFlight += q.InFlight
	sum.Waiting += q.Waiting
	sum.Dead += q.Dead
	sum.Unknown = cmp.Or(sum.Unknown, q.Unknown)
	sum.Moving += q.Moving
	sum.Bytes += q.Bytes
	sum.Consumers += q.Consumers
	for name, n := range q.Counters {
		sum.Counters[name] += n
	}
}

// WaitingInMesh is how many messages of a queue the mesh itself has waiting, beside
// what a broker may have.
func (m *Mesh) WaitingInMesh(queue string) (n int64) {
	m.t.Helper()
	page := must[protocol.QueuesPage](m, protocol.SubjectWaitingQueues, protocol.QueuesRequest{Queue: queue})
	for _, q := range page.Queues {
		n += q.Waiting
	}
	return n
}

// AwaitRest waits until nothing of the execution is ready, in a worker's hands,
// waiting or on its way: all that is left is dead. The services are asked one
// after another, so that a message may have moved past all the questions: it is
// at rest when twice nothing was seen and nothing was counted in between.
func (m *Mesh) AwaitRest(execution string, within time.Duration) map[string]protocol.QueueInfo {
	m.t.Helper()
	var before, now map[string]protocol.QueueInfo
	if !poll(within, func() bool {
		before, now = now, m.Queues(execution)
		return atRest(now) && maps.EqualFunc(before, now, sameCounters)
	}) {
		m.t.Fatalf("after %v still not at rest: %+v", within, now)
	}
	return now
}

// AwaitDead waits until all that was published to a route is acknowledged or dead, and
// so many are dead.
func (m *Mesh) AwaitDead(execution, route string, dead int64) {
	m.t.Helper()
	AwaitWithin(m.t, 2*Guard, route+" to come to rest", func() bool {
		q := m.Queue(execution, route)
		return q.Ready+q.InFlight+q.Waiting+q.Moving == 0 && q.Dead == dead
	})
}

func atRest(queues map[string]protocol.QueueInfo) bool {
	for _, q := range queues {
		if q.Ready+q.InFlight+q.Waiting+q.Moving != 0 {
			return false
		}
	}
	return true
}

func sameCounters(a, b protocol.QueueInfo) bool { return maps.Equal(a.Counters, b.Counters) }

// Dead are the dead letters of a queue, or of all with an empty name, in the
// mesh's order and without their payloads.
func (m *Mesh) Dead(queue string) (letters []protocol.DeadLetter) {
	m.t.Helper()
	for {
		page := must[protocol.DeadPage](m, protocol.SubjectDeadList, protocol.DeadListRequest{
			Queue: queue, Offset: len(letters), Limit: pageSize,
		})
		letters = append(letters, page.Letters...)
		if len(page.Letters) == 0 || int64(len(letters)) >= page.Total {
			return letters
		}
	}
}

// SomeDead are the oldest dead letters of a queue, at most that many; an error
// if the mesh is away.
func (m *Mesh) SomeDead(queue string, most int) ([]protocol.DeadLetter, error) {
	page, err := ask[protocol.DeadPage](m.t.Context(), m.nc, protocol.SubjectDeadList, protocol.DeadListRequest{Queue: queue, Limit: most})
	return page.Letters, err
}

// Letter is one dead letter, whole.
func (m *Mesh) Letter(id string) protocol.DeadLetter {
	m.t.Helper()
	return must[protocol.DeadLetter](m, protocol.SubjectDeadShow, protocol.DeadShowRequest{MessageID: id})
}

// Redrive redrives once and says how many letters that was.
func (m *Mesh) Redrive(what protocol.DeadActRequest) (int64, error) {
	return m.act(Guard, protocol.SubjectDeadRedrive, what)
}

// Discard discards, as Redrive redrives.
func (m *Mesh) Discard(what protocol.DeadActRequest) (int64, error) {
	return m.act(Guard, protocol.SubjectDeadDiscard, what)
}

// TryRedrive is Redrive on a mesh that may go away: it does not wait for long. Without
// an answer, which is an error, it may have been done.
func (m *Mesh) TryRedrive(what protocol.DeadActRequest) (int64, error) {
	return m.act(askTimeout, protocol.SubjectDeadRedrive, what)
}

// TryDiscard discards, as TryRedrive redrives.
func (m *Mesh) TryDiscard(what protocol.DeadActRequest) (int64, error) {
	return m.act(askTimeout, protocol.SubjectDeadDiscard, what)
}

func (m *Mesh) act(within time.Duration, subject string, what protocol.DeadActRequest) (int64, error) {
	answer, err := askWithin[protocol.DeadActReply](m.t.Context(), m.nc, within, subject, what)
	return answer.Count, err
}

// Close closes or purges an execution once.
func (m *Mesh) Close(execution string, purge bool) (protocol.Execution, error) {
	return m.close(Guard, execution, purge)
}

// TryClose is Close on a mesh that may go away, as TryRedrive is Redrive.
func (m *Mesh) TryClose(execution string, purge bool) (protocol.Execution, error) {
	return m.close(askTimeout, execution, purge)
}

func (m *Mesh) close(within time.Duration, execution string, purge bool) (protocol.Execution, error) {
	return askWithin[protocol.Execution](m.t.Context(), m.nc, within, protocol.SubjectExecutionClose,
		protocol.ExecutionCloseRequest{Execution: execution, Purge: purge})
}

// Stats are the counters and gauges of every instance, by service.
func (m *Mesh) Stats() map[string]protocol.Stats {
	m.t.Helper()
	inbox := m.nc.NewRespInbox()
	answers, err := m.nc.SubscribeSync(inbox)
	if err != nil {
		m.t.Fatal(err)
	}
	defer func() { _ = answers.Unsubscribe() }()
	if err := m.nc.PublishRequest(protocol.SubjectStats, inbox, []byte("{}")); err != nil {
		m.t.Fatal(err)
	}
	stats := make(map[string]protocol.Stats)
	for _, service := range []string{"router", "retry", "dlq", "registry"} {
		for stats[service].Service == "" {
			msg, err := answers.NextMsg(Guard)
			if err != nil {
				m.t.Fatalf("no stats of %s (only %v): %v", service, stats, err)
			}
			var s protocol.Stats
			if err := json.Unmarshal(msg.Data, &s); err != nil {
				m.t.Fatal(err)
			}
			stats[s.Service] = s
		}
	}
	return stats
}
