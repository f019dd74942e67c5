//go:build !no_rabbitmq

package rabbitmq

import "github.com/waybill-mq/waybill/services/router/broker"

// Leave implements broker.RemoteStore.
func (s *store) Leave(e *broker.Entry, keep func(kept func()) bool) bool {
	v := s.live[e.Key]
	if v == nil || v.leaving {
		return false
	}
	v.leaving = true
	v.leaving = keep(func() { s.settled(v) })
	return v.leaving
}

// settled settles the original of what is safe elsewhere.
func (s *store) settled(v *live) {
	s.forget(v)
	s.drop(v)
	s.acknowledge(v, func(bool) {})
	v.entry.Decided = true
	s.lane.Left(&v.entry)
	s.lane.Handed(&v.entry)
}
