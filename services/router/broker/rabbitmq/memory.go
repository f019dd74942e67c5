//go:build !no_rabbitmq

package rabbitmq

import (
	"time"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker"
)

// generations are two maps of which the older is forgotten from time to time:
// what was put in is there for the span at least, and twice that at most, unless
// there is too much.
type generations[K comparable, V any] struct {
	now, before map[K]V
	since       time.Time
}

// maxRemembered bounds one of the two maps.
const maxRemembered = 1 << 17

func (g *generations[K, V]) put(k K, v V, span time.Duration) {
	if g.now == nil || len(g.now) >= maxRemembered || time.Since(g.since) >= span {
		g.before, g.now, g.since = g.now, make(map[K]V), time.Now()
	}
	g.now[k] = v
}

func (g *generations[K, V]) get(k K) (V, bool) {
	if v, ok := g.now[k]; ok {
		return v, true
	}
	v, ok := g.before[k]
	return v, ok
}

func (g *generations[K, V]) remove(k K) {
	delete(g.now, k)
	delete(g.before, k)
}

// memory is what was settled lately.
type memory struct{ all generations[ident, struct{}] }

// settledSpan is longer than it takes to notice that a connection is gone.
const settledSpan = time.Minute

func (m *memory) add(i ident)      { m.all.put(i, struct{}{}, settledSpan) }
func (m *memory) has(i ident) bool { _, has := m.all.get(i); return has }

// dedups are the ids of what was published lately.
type dedups struct {
	all generations[dedupKey, *published]
}

type dedupKey struct{ queue, topic, id string }

// published is a publish with an id: what came of it, and who waits for that.
type published struct {
	at      time.Time
	receipt broker.Receipt
	stored  bool
	waiting []any
}

func keyOf(p *broker.Publish) dedupKey { return dedupKey{p.Queue, p.Topic, p.Dedup} }

// repeats says whether p was published already, and has it answered like the
// first. Otherwise it is the first.
func (d *dedups) repeats(p *broker.Publish, lane broker.Lane) bool {
	if p.Dedup == "" {
		return false
	}
	first, known := d.all.get(keyOf(p))
	switch {
	case !known || time.Since(first.at) > protocol.DedupWindow:
		d.all.put(keyOf(p), &published{at: time.Now()}, protocol.DedupWindow)
		return false
	case first.stored:
		tag := p.Tag
		lane.Post(func() { lane.Stored(tag, first.receipt) })
	default:
		first.waiting = append(first.waiting, p.Tag)
	}
	return true
}

// stored answers those that wait for the first.
func (d *dedups) stored(p *broker.Publish, r broker.Receipt, lane broker.Lane) {
	if p.Dedup == "" {
		return
	}
	first, known := d.all.get(keyOf(p))
	if !known {
		return
	}
	r.Duplicate = true
	first.receipt, first.stored = r, true
	for _, tag := range first.waiting {
		lane.Stored(tag, r)
	}
	first.waiting = nil
}

// refused forgets the first: the next one is tried.
func (d *dedups) refused(p *broker.Publish, err error, lane broker.Lane) {
	if p.Dedup == "" {
		return
	}
	first, known := d.all.get(keyOf(p))
	if !known {
		return
	}
	d.all.remove(keyOf(p))
	for _, tag := range first.waiting {
		lane.Refused(tag, err)
	}
}
