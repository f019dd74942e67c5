package router

import (
	"testing"

	"github.com/waybill-mq/waybill/services/router/broker"
)

// What comes after a queue's old places are empty, and before what waited for that goes
// on, does not pass it.
func TestNothingPassesWhatIsParked(t *testing.T) {
	q := newQueue("q", &lane{placed: &placement{}})
	q.policy = &policy{fifo: true}
	q.groups = make(map[uint64]*group)
	q.transit = &transit{From: 5}
	first, second := &broker.Entry{Key: 5}, &broker.Entry{Key: 6}
	q.parked = []*broker.Entry{first}
	q.add(second)
	if q.ready.size != 0 {
		t.Error("it is ready before what came before it")
	}
	if len(q.parked) != 2 || q.parked[0] != first || q.parked[1] != second {
		t.Errorf("there waits %v", q.parked)
	}
}
