package router

import (
	"testing"
	"time"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

func testDirectory(t *testing.T) *directory {
	t.Helper()
	s, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	s.makeSlots(4)
	return s.directory
}

func record(revision uint64, subs ...string) protocol.Worker {
	w := protocol.Worker{ID: "w", KVRevision: revision}
	for _, queue := range subs {
		w.Subscriptions = append(w.Subscriptions, protocol.Subscription{ID: queue, Queue: queue})
	}
	return w
}

func TestDirectoryTakesTheHigherRevision(t *testing.T) {
	d := testDirectory(t)
	d.apply(record(5, "a", "b"))
	d.apply(record(4, "a"))
	if n := len(d.workers["w"].record.Subscriptions); n != 2 {
		t.Errorf("an older record was taken: %d subscriptions", n)
	}
	gone := record(6)
	gone.Gone = true
	d.apply(gone)
	if d.worker("w") != nil {
		t.Error("it left and is still there")
	}
}

func TestDirectoryRemovesWhoIsNotListed(t *testing.T) {
	d := testDirectory(t)
	d.apply(record(1, "a"))
	w := d.worker("w")
	d.removeOthers(nil, d.applied)
	if d.worker("w") == nil {
		t.Error("one that was just there was removed")
	}
	silent := d.s.clock(time.Now()) - probeSilence
	w.seen.Store(silent)
	d.removeOthers(nil, d.applied-1)
	if d.worker("w") == nil {
		t.Error("one that was heard of during the read was removed")
	}
	d.removeOthers(map[string]bool{"w": true}, d.applied)
	if d.worker("w") == nil {
		t.Error("one that was listed was removed")
	}
	d.removeOthers(nil, d.applied)
	if d.worker("w") != nil {
		t.Error("one that is neither listed nor alive is still there")
	}
}
