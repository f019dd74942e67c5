package ledger

import (
	"errors"
	"time"

	"github.com/waybill-mq/waybill/pkg/scope"
)

// flight is the commit under way.
type flight struct {
	batch    *batch   // nil: only head
	head     []record // written forward: applied first
	forward  bool     // all that was ready is in head
	header   header
	frame    []byte
	began    time.Time
	unknown  bool // what became of it is being found out
	serial   uint64
	expected uint64
}

const (
	// answerTime is how long a commit's answer is waited for.
	answerTime = 2 * time.Second
	// brokenTime is how often the connection is looked at meanwhile.
	brokenTime = 100 * time.Millisecond
)

// write begins the next commit if one is due, and says when to look again.
func (l *Ledger) write(now time.Time) time.Time {
	if l.flight != nil {
		return l.watch(now)
	}
	due := l.due()
	if due.IsZero() || due.After(now) {
		return due
	}
	l.commit(now)
	if l.flight == nil {
		return time.Time{}
	}
	return now.Add(brokenTime)
}

// watch gives up waiting for an answer that does not come.
func (l *Ledger) watch(now time.Time) time.Time {
	f := l.flight
	if f.unknown {
		return time.Time{}
	}
	if now.Sub(f.began) >= answerTime {
		l.resolve(errNoAnswer)
		return time.Time{}
	}
	if l.store.broken() {
		l.resolve(errBroken)
		return time.Time{}
	}
	return now.Add(brokenTime)
}

var (
	errNoAnswer = errors.New("no answer to a commit")
	errBroken   = errors.New("the connection was lost during a commit")
)

// due is when the next commit is to begin; zero: nothing waits.
func (l *Ledger) due() time.Time {
	s := &l.stage
	at := time.Time{}
	if len(s.batches) > 0 {
		b := s.batches[0]
		if b.eager || b.sealed || len(s.batches) > 1 || l.closing {
			return epochStart
		}
		at = b.since.Add(lazyTime)
	}
	if len(s.forget) > 0 || l.forward.ready || l.closing && !s.empty() {
		return epochStart
	}
	if !s.counting.IsZero() {
		at = sooner(at, s.counting.Add(countTime))
	}
	return at
}

// epochStart is a time that has always come.
var epochStart = time.Unix(0, 1)

// commit publishes the next frame: what is written forward, then a batch.
func (l *Ledger) commit(now time.Time) {
	s := &l.stage
	f := &flight{began: now, expected: l.seq}
	if len(s.batches) > 0 {
		f.batch = s.batches[0]
	} else if !s.counting.IsZero() {
		f.batch = s.begin()
	}
	size := 0
	if f.batch != nil {
		l.seal(f.batch)
		size = f.batch.length()
	}
	space := l.store.maxFrame() - headroom
	switch {
	case f.batch == nil:
	case l.forward.crowded(space - size):
		f.batch = nil // what is written forward goes alone; the batch is next
	default:
		space -= size
		s.batches = append(s.batches[:0], s.batches[1:]...)
	}
	f.forward = l.forward.ready
	head := l.head(space)
	if f.head = head.records; f.batch == nil && len(f.head) == 0 {
		return
	}
	l.launch(f, head.buf)
}

// head is the records that state what is already applied. They come first in
// the frame, since they are true of the state before it.
func (l *Ledger) head(space int) *headWriter {
	w := &headWriter{l: l, limit: space}
	for _, name := range l.stage.forget {
		q := l.queues[name]
		switch {
		case q == nil || q.Live > 0:
		case scope.OfDiagnosis(name):
			w.add(record{kind: kindForget, name: name}) // its counters are nobody's
		default:
			counts := counters(q.Counters)
			w.add(record{kind: kindForget, name: name, dest: scope.Folded(name), counts: &counts})
		}
	}
	l.stage.forget = nil
	w.forward(&l.forward)
	return w
}

func (l *Ledger) launch(f *flight, head []byte) {
	f.header = l.nextHeader()
	for i := range f.head {
		f.header.count += f.head[i].ordinals()
	}
	if f.batch != nil {
		for i := range f.batch.records {
			f.header.count += f.batch.records[i].ordinals()
		}
	}
	f.frame = assemble(&f.header, head, f.batch)
	l.serial++
	f.serial = l.serial
	l.flight = f
	l.store.publish(f.expected, f.frame, func(seq uint64, err error) { l.answered(f, seq, err) })
}

