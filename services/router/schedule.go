package router

import "github.com/waybill-mq/waybill/services/router/broker"

// schedule sends what publishers scheduled to the retry service, where it waits
// until it is due: at its first attempt, with nothing spent. While that service
// has never been started, so that nobody knows where to send it, it waits here.
type schedule struct {
	known bool // where to send it
}

// later keeps an entry that is not due from being delivered.
func (l *lane) later(e *broker.Entry) {
	if scheduled(e) && !l.staysInOrder(e) && l.sendAway(e) {
		return
	}
	if l.staysInOrder(e) {
		l.queueOf(e).take(e)
	}
	l.pause(e)
}

// scheduled tells what its publisher scheduled from what pauses between two
// deliveries.
func scheduled(e *broker.Entry) bool {
	return e.FirstFailure == 0 && e.Incomplete == 0 && e.Vanished == 0
}

// overtakes says whether an entry that was put off, and is due by the time it is
// committed, would pass those of its group that were put off before it, and are away:
// it goes the same way.
func (l *lane) overtakes(e *broker.Entry) bool {
	return e.Due > 0 && scheduled(e) && !isRemote(e) && l.queueOf(e).groups != nil
}

// sendAway records that a scheduled entry waits elsewhere; false if nobody
// knows yet where.
func (l *lane) sendAway(e *broker.Entry) bool {
	store := l.storeOf(e)
	if !isRemote(e) && !l.s.next.known() || !l.wait(e, store.Meta(e)) {
		return false
	}
	e.Slot = settled
	return true
}

// tick sends away what had to wait here, once it is known where to.
func (s *schedule) tick(l *lane) {
	if s.known || !l.s.next.known() {
		return
	}
	s.known = true
	var here []*broker.Entry
	for _, e := range l.pauses.entries {
		if scheduled(e) {
			here = append(here, e)
		}
	}
	for _, e := range here {
		if l.sendAway(e) {
			l.pauses.remove(e)
		}
	}
}
