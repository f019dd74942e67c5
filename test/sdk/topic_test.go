package sdk_test

import (
	"context"
	"regexp"
	"testing"
	"time"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

func done(context.Context, *client.Delivery) error { return nil }

// declared waits for the hello that declares the subscriptions, and returns
// the last.
func (s *standIn) declared(n int) protocol.SubscriptionSpec {
	s.t.Helper()
	for {
		h := receive(s.t, s.hellos)
		if len(h.Subscriptions) == n {
			return h.Subscriptions[n-1]
		}
	}
}

func TestSubscriptionsToTopicsAreDeclared(t *testing.T) {
	s := startStandIn(t)
	c := s.connect()
	if _, err := c.Listen(t.Context(), "/topic/news", done, client.Timeout(time.Second), client.InExecution("e1")); err != nil {
		t.Fatal(err)
	}
	if spec := s.declared(1); spec.Kind != protocol.KindListen || spec.Topic != "news" || spec.Execution != "e1" || spec.TimeoutMs != 1000 || spec.Route != "" {
		t.Errorf("declared: %+v", spec)
	}
	if _, err := c.Observe(t.Context(), "news", done, client.Group("g"), client.MaxRetries(5)); err != nil {
		t.Fatal(err)
	}
	if spec := s.declared(2); spec.Kind != protocol.KindObserve || spec.Group != "g" || spec.ObserverID != "" || spec.MaxRetries != 5 {
		t.Errorf("declared: %+v", spec)
	}
}

// An observer without an id has one that lasts as long as it does, over lost
// connections too.
func TestObserverIDs(t *testing.T) {
	s := startStandIn(t)
	c := s.connect(client.Name("host/billing"), client.Namespace("shop"))
	w, err := c.Observe(t.Context(), "t", done)
	if err != nil {
		t.Fatal(err)
	}
	uuid := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	if id := s.declared(1).ObserverID; !uuid.MatchString(id) || id != w.ObserverID() {
		t.Errorf("the id is %q, and %q", id, w.ObserverID())
	}
	s.cut()
	if id := s.declared(1).ObserverID; id != w.ObserverID() {
		t.Errorf("after a lost connection it is %q", id)
	}
	other, err := c.Observe(t.Context(), "t", done)
	if err != nil || other.ObserverID() == w.ObserverID() {
		t.Errorf("another's is %q, %v", other.ObserverID(), err)
	}
	pinned, err := c.Observe(t.Context(), "t", done, client.ID("mine"))
	if err != nil || s.declared(3).ObserverID != "mine" || pinned.ObserverID() != "mine" {
		t.Errorf("a pinned one: %v", err)
	}
}

func TestWhatASubscriptionCannotHave(t *testing.T) {
	s := startStandIn(t)
	c := s.connect()
	for what, err := range map[string]error{
		"topic":              second(c.Observe(t.Context(), "a b", done)),
		"no handler":         second(c.Observe(t.Context(), "t", nil)),
		"id":                 second(c.Observe(t.Context(), "t", done, client.ID("a::b"))),
		"group":              second(c.Observe(t.Context(), "t", done, client.Group("*"))),
		"execution":          second(c.Listen(t.Context(), "t", done, client.InExecution("a.b"))),
		"a listener's tries": second(c.Listen(t.Context(), "t", done, client.MaxRetries(2))),
		"a listener's id":    second(c.Listen(t.Context(), "t", done, client.ID("x"))),
		"a route's group":    second(c.Work(t.Context(), "e", "r", done, client.Group("g"))),
		"a topic published":  second(c.Publish(t.Context(), client.Topic("a::b"), nil)),
	} {
		if code := protocol.CodeOf(err); code != protocol.CodeInvalidArgs && code != protocol.CodeInvalidName {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// A subscription that others stand in the way of is refused alone; one that was
// taken before asks again until it is taken.
func TestRefusedSubscription(t *testing.T) {
	s := startStandIn(t)
	c := s.connect()
	s.refusing("taken")
	if _, err := c.Observe(t.Context(), "t", done, client.ID("taken")); protocol.CodeOf(err) != protocol.CodeObserverIDConflict {
		t.Fatalf("got %v", err)
	}
	w, err := c.Observe(t.Context(), "t", done, client.ID("mine"))
	if err != nil {
		t.Fatal(err)
	}
	s.refusing("mine")
	s.cut()
	ctx, cancel := context.WithTimeout(t.Context(), guard)
	defer cancel()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for readyWithin(w, 100*time.Millisecond) { // an answer of before may still be on its way
		select {
		case <-look.C:
		case <-ctx.Done():
			t.Fatal("ready although it is refused")
		}
	}
	s.refusing()
	if err := w.Ready(ctx); err != nil {
		t.Errorf("asked again: %v", err)
	}
	if err := w.Dispose(ctx); err != nil {
		t.Error(err)
	}
}

func readyWithin(w *client.Worker, d time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return w.Ready(ctx) == nil
}
