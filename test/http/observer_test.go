package http_test

import (
	"context"
	"net/http"
	"net/url"
	"testing"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/test/harness"
)

// Observers are listed, shown, and removed when nobody is one any more.
func TestObservers(t *testing.T) {
	m := harness.Start(t)
	c := m.Connect()
	w, err := c.Observe(t.Context(), "orders.created", func(context.Context, *client.Delivery) error { return nil }, client.ID("billing"), client.Concurrency(0))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Publish(t.Context(), client.Topic("orders.created"), []byte("x")); err != nil {
		t.Fatal(err)
	}
	const queue = "orders.created::observer:billing"
	one := "/api/v1/observers/" + url.PathEscape(queue)
	list := read[protocol.ObserversPage](t, call(t, m.HTTP, http.MethodGet, "/api/v1/observers?topic=orders.created", ""), http.StatusOK)
	if len(list.Observers) != 1 || list.Observers[0].Queue != queue || list.Observers[0].Ready != 1 || list.Observers[0].State != protocol.ObserverActive {
		t.Errorf("listed: %+v", list)
	}
	if orphans := read[protocol.ObserversPage](t, call(t, m.HTTP, http.MethodGet, "/api/v1/observers?orphans=true", ""), http.StatusOK); len(orphans.Observers) != 0 {
		t.Errorf("orphans: %+v", orphans)
	}
	if shown := read[protocol.ObserverInfo](t, call(t, m.HTTP, http.MethodGet, one, ""), http.StatusOK); shown.ObserverID != "billing" || len(shown.Members) != 1 || shown.Owner == nil {
		t.Errorf("shown: %+v", shown)
	}
	if a := call(t, m.HTTP, http.MethodDelete, one, ""); a.status != http.StatusConflict {
		t.Errorf("removed while it is observed: %d %s", a.status, a.body)
	}
	if err := w.Dispose(t.Context()); err != nil {
		t.Fatal(err)
	}
	if removed := read[protocol.ObserverRemoved](t, call(t, m.HTTP, http.MethodDelete, one, ""), http.StatusOK); removed.Discarded != 1 || removed.Queue != queue {
		t.Errorf("removed: %+v", removed)
	}
	for path, status := range map[string]int{one: http.StatusNotFound, "/api/v1/observers/e1-r": http.StatusBadRequest} {
		for _, method := range []string{http.MethodGet, http.MethodDelete} {
			if a := call(t, m.HTTP, method, path, ""); a.status != status {
				t.Errorf("%s %s: %d %s", method, path, a.status, a.body)
			}
		}
	}
}
