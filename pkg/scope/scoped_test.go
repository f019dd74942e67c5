package scope_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

// recorder is a queue that only remembers what it was asked.
type recorder struct {
	published  []string
	data       []string
	subscribed []string
	who        []scope.Subscriber
	handlers   []scope.Handler
	err        error
}

func (r *recorder) Publish(_ context.Context, name string, m scope.Message) error {
	r.published, r.data = append(r.published, name), append(r.data, string(m.Data))
	return r.err
}

func (r *recorder) Subscribe(_ context.Context, name string, who scope.Subscriber, h scope.Handler) (scope.Subscription, error) {
	r.subscribed, r.who, r.handlers = append(r.subscribed, name), append(r.who, who), append(r.handlers, h)
	return r, r.err
}

func (r *recorder) Stop(context.Context) error { return r.err }

const execution = "019ce6d0-7b1c-7000-8000-0123456789ab"

func mustScope(t *testing.T, q scope.Queue, execution string) scope.Queue {
	t.Helper()
	scoped, err := scope.Scoped(q, execution)
	if err != nil {
		t.Fatal(err)
	}
	return scoped
}

func TestScopedRewritesOnPublish(t *testing.T) {
	var q recorder
	scoped := mustScope(t, &q, execution)
	for _, name := range []string{"scraping.tasks", "/queue/scraping.tasks", "/queue/" + execution + "/scraping.tasks", "/topic/config.reloaded"} {
		if err := scoped.Publish(t.Context(), name, scope.Message{Data: []byte(name)}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	own := "/queue/" + execution + "/scraping.tasks"
	if diff := cmp.Diff([]string{own, own, own, "/topic/config.reloaded"}, q.published); diff != "" {
		t.Error(diff)
	}
	if q.data[0] != "scraping.tasks" {
		t.Errorf("the message changed on its way: %q", q.data[0])
	}
}

func TestScopedRewritesOnSubscribe(t *testing.T) {
	var q recorder
	scoped := mustScope(t, &q, execution)
	refusal := errors.New("handled")
	handle := func(context.Context, scope.Message) error { return refusal }
	for _, name := range []string{"scraping.tasks", "/topic/config.reloaded"} {
		if _, err := scoped.Subscribe(t.Context(), name, scope.Subscriber{Name: "web-scraper"}, handle); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"/queue/" + execution + "/scraping.tasks", "/topic/config.reloaded"}, q.subscribed); diff != "" {
		t.Error(diff)
	}
	who := scope.Subscriber{Name: "web-scraper:019ce6d0", Execution: execution}
	if diff := cmp.Diff([]scope.Subscriber{who, who}, q.who); diff != "" {
		t.Error(diff)
	}
	if err := q.handlers[0](t.Context(), scope.Message{}); !errors.Is(err, refusal) {
		t.Errorf("the handler's own answer is %v", err)
	}
}

func TestScopedKeepsExecutionsApart(t *testing.T) {
	var q recorder
	for _, execution := range []string{"E", "E1", "E-1"} {
		if err := mustScope(t, &q, execution).Publish(t.Context(), "r", scope.Message{}); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"/queue/E/r", "/queue/E1/r", "/queue/E-1/r"}, q.published); diff != "" {
		t.Error(diff)
	}
}

func TestScopedRefusesBeforeTheQueue(t *testing.T) {
	for _, execution := range []string{"", "*", ">", "a.b", "a/b"} {
		if _, err := scope.Scoped(&recorder{}, execution); protocol.CodeOf(err) != protocol.CodeInvalidName {
			t.Errorf("execution %q: %v", execution, err)
		}
	}
	var q recorder
	scoped := mustScope(t, &q, "E1")
	for _, name := range []string{"", "/queue/E2/r", "a b", "r.dlq", "/topic/", "/topic/a b", "*"} {
		if err := scoped.Publish(t.Context(), name, scope.Message{}); protocol.CodeOf(err) != protocol.CodeInvalidName {
			t.Errorf("publish to %q: %v", name, err)
		}
		if _, err := scoped.Subscribe(t.Context(), name, scope.Subscriber{Name: "s"}, nil); protocol.CodeOf(err) != protocol.CodeInvalidName {
			t.Errorf("subscribe to %q: %v", name, err)
		}
	}
	if _, err := scoped.Subscribe(t.Context(), "r", scope.Subscriber{Name: "a b"}, nil); protocol.CodeOf(err) != protocol.CodeInvalidName {
		t.Errorf("subscription a b: %v", err)
	}
	if len(q.published)+len(q.subscribed) != 0 {
		t.Errorf("the queue saw %q and %q", q.published, q.subscribed)
	}
}

func TestScopedReturnsTheQueuesError(t *testing.T) {
	q := recorder{err: errors.New("broker is away")}
	scoped := mustScope(t, &q, "E1")
	if err := scoped.Publish(t.Context(), "r", scope.Message{}); !errors.Is(err, q.err) {
		t.Errorf("publish: %v", err)
	}
	if _, err := scoped.Subscribe(t.Context(), "r", scope.Subscriber{Name: "s"}, nil); !errors.Is(err, q.err) {
		t.Errorf("subscribe: %v", err)
	}
}
