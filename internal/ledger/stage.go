package ledger

import (
	"bytes"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// stage holds what waits to be committed. Records are encoded as they are
// staged, into the batch that becomes the next frame.
type stage struct {
	batches []*batch          // in order; only the last takes more
	numbers map[string]uint64 // the last handover given to each ledger
	leap    uint64            // handovers left out, after a loss
	dedup   map[Dedup]*[]any  // publish ids staged, with the tags of their repeats
	answers []Commit          // duplicates to be reported

	counts   map[string]*counters
	counting time.Time // since when there are counts; zero: there are none
	serial   uint64    // counts the batches
	forget   []string  // queues
}

// batch is the records of a commit.
type batch struct {
	buf     []byte // headroom, then the encoded records
	records []staged
	to      []recipient // the records' recipients lie here
	settled [len(ends)]settled
	done    []*Entry
	tallies []tally
	tallied int // bytes they take at most
	serial  uint64
	eager   bool      // something in it is waited for
	since   time.Time // when the first that is not waited for came
	sealed  bool
	counted int // bytes, in the backlog
}

// settled are entries that end in one way.
type settled struct {
	entries []*Entry
	tags    []any
	enders  []ender
}

// ends are the counters that a settlement may be counted by.
var ends = [...]Counter{Acknowledged, Filtered, Discarded}

// tally is what a commit adds to a queue's counters because of its records:
// either all of it is in the log or nothing.
type tally struct {
	queue  string
	counts counters
}

// tallyBytes is more than what a tally takes beside its queue's name.
const tallyBytes = 128

// staged is a record and whom to tell of it.
type staged struct {
	record
	message *Message // accept
	entries []*Entry // settle, done
	tags    []any    // settle
	tag     any
}

const (
	// lazyTime and lazyRecords bound how long and how many settlements wait
	// for company.
	lazyTime    = 50 * time.Millisecond
	lazyRecords = 512
	// countTime is how long counts wait for company.
	countTime = time.Second
)

func (s *stage) init() {
	s.numbers = map[string]uint64{}
	s.dedup = map[Dedup]*[]any{}
	s.counts = map[string]*counters{}
}

func (s *stage) empty() bool {
	return len(s.batches) == 0 && s.counting.IsZero() && len(s.forget) == 0
}

// room is the batch that takes n more bytes.
func (l *Ledger) room(n int) *batch {
	s := &l.stage
	if k := len(s.batches); k > 0 {
		b := s.batches[k-1]
		if !b.sealed && (b.length()+n <= l.maxBatch || b.length() == 0) {
			return b
		}
	}
	return s.begin()
}

// begin is one more batch.
func (s *stage) begin() *batch {
	b := newBatch()
	s.serial++
	b.serial = s.serial
	s.batches = append(s.batches, b)
	return b
}

// keys is how many settlements the batch has.
func (b *batch) keys() int {
	n := len(b.done)
	for i := range b.settled {
		n += len(b.settled[i].entries)
	}
	return n
}

// length is about what the batch takes in a frame.
func (b *batch) length() int {
	return len(b.buf) - headroom + keyBytes*b.keys() + b.tallied
}

// batches of all ledgers are used again, as long as there is use for them.
var batches sync.Pool

func newBatch() *batch {
	if b, ok := batches.Get().(*batch); ok {
		return b
	}
	return &batch{buf: make([]byte, headroom, 16<<10)}
}

// reuse takes a batch back when its commit is applied.
func (b *batch) reuse() {
	clear(b.records)
	clear(b.to)
	clear(b.done)
	clear(b.tallies)
	kept := batch{
		buf: b.buf[:headroom], records: b.records[:0], to: b.to[:0], done: b.done[:0], tallies: b.tallies[:0],
	}
	for i, s := range b.settled {
		clear(s.entries)
		clear(s.tags)
		clear(s.enders)
		kept.settled[i] = settled{s.entries[:0], s.tags[:0], s.enders[:0]}
	}
	*b = kept
	batches.Put(b)
}

// add appends a record that the batch's buffer already has.
func (l *Ledger) add(b *batch, r staged, before int) {
	b.records = append(b.records, r)
	b.eager = true
	b.counted += len(b.buf) - before
	l.backlog.Add(int64(len(b.buf) - before))
}

// Accept stages a message for each of metas' queues; every recipient becomes
// an entry of its own. With dedup, a publish of the same hash within
// DedupWindow is a duplicate: nothing is stored, and Committed says so.
//
// PAYLOAD_TOO_LARGE: it does not fit a commit. LIMIT_EXCEEDED: more publishes
// with an id, or more recipients, than a ledger keeps. Nothing is staged then.
func (l *Ledger) Accept(m *Message, metas []Meta, dedup *Dedup, tag any) error {
	return l.acceptOnce(m, metas, nil, dedup, tag)
}

// Adopt is Accept for one queue of a message that is the mesh's already and was kept
// outside of the ledgers: it is counted as taken over, not as published.
func (l *Ledger) Adopt(m *Message, meta Meta, dedup *Dedup, tag any) error {
	return l.acceptOnce(m, []Meta{meta}, &origin{}, dedup, tag)
}

func (l *Ledger) acceptOnce(m *Message, metas []Meta, o *origin, dedup *Dedup, tag any) error {
	if dedup != nil && l.repeated(*dedup, tag) {
		return nil
	}
	if dedup != nil && len(l.dedup.seen)+len(l.stage.dedup) >= maxDedup {
		return protocol.Errorf(protocol.CodeLimitExceeded,
			"%d publishes with an id within %s are remembered already: publish without %s, or slower",
			maxDedup, protocol.DedupWindow, protocol.HeaderDedup)
	}
	if err := l.accept(m, metas, o, dedup, tag); err != nil {
		return err
	}
	if dedup != nil {
		l.stage.dedup[*dedup] = new([]any)
	}
	return nil
}

// Remembers says whether a publish of that hash would be a duplicate.
func (l *Ledger) Remembers(h Dedup) bool {
	_, staged := l.stage.dedup[h]
	_, known := l.dedup.find(h, max(l.time, l.env.now().UnixNano()))
	return staged || known
}

// repeated sees to a publish whose id is known.
func (l *Ledger) repeated(h Dedup, tag any) bool {
	if waiting, ok := l.stage.dedup[h]; ok {
		*waiting = append(*waiting, tag)
		return true
	}
	known, ok := l.dedup.find(h, max(l.time, l.env.now().UnixNano()))
	if ok {
		l.stage.answers = append(l.stage.answers, Commit{
			Kind: KindAccept, Duplicate: true, ID: known.id, Seq: known.seq, Tag: tag,
		})
	}
	return ok
}

func (l *Ledger) accept(m *Message, metas []Meta, o *origin, dedup *Dedup, tag any) error {
	brief := m.brief()
	if len(metas) == 0 || len(metas) > maxRecipients {
		return protocol.Errorf(protocol.CodeLimitExceeded, "a message for %d queues at once: 1 to %d are possible", len(metas), maxRecipients)
	}
	n := int(brief.size) + acceptBytes*(1+len(m.Headers)) + len(m.Group) + len(m.Publisher) + len(m.Story) + len(m.Extra)
	for i := range metas {
		n += metas[i].length()
	}
	if limit := l.maxBatch - l.maxBatch/8; n > limit {
		return protocol.Errorf(protocol.CodePayloadTooLarge, "the message takes %d bytes with its headers, more than the %d that one commit carries", n, limit)
	}
	b := l.room(n)
	before := len(b.buf)
	b.buf = appendAccept(b.buf, m, metas, o, dedup)
	to := b.recipients(len(metas))
	for i := range metas {
		to[i].meta = metas[i]
	}
	r := record{kind: KindAccept, brief: brief, to: to, origin: o, dedup: dedup}
	l.add(b, staged{record: r, message: m, tag: tag}, before)
	return nil
}

// acceptBytes is more than what a message, and each header, takes beside its
// own bytes.
const acceptBytes = 96

// length is at least what the meta takes when it is encoded.
func (m *Meta) length() int {
	return acceptBytes + len(m.Queue) + len(m.Reason) + len(m.Error) + len(m.Source) + len(m.Spans) + len(m.Story) + len(m.Extra)
}

func (b *batch) recipients(n int) []recipient {
	k := len(b.to)
	for range n {
		b.to = append(b.to, recipient{})
	}
	return b.to[k : k+n : k+n]
}

// Restate stages a change of the entry's meta; the entry stays. A nil Story or
// Extra means the entry's own. false: the entry is gone, decided, or a record that
// takes it away is staged.
func (l *Ledger) Restate(e *Entry, meta Meta, tag any) bool {
	if !l.takes(e) {
		return false
	}
	l.change(&record{kind: KindRestate, key: e.Key, meta: l.whole(e, meta)}, tag)
	return true
}

// Decide stages that the entry goes to the ledger dest with that meta. Once it
// is committed the entry is never delivered again; it is handed over, for as
// long as that takes, and then gone (KindDone). false: as for Restate.
func (l *Ledger) Decide(e *Entry, dest string, meta Meta, tag any) bool {
	if !l.takes(e) {
		return false
	}
	e.flags |= leaving
	l.change(&record{
		kind: KindDecide, key: e.Key, meta: l.whole(e, meta), dest: dest, number: l.stage.number(dest),
	}, tag)
	return true
}

// number is that of the next handover to a ledger.
func (s *stage) number(dest string) uint64 {
	n, ok := s.numbers[dest]
	if !ok {
		n = s.leap
	}
	s.numbers[dest] = n + 1
	return n + 1
}

func (l *Ledger) takes(e *Entry) bool {
	return !e.Decided && !e.flags.is(leaving) && !e.flags.is(gone)
}

// whole is what is recorded of a meta: an entry stays in its group.
func (l *Ledger) whole(e *Entry, meta Meta) *Meta {
	if meta.Extra == nil {
		meta.Extra = l.extras[e.Key]
	}
	if meta.Story == nil {
		meta.Story = l.stories[e.Key]
	}
	meta.Error, meta.Group = clip(meta.Error, protocol.MaxErrorText), e.ownGroup()
	return &meta
}

// ownGroup is Meta.Group.
func (e *Entry) ownGroup() uint64 {
	if e.flags.is(grouped) {
		return e.Group
	}
	return 0
}

// clip cuts a text at n bytes, between runes.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

func (l *Ledger) change(r *record, tag any) {
	n := acceptBytes + len(r.dest) + len(r.name) + len(r.value)
	if r.meta != nil {
		n += r.meta.length()
	}
	b := l.room(n)
	before := len(b.buf)
	b.buf = appendRecord(b.buf, r)
	l.add(b, staged{record: *r, tag: tag}, before)
}

// Settle stages the entry's end, and counts it: how is Acknowledged, Filtered
// or Discarded. With a nil tag it waits for company, at most 50 ms: a lost one
// only redelivers. false: as for Restate.
func (l *Ledger) Settle(e *Entry, how Counter, tag any) bool {
	if !l.takes(e) {
		return false
	}
	e.flags |= leaving
	b := l.lazy()
	s := &b.settled[slices.Index(ends[:], how)]
	s.entries = append(s.entries, e)
	s.tags = append(s.tags, tag)
	s.enders = append(s.enders, ender{})
	b.count(e.Queue, how)
	b.eager = b.eager || tag != nil || b.keys() >= lazyRecords
	return true
}

// CountWith adds to a queue's counter in the commit of the record that was
// staged last: they are in the log together, or neither is. With nothing
// staged it is Count.
func (l *Ledger) CountWith(q *Queue, c Counter) {
	if k := len(l.stage.batches); k > 0 && !l.stage.batches[k-1].sealed {
		l.stage.batches[k-1].count(q, c)
		return
	}
	l.Count(q.Name, c, 1)
}

func (b *batch) count(q *Queue, c Counter) {
	if q.tallied != b.serial {
		q.tallied, q.tally = b.serial, len(b.tallies)
		b.tallies = append(b.tallies, tally{queue: q.Name})
		b.tallied += tallyBytes + len(q.Name)
	}
	b.tallies[q.tally].counts[c]++
}

// lazy is the batch that takes one more key.
func (l *Ledger) lazy() *batch {
	b := l.room(keyBytes)
	if b.since.IsZero() {
		b.since = l.env.now()
	}
	return b
}

// keyBytes is more than what one key takes.
const keyBytes = 10

// finish stages that a decided entry's handover is done.
func (l *Ledger) finish(e *Entry) {
	b := l.lazy()
	b.done = append(b.done, e)
	b.eager = b.eager || b.keys() >= lazyRecords
}

// MaxNote is the longest note, in bytes: all notes are in memory.
const MaxNote = 64 << 10

// PutNote stages a note of the owner's; a nil value deletes it. LIMIT_EXCEEDED:
// it is longer than MaxNote.
func (l *Ledger) PutNote(key string, value []byte, tag any) error {
	if n := len(key) + len(value); n > MaxNote {
		return protocol.Errorf(protocol.CodeLimitExceeded, "a note of %d bytes: at most %d are possible", n, MaxNote)
	}
	l.change(&record{kind: KindNote, name: key, value: bytes.Clone(value)}, tag)
	return nil
}

// Count adds to a queue's counter. It rides along with the next commit, and
// waits for one at most a second.
func (l *Ledger) Count(queue string, c Counter, n uint64) {
	if n > 0 {
		l.counting(queue)[c] += n
	}
}

// CountAll adds to several of a queue's counters, as Count does to one.
func (l *Ledger) CountAll(queue string, counts *[NumCounters]uint64) {
	k := l.counting(queue)
	for c, n := range counts {
		k[c] += n
	}
}

// counting is where a queue's counts are collected.
func (l *Ledger) counting(queue string) *counters {
	k := l.stage.counts[queue]
	if k == nil {
		k = &counters{}
		l.stage.counts[queue] = k
	}
	if l.stage.counting.IsZero() {
		l.stage.counting = l.env.now()
	}
	return k
}

// ForgetQueue drops an empty queue and adds its counters to those of
// scope.Folded, so that the sums stay what they are, unless the mesh tried out itself
// in it. One that holds something when the next commit is made is kept.
func (l *Ledger) ForgetQueue(name string) {
	if q := l.queues[name]; q != nil && q.Live == 0 {
		l.stage.forget = append(l.stage.forget, name)
	}
}

// seal closes a batch: what was collected becomes records at its end.
func (l *Ledger) seal(b *batch) {
	if b.sealed {
		return
	}
	b.sealed = true
	for i, s := range b.settled {
		l.sealKeys(b, KindSettle, ends[i], s)
	}
	l.sealKeys(b, KindDone, 0, settled{entries: b.done})
	for i := range b.tallies {
		l.sealCount(b, b.tallies[i].queue, &b.tallies[i].counts)
	}
	l.sealCounts(b)
}

func (l *Ledger) sealCount(b *batch, queue string, counts *counters) {
	r := record{kind: kindCounts, name: queue, counts: counts}
	b.buf = appendRecord(b.buf, &r)
	b.records = append(b.records, staged{record: r})
}

// sealCounts adds what was counted by itself. What does not fit waits for the
// next commit.
func (l *Ledger) sealCounts(b *batch) {
	limit := len(b.buf) + l.maxBatch/4
	for name, c := range l.stage.counts {
		if len(b.buf)+len(name)+acceptBytes+10*int(NumCounters) > limit {
			return
		}
		l.sealCount(b, name, c)
		delete(l.stage.counts, name)
	}
	l.stage.counting = time.Time{}
}

func (l *Ledger) sealKeys(b *batch, kind Kind, how Counter, s settled) {
	if len(s.entries) == 0 {
		return
	}
	keys := make([]Key, len(s.entries))
	for i, e := range s.entries {
		keys[i] = e.Key
	}
	r := record{kind: kind, keys: keys, how: how, ends: endsOf(s.enders)}
	b.buf = appendRecord(b.buf, &r)
	b.records = append(b.records, staged{record: r, entries: s.entries, tags: s.tags})
}

// tags are those of all that is staged and not under way.
func (s *stage) tags() []any {
	var tags []any
	add := func(tag any) {
		if tag != nil {
			tags = append(tags, tag)
		}
	}
	for _, b := range s.batches {
		for i := range b.records {
			r := &b.records[i]
			add(r.tag)
			if r.dedup != nil && s.dedup[*r.dedup] != nil {
				tags = append(tags, *s.dedup[*r.dedup]...)
			}
		}
		for i := range b.settled {
			for _, tag := range b.settled[i].tags {
				add(tag)
			}
		}
	}
	return tags
}
