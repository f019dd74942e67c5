package ledger

import (
	"cmp"
	"context"
	"errors"
	"slices"
)

// forward writes the state of what is live in old frames into new ones, so
// that the log behind it can be purged. It works on a few frames at a time,
// from the floor on: reads them, and states in the next commit what is still
// live there. Then the floor is a later one.
type forward struct {
	target  uint64 // frames below this sequence are to be left
	mending bool   // there is damage among them: the ledger does not close before
	stated  uint64 // the floor's sequence as the log has it
	loading bool
	ready   bool     // there is something to write
	frames  []*frame // where it is stated; none: only the floor is to be stated
	carries []carry
	seen    []seenAt
	largest int // bytes of the largest piece
}

// carry is a message with those of its recipients that are still there.
type carry struct {
	at      *frame
	message []byte // encoded
	to      []carryTo
}

type carryTo struct {
	entry *Entry
	from  place  // where meta was read
	meta  []byte // encoded
}

// seenAt is a publish id that a frame states.
type seenAt struct {
	dedupEntry
	at *frame
}

const (
	// forwardBytes is what a commit writes forward, about, and forwardFrames
	// how many frames it comes from.
	forwardBytes  = 1 << 20
	forwardFrames = 64
	// overstatement is by how much more than twice what is live an idle ledger
	// may claim.
	overstatement = 1 << 20
	// pieceBytes is more than what a piece takes beside its message and metas.
	pieceBytes = 256
)

// forwardTo asks for everything below the sequence target to be written
// forward, and for the floor to be stated after that.
func (l *Ledger) forwardTo(target uint64) {
	l.forward.target = max(l.forward.target, target)
}

// writeForward sees to it that what is to be written next is at hand.
func (l *Ledger) writeForward() {
	f := &l.forward
	if f.loading || f.ready || l.closing && !f.mending {
		return
	}
	if f.target == 0 {
		f.mending = false
		f.ready = l.overstated() && !l.closing
		return
	}
	list, wants := l.oldest(f.target)
	switch {
	case len(list) == 0: // an idle ledger states its floor too
		f.target = 0
		f.ready = l.frames.floor().seq > f.stated
		f.mending = f.mending && f.ready // until that is stated
	case len(wants) == 0:
		*f = f.anew()
		f.frames, f.ready = list, true
	default:
		l.readOldest(list, wants)
	}
}

// overstated says that the newest frame claims far more live than there is, and
// no other is about to follow: a frame says what was live before it. The log
// would be kept long for that.
func (l *Ledger) overstated() bool {
	return l.idle() && l.claimed > 2*uint64(l.weight)+overstatement
}

// oldest are the first frames that something pins, and what of them has to be
// read.
func (l *Ledger) oldest(target uint64) (list []*frame, wants []want) {
	for _, f := range l.frames.live() {
		if f.seq >= target || len(list) == forwardFrames {
			break
		}
		if f.pins == 0 {
			continue
		}
		list = append(list, f)
		if !l.onlyTables(f) {
			wants = append(wants, want{place: place{seq: f.seq}})
		}
	}
	return list, wants
}

// onlyTables says that nothing in the frame has to be read.
func (l *Ledger) onlyTables(at *frame) bool {
	n := 0
	for _, t := range l.tables[at] {
		if t.pinned() == at {
			n++
		}
	}
	return n == at.pins
}

func (l *Ledger) readOldest(list []*frame, wants []want) {
	l.forward.loading = true
	runs := l.runs(wants)
	l.env.spawn(func(ctx context.Context) func() {
		records, err := l.fetcher.frames(ctx, wants, runs)
		return func() { l.oldestRead(list, records, err) }
	})
}

