package router_test

import (
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// server is a program that takes jobs for a function. It is in the registry's
// list, and no event has told of it.
func (f *fixture) server(function string) *program {
	f.Helper()
	p := f.program("/queue/e/unused", nil)
	deliver := protocol.DeliverSubject("local", p.record.ID+"-f")
	p.subscribe(deliver, func(m *nats.Msg) { p.got <- m })
	f.must(p.nc.Flush())
	f.mu.Lock()
	defer f.mu.Unlock()
	f.revision++
	w := f.workers[p.record.ID]
	w.KVRevision = f.revision
	w.Functions = []protocol.ServedFunction{{DeclaredFunction: protocol.DeclaredFunction{FunctionSpec: protocol.FunctionSpec{Namespace: protocol.DefaultNamespace, ID: function}}, Deliver: deliver}}
	f.workers[w.ID] = w
	return p
}

// A question to the registry that fails says nothing of who serves a function:
// it is asked again soon.
func TestAFailedLookIsRepeated(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.failing = 3
	p := f.server("late")
	f.router("a", nil)
	m := &nats.Msg{Subject: protocol.PublishJobSubject(protocol.DefaultQueue), Header: nats.Header{protocol.HeaderFunction: {"late"}}, Data: []byte("1")}
	f.await("the job to be stored", func() bool {
		answer, err := f.nc.RequestMsgWithContext(f.guarded(), m)
		return err == nil && protocol.ParseErrorBody(answer.Data) == nil
	})
	d := p.next()
	if string(d.Data) != "1" || d.Header.Get(protocol.HeaderAttempt) != "1" {
		t.Errorf("the job is %q with %v", d.Data, d.Header)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failing > 0 {
		t.Errorf("%d questions have not been asked", f.failing)
	}
}
