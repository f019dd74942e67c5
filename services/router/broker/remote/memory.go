package remote

import (
	"hash/maphash"
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

// Memory is what was settled lately.
type Memory struct{ all generations[mark, struct{}] }

// mark is an Ident without a pointer, of which there are too many for the collector to
// follow.
type mark struct {
	queue            uint64
	id               protocol.MessageID
	generation, copy uint32
}

var queueSeed = maphash.MakeSeed()

// settledSpan is longer than it takes to notice that a connection is gone.
const settledSpan = time.Minute

// Add remembers one.
func (m *Memory) Add(i Ident) { m.all.put(i.mark(), struct{}{}, settledSpan) }

// Has says whether it is remembered.
func (m *Memory) Has(i Ident) bool { _, has := m.all.get(i.mark()); return has }

// Ident names one copy of a message: what the broker delivers twice.
type Ident struct {
	Queue      string
	ID         protocol.MessageID
	Generation uint32
	Copy       uint32 // how many the mesh has made of it before, in this generation
}

func (i Ident) mark() mark {
	return mark{maphash.String(queueSeed, i.Queue), i.ID, i.Generation, i.Copy}
}

// Dedups are the ids of what was published lately.
type Dedups struct {
	all generations[dedupKey, *published]
}

type dedupKey struct{ queue, topic, id string }

// published is a publish with an id: what came of it, and who waits for that.
type published struct {
	at      time.Time
	receipt broker.Receipt
	stored  bool
	waiting []any
	refused bool // nobody knows whether it was stored: the next one is tried, as
	doubt   doubt
}

// doubt is the message that may be stored. There is none with the zero value.
type doubt struct {
	id        protocol.MessageID
	published int64
}

func keyOf(p *broker.Publish) dedupKey { return dedupKey{p.Queue, p.Topic, p.Dedup} }

// Repeats says whether p was published already, and has it answered like the
// first. Otherwise it is the first.
func (d *Dedups) Repeats(p *broker.Publish, lane broker.Lane) bool {
	if p.Dedup == "" {
		return false
	}
	first, known := d.all.get(keyOf(p))
	switch {
	case !known || time.Since(first.at) > protocol.DedupWindow:
		d.all.put(keyOf(p), &published{at: time.Now()}, protocol.DedupWindow)
		return false
	case first.refused:
		first.refused = false
		return false
	case first.stored:
		tag := p.Tag
		lane.Post(func() { lane.Stored(tag, first.receipt) })
	default:
		first.waiting = append(first.waiting, p.Tag)
	}
	return true
}

// Doubt notes that nobody knows whether p was stored: the next of its id is published as
// the same message, so that two of it are noticed.
func (d *Dedups) Doubt(p *broker.Publish) {
	if first, known := d.all.get(keyOf(p)); known && p.Dedup != "" {
		first.doubt = doubt{p.Message.ID, p.Message.PublishedAt}
	}
}

// Resume gives p the name of the one of its id of which there is a doubt.
func (d *Dedups) Resume(p *broker.Publish) {
	first, known := d.all.get(keyOf(p))
	if known && p.Dedup != "" && first.refused && time.Since(first.at) <= protocol.DedupWindow {
		p.Message.ID, p.Message.PublishedAt = first.doubt.id, first.doubt.published
	}
}

// Remembers says whether p would repeat another.
func (d *Dedups) Remembers(p *broker.Publish) bool {
	first, known := d.all.get(keyOf(p))
	return known && time.Since(first.at) <= protocol.DedupWindow
}

// Stored answers those that wait for the first.
func (d *Dedups) Stored(p *broker.Publish, r broker.Receipt, lane broker.Lane) {
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

// Refused has the next one be tried.
func (d *Dedups) Refused(p *broker.Publish, err error, lane broker.Lane) {
	if p.Dedup == "" {
		return
	}
	first, known := d.all.get(keyOf(p))
	if !known {
		return
	}
	if first.refused = first.doubt != (doubt{}); !first.refused {
		d.all.remove(keyOf(p))
	}
	for _, tag := range first.waiting {
		lane.Refused(tag, err)
	}
	first.waiting = nil
}