// frames reads whole frames, until they have about as many bytes as one commit
// writes forward.
func (t *fetcher) frames(ctx context.Context, wants []want, runs []run) (map[uint64][]record, error) {
	read, bytes := map[uint64][]record{}, 0
	var failed error
	for _, r := range runs {
		err := t.store.read(ctx, r.from, r.n, func(s stored) bool {
			if !slices.ContainsFunc(wants, func(w want) bool { return w.seq == s.seq }) {
				return true
			}
			_, records, err := decodeFrame(s.data)
			if err == nil {
				read[s.seq], err = decodeRecords(nil, records, plain)
			}
			if err != nil {
				failed = &DamageError{Ledger: t.ledger, Seq: s.seq, What: err.Error()}
			}
			bytes += len(s.data)
			return failed == nil && bytes < forwardBytes
		})
		if err = cmp.Or(failed, err); err != nil || bytes >= forwardBytes {
			return read, err
		}
	}
	return read, nil
}

// oldestRead finds what is live in the frames that were read, and has what was
// restated since read where it was.
func (l *Ledger) oldestRead(list []*frame, read map[uint64][]record, err error) {
	f := &l.forward
	if _, first := read[list[0].seq]; err == nil && !first && !l.onlyTables(list[0]) {
		err = errMoved
	}
	if err != nil || l.closed {
		l.forwardFailed(list[0].seq, err)
		return
	}
	*f = f.anew()
	f.loading = true
	for _, at := range list {
		records, ok := read[at.seq]
		if !ok && !l.onlyTables(at) {
			break // for the next time
		}
		f.frames = append(f.frames, at)
		ordinal := at.first
		for i := range records {
			l.pick(at, uint32(i), ordinal, &records[i])
			ordinal += records[i].ordinals()
		}
	}
	l.readRestated()
}

// readRestated reads the metas that lie elsewhere.
func (l *Ledger) readRestated() {
	var wants []want
	var into []*carryTo
	for i := range l.forward.carries {
		c := &l.forward.carries[i]
		for j := range c.to {
			if to := &c.to[j]; to.meta == nil {
				wants = append(wants, to.entry.wantMeta(len(into)))
				into = append(into, to)
			}
		}
	}
	if len(wants) == 0 {
		l.forwardReady()
		return
	}
	l.readMetas(wants, into)
}

func (l *Ledger) forwardFailed(seq uint64, err error) {
	l.forward.loading, l.forward.target, l.forward.mending = false, 0, false
	if !l.closed && !errors.Is(err, context.Canceled) {
		l.log.Error("the log cannot be shortened: a frame cannot be read", "ledger", l.name, "seq", seq, "err", err)
	}
}

func (l *Ledger) readMetas(wants []want, into []*carryTo) {
	runs := l.runs(wants)
	l.env.spawn(func(ctx context.Context) func() {
		l.fetcher.fetch(ctx, wants, runs,
			func(w want, c content) error {
				into[w.entry].meta = append([]byte{}, c.meta...)
				return nil
			},
			func(want, error) {}) // it has no meta then, and is not carried this time
		return l.forwardReady
	})
}

// pick keeps what a record of the floor states and nothing later does.
func (l *Ledger) pick(at *frame, index uint32, ordinal uint64, r *record) {
	if r.dedup != nil {
		l.pickSeen(at, *r.dedup)
	}
	for _, s := range r.seen {
		l.pickSeen(at, s.hash)
	}
	c := carry{at: at, message: r.raw}
	for i := range r.to {
		key := r.to[i].key
		if r.kind == KindAccept {
			key = Key(ordinal + uint64(i))
		}
		e := l.entries[key]
		if e == nil || e.at != at || e.index != index {
			continue
		}
		to := carryTo{entry: e, from: e.wantMeta(0).place}
		if e.stated == nil {
			to.meta = append([]byte{}, r.to[i].raw...)
		}
		c.to = append(c.to, to)
	}
	if len(c.to) > 0 {
		l.forward.carries = append(l.forward.carries, c)
	}
}

func (l *Ledger) pickSeen(at *frame, h Dedup) {
	if d, ok := l.dedup.seen[h]; ok && d.at == at {
		l.forward.seen = append(l.forward.seen, seenAt{dedupEntry{hash: h, id: d.id, seq: d.seq}, at})
	}
}

func (l *Ledger) forwardReady() {
	f := &l.forward
	f.loading, f.ready = false, true
	for i := range f.carries {
		for j := range f.carries[i].to {
			f.largest = max(f.largest, pieceBytes+len(f.carries[i].message)+len(f.carries[i].to[j].meta))
		}
	}
}