// nextHeader is that of the frame that follows what is applied.
func (l *Ledger) nextHeader() header {
	h := header{
		ledger: l.name, epoch: l.epoch, first: l.last + 1,
		time: max(l.time, l.env.now().UnixNano()), live: uint64(l.weight),
	}
	if f := l.frames.floor(); f != nil {
		h.floor, h.floorSeq = f.first, f.seq
	}
	return h
}

// assemble makes the frame. A batch has room in front for the header, so that
// its records are not copied unless something comes before them.
func assemble(h *header, head []byte, b *batch) []byte {
	var space [headroom]byte
	top := appendHead(space[:0], h)
	if b == nil {
		return sealFrame(append(top, head...))
	}
	if len(head) > 0 {
		frame := make([]byte, 0, len(top)+len(head)+len(b.buf)-headroom)
		frame = append(append(frame, top...), head...)
		return sealFrame(append(frame, b.buf[headroom:]...))
	}
	start := headroom - len(top)
	copy(b.buf[start:], top)
	return sealFrame(b.buf[start:])
}

// answered takes the answer to a commit. Only a positive one says all; errFenced
// too leaves open whether the frame is in the log.
func (l *Ledger) answered(f *flight, seq uint64, err error) {
	if l.flight != f || f.unknown || l.closed {
		return
	}
	if err != nil {
		l.resolve(err)
		return
	}
	l.committed(seq)
}

// committed applies the commit under way, which is in the log at seq.
func (l *Ledger) committed(seq uint64) {
	f := l.flight
	l.begin(&f.header, seq)
	for i := range f.head {
		l.apply(&f.head[i])
	}
	if f.batch != nil {
		for i := range f.batch.records {
			l.settleRecord(&f.batch.records[i])
		}
	}
	l.end()
	l.flight, l.told = nil, Commit{}
	l.forward.committed(&f.header, f.forward)
	if f.batch != nil {
		l.backlog.Add(-int64(f.batch.counted))
		f.batch.reuse()
	}
}

// settleRecord applies a committed record and tells whom it concerns.
func (l *Ledger) settleRecord(r *staged) {
	l.apply(&r.record)
	switch r.kind {
	case KindAccept:
		l.accepted(r)
	case KindRestate, KindDecide:
		l.changed(r)
	case KindSettle, KindDone:
		l.ended(r)
	case KindNote:
		l.tell(Commit{Kind: KindNote, Seq: l.seq, Tag: r.tag})
	default: // nobody waits for the others
	}
}

// tell reports to the owner, which keeps nothing of it: a commit tells of
// thousands of records.
func (l *Ledger) tell(c Commit) {
	l.told = c
	l.owner.Committed(&l.told)
}

func (l *Ledger) accepted(r *staged) {
	overhead := int64(messageOverhead)
	if r.origin == nil {
		overhead = publishOverhead
	}
	l.keepBody(r.message, r.size, overhead, l.touched)
	l.tell(Commit{
		Kind: KindAccept, Entries: l.touched, Message: r.message, ID: r.id,
		Seq: l.seq, Handover: r.origin != nil, Tag: r.tag,
	})
	if r.dedup != nil {
		l.acceptedOnce(r)
	}
	if r.origin != nil && !r.origin.outside() {
		l.arrived(r.origin)
	}
}

// acceptedOnce answers the repeats that came while the first was under way.
func (l *Ledger) acceptedOnce(r *staged) {
	waiting := l.stage.dedup[*r.dedup]
	delete(l.stage.dedup, *r.dedup)
	if waiting == nil {
		return
	}
	for _, tag := range *waiting {
		l.tell(Commit{Kind: KindAccept, Duplicate: true, ID: r.id, Seq: l.seq, Tag: tag})
	}
}

func (l *Ledger) changed(r *staged) {
	if len(l.touched) == 0 {
		return
	}
	e := l.touched[0]
	if r.kind == KindDecide {
		if l.bodies.keep(metaOverhead) {
			e.out.meta = r.meta
		}
		l.post(e)
	}
	l.tell(Commit{Kind: r.kind, Entries: l.touched, ID: e.ID, Seq: l.seq, Tag: r.tag})
}

func (l *Ledger) ended(r *staged) {
	for i, e := range r.entries {
		if !e.flags.is(gone) {
			continue
		}
		l.dropBody(e)
		c := Commit{Kind: r.kind, Entries: r.entries[i : i+1], ID: e.ID, Seq: l.seq}
		if r.kind == KindDone {
			l.delivered(e)
		} else {
			c.Tag = r.tags[i]
		}
		l.tell(c)
	}
}
