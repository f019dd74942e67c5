package router

import (
	"slices"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// late are the deliveries of FIFO queues whose time is up while their workers
// may run them still. Elsewhere the message has failed then and the first call
// runs on beside the second; here its group must not be in two hands, so that
// nothing follows until the call has answered, its worker says that it does not
// run it, or the worker is gone. What it answers does not count: its time was up.
type late struct {
	deliveries []*delivery
	askAt      int64
}

const (
	lateAgain = int64(protocol.LoadInterval) // between questions to a worker
	// lateMargin is how old a delivery is when its worker has certainly met it.
	lateMargin = int64(protocol.LoadInterval)
)

// add notes a delivery whose time is up. Its worker has room for another: the
// call that is late does not count for its concurrency.
func (t *late) add(l *lane, d *delivery) {
	d.text = overdueText(d.due.limit)
	d.stage = overdue
	l.stopClock(d)
	d.c.inflight--
	t.deliveries = append(t.deliveries, d)
	t.askAt = l.now
	l.wake(d.q)
}

// end says that the call has ended: the message may be tried again now.
func (t *late) end(l *lane, d *delivery) {
	t.deliveries = slices.DeleteFunc(t.deliveries, func(x *delivery) bool { return x == d })
	d.c.worker.held.Add(-1)
	d.q.inflight--
	l.held.Add(-1)
	l.judge(d, protocol.Timeout, d.text)
}

// of are those of a worker.
func (t *late) of(w *worker) []*delivery {
	var all []*delivery
	for _, d := range t.deliveries {
		if d.c.worker == w {
			all = append(all, d)
		}
	}
	return all
}

// tick asks the workers whether they run them still.
func (t *late) tick(l *lane) {
	if len(t.deliveries) == 0 || l.now < t.askAt {
		return
	}
	t.askAt = l.now + lateAgain
	asked := make(map[*worker]bool)
	for _, d := range t.deliveries {
		if w := d.c.worker; !asked[w] {
			asked[w] = true
			l.askClaims(w)
		}
	}
}

func (t *late) next(l *lane) int64 {
	if len(t.deliveries) == 0 {
		return l.now + int64(idle)
	}
	return t.askAt
}

// compare ends those that w, asked then, does not know of.
func (t *late) compare(l *lane, w *worker, asked int64, known map[token]bool) {
	for _, d := range t.of(w) {
		if d.started < asked-lateMargin && !known[l.tokenOf(d.e)] {
			t.end(l, d)
		}
	}
}