// anew has nothing at hand to write.
func (f *forward) anew() forward {
	return forward{target: f.target, mending: f.mending, stated: f.stated}
}

// committed begins anew when what was ready is written: what is left of the
// floor is looked at again.
func (f *forward) committed(h *header, written bool) {
	f.stated = h.floorSeq
	if written {
		*f = f.anew()
	}
}

// crowded says that the next piece does not fit into that many bytes.
func (f *forward) crowded(space int) bool { return f.ready && f.largest > space }

// headWriter writes the records in front of a frame. They state what is
// already applied.
type headWriter struct {
	l       *Ledger
	buf     []byte
	records []record
	limit   int
}

// fits says that n more bytes may be written.
func (w *headWriter) fits(n int) bool { return len(w.buf)+n <= w.limit }

func (w *headWriter) add(r record) {
	w.buf = appendRecord(w.buf, &r)
	w.records = append(w.records, r)
}

// forward writes what is ready, as far as it fits.
func (w *headWriter) forward(f *forward) {
	if !f.ready {
		return
	}
	w.limit = min(w.limit, len(w.buf)+max(forwardBytes, f.largest))
	for _, at := range f.frames {
		w.tables(at)
	}
	w.dedup(f.seen)
	for i := range f.carries {
		w.carry(&f.carries[i])
	}
	if len(w.records) == 0 {
		w.add(record{kind: kindBarrier})
	}
}

func (w *headWriter) tables(at *frame) {
	done := map[table]bool{}
	for _, t := range w.l.tables[at] {
		if t.pinned() != at || done[t] {
			continue
		}
		done[t] = true
		r := t.record()
		if !w.fits(pieceBytes + len(r.name) + len(r.value) + keyBytes*(len(r.keys)+int(NumCounters))) {
			return
		}
		w.add(r)
	}
}

// dedup writes publish ids, a record for each bucket.
func (w *headWriter) dedup(list []seenAt) {
	byBucket := map[int64][]dedupEntry{}
	var order []int64
	for i := range list {
		d, ok := w.l.dedup.seen[list[i].hash]
		if !ok || d.at != list[i].at {
			continue
		}
		if byBucket[d.bucket] == nil {
			order = append(order, d.bucket)
		}
		byBucket[d.bucket] = append(byBucket[d.bucket], list[i].dedupEntry)
	}
	for _, bucket := range order {
		seen := byBucket[bucket]
		if n := (w.limit - len(w.buf) - pieceBytes) / dedupEntryBytes; n < len(seen) {
			seen = seen[:max(0, n)]
		}
		if len(seen) > 0 {
			w.add(record{kind: kindDedup, number: uint64(bucket), seen: seen})
		}
	}
}

// carry writes a message for those of its recipients that are as they were
// when it was read; if they do not fit into one record, into several.
func (w *headWriter) carry(c *carry) {
	var to []carried
	n := pieceBytes + len(c.message)
	for i := range c.to {
		t := &c.to[i]
		e := t.entry
		if t.meta == nil || e.flags.is(gone) || e.at != c.at || e.wantMeta(0).place != t.from {
			continue
		}
		if more := pieceBytes + len(t.meta); !w.fits(n + more) {
			w.carryRecord(c.message, to)
			to, n = nil, pieceBytes+len(c.message)
			if !w.fits(n + more) {
				return
			}
		}
		n += pieceBytes + len(t.meta)
		to = append(to, carried{key: e.Key, meta: t.meta, out: e.out})
	}
	w.carryRecord(c.message, to)
}

func (w *headWriter) carryRecord(message []byte, to []carried) {
	if len(to) == 0 {
		return
	}
	start := len(w.buf)
	w.buf = appendCarry(w.buf, message, to)
	// What was written is read, so that it means the same here as after a
	// takeover.
	r, err := decodeRecord(w.buf[start+1+lengthBytes:], plain)
	if err != nil {
		w.l.log.Error("a message cannot be written forward", "ledger", w.l.name, "key", to[0].key, "err", err)
		w.buf = w.buf[:start]
		return
	}
	w.records = append(w.records, r)
}
