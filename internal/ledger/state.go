package ledger

import (
	"bytes"
	"cmp"
	"slices"
)

// state is what a ledger's history amounts to. apply is the only thing that
// changes it, and looks at nothing but the state and the record: no clock, no
// log. So the state read from a log is the state its writer had.
//
// The state from a log that was purged up to the floor equals the state from
// the whole log. What is live is stated by a frame that it pins, or was stated
// again, whole, by a later one.
type state struct {
	epoch     uint64
	last      uint64 // the newest record's ordinal
	seq       uint64 // the newest frame's sequence
	time      int64  // the newest frame's
	entries   map[Key]*Entry
	extras    map[Key][]byte // Meta.Extra of entries that have it
	stories   map[Key][]byte // Meta.Story, of those not decided
	traced    map[Key]traced // entries that have Meta.Spans
	queues    map[string]*Queue
	notes     map[string]*note
	senders   map[string]*sender
	receivers map[string]*receiver
	secret    secret
	dedup     dedups
	frames    frames
	tables    map[*frame][]table // what each frame states, entries and publish ids apart
	messages  int64
	bytes     int64  // of the messages
	weight    int64  // of everything live, about
	claimed   uint64 // the weight that the newest frame says

	// While a frame is applied:
	frame   *frame
	ordinal uint64 // of the record
	index   uint32 // of the record in the frame
	touched []*Entry
}

// table is a part of the state that is written forward as a whole.
type table interface {
	pinned() *frame
	record() record
}

// What live things weigh beside their bytes.
const (
	weightEntry  = 120
	weightQueue  = 80
	weightTraced = 64
)

func newState() *state {
	return &state{
		entries:   map[Key]*Entry{},
		extras:    map[Key][]byte{},
		stories:   map[Key][]byte{},
		traced:    map[Key]traced{},
		queues:    map[string]*Queue{},
		notes:     map[string]*note{},
		senders:   map[string]*sender{},
		receivers: map[string]*receiver{},
		tables:    map[*frame][]table{},
	}
}

// begin starts a frame. Its records follow with apply, then end.
func (s *state) begin(h *header, seq uint64) {
	s.frame = &frame{seq: seq, first: h.first}
	s.frames.push(s.frame)
	s.epoch, s.time, s.seq, s.claimed = h.epoch, h.time, seq, h.live
	s.ordinal, s.index = h.first, 0
	s.dedup.expire(h.time)
}

func (s *state) end() {
	s.last = s.ordinal - 1
	s.frames.trim(func(f *frame) { delete(s.tables, f) })
}

// apply takes the next record of the frame begun. The entries it concerns are
// in touched until the next.
func (s *state) apply(r *record) {
	s.touched = s.touched[:0]
	switch r.kind {
	case KindAccept:
		s.accept(r)
	case kindCarry:
		s.carry(r)
	case KindRestate:
		s.restate(r)
	case KindDecide:
		s.decide(r)
	case KindSettle, KindDone:
		s.settle(r)
	case KindNote:
		s.putNote(r)
	case kindCounts:
		s.count(r.name, r.counts)
	case kindForget:
		s.forget(r)
	default:
		s.applyTable(r)
	}
	s.ordinal += r.ordinals()
	s.index++
}

func (s *state) applyTable(r *record) {
	switch r.kind {
	case kindSecret:
		s.secret.value = Secret(r.value)
		s.pinTable(&s.secret.at, &s.secret)
	case kindSender:
		s.sent(r.name, r.number)
	case kindReceiver:
		w := s.receiver(r.name, r.number)
		w.low, w.seen = r.number, make(map[uint64]struct{}, len(r.keys))
		for _, n := range r.keys {
			w.seen[uint64(n)] = struct{}{}
		}
		s.pinTable(&w.at, w)
	case kindCounters:
		q := s.queue(r.name)
		q.Counters = *r.counts
		s.pinQueue(q)
	case kindDedup:
		for _, e := range r.seen {
			s.dedup.put(e, int64(r.number), s.frame)
		}
	default: // an epoch and a barrier change nothing
	}
}

// accept makes an entry of each recipient. An entry's key is its ordinal.
func (s *state) accept(r *record) {
	for i := range r.to {
		e := newEntry(Key(s.ordinal+uint64(i)), &r.brief)
		e.nth = uint16(i)
		s.add(e, &r.to[i].meta, len(r.to))
		if r.origin == nil {
			e.Queue.Counters[Published]++
		} else {
			e.Queue.Counters[Taken]++
		}
		s.counting(e.Queue)
	}
	if r.dedup != nil {
		s.dedup.put(dedupEntry{hash: *r.dedup, id: r.id, seq: s.frame.seq}, bucketOf(s.time), s.frame)
	}
	if o := r.origin; o != nil && !o.outside() {
		w := s.receiver(o.sender, o.watermark)
		w.add(o.number, o.watermark)
		if w.at == nil {
			s.pinTable(&w.at, w)
		}
	}
}

func newEntry(k Key, m *brief) *Entry {
	return &Entry{Key: k, ID: m.id, Size: m.size, Group: m.group, Priority: m.priority}
}

// add takes a new entry in, one of several recipients of its record.
func (s *state) add(e *Entry, meta *Meta, recipients int) {
	s.entries[e.Key] = e
	s.messages++
	s.weight += weightEntry
	s.setMeta(e, meta)
	s.place(e)
	s.weigh(e, recipients)
	s.touched = append(s.touched, e)
}

// weigh counts the message of an entry that was placed: once for all
// recipients of a record.
func (s *state) weigh(e *Entry, recipients int) {
	e.flags &^= shared
	if recipients > 1 {
		e.flags |= shared
		if e.at.bodies == nil {
			e.at.bodies = map[uint32]int{}
		}
		e.at.bodies[e.index]++
		if e.at.bodies[e.index] > 1 {
			return
		}
	}
	s.bytes += int64(e.Size)
	s.weight += int64(e.Size)
}

// unweigh undoes weigh, while the entry is still where it was placed.
func (s *state) unweigh(e *Entry) {
	if e.flags.is(shared) {
		e.at.bodies[e.index]--
		if e.at.bodies[e.index] > 0 {
			return
		}
		delete(e.at.bodies, e.index)
	}
	s.bytes -= int64(e.Size)
	s.weight -= int64(e.Size)
}

// carry states entries whole: those it finds are moved to this frame, those it
// does not find were accepted in a frame that is purged.
func (s *state) carry(r *record) {
	for i := range r.to {
		to := &r.to[i]
		e := s.entries[to.key]
		if e == nil {
			e = newEntry(to.key, &r.brief)
			s.add(e, &to.meta, len(r.to))
		} else {
			s.setMeta(e, &to.meta)
			s.unweigh(e)
			s.place(e)
			s.weigh(e, len(r.to))
			s.touched = append(s.touched, e)
		}
		e.nth = uint16(i)
		if to.dest != "" && !e.Decided {
			s.leave(e, to.dest, to.number)
		}
	}
}

func (s *state) restate(r *record) {
	if e := s.entries[r.key]; e != nil {
		s.setMeta(e, r.meta)
		s.placeStated(e)
		s.touched = append(s.touched, e)
	}
}

func (s *state) decide(r *record) {
	s.sent(r.dest, r.number)
	q := s.queue(r.meta.Queue)
	q.Counters[Sent]++
	s.counting(q)
	if e := s.entries[r.key]; e != nil {
		s.setMeta(e, r.meta)
		s.placeStated(e)
		s.leave(e, r.dest, r.number)
		s.touched = append(s.touched, e)
	}
}

func (s *state) leave(e *Entry, dest string, number uint64) {
	sender := s.sent(dest, number)
	e.Decided = true
	delete(s.stories, e.Key) // nothing is added to it here any more
	e.out = &handover{dest: sender.dest, number: number}
}

// sent notes that a number was given. The frame that gave the last one states
// it.
func (s *state) sent(dest string, number uint64) *sender {
	t := s.senders[dest]
	if t == nil {
		t = &sender{dest: dest}
		s.senders[dest] = t
	}
	if number >= t.last {
		t.last = number
		s.pinTable(&t.at, t)
	}
	return t
}

func (s *state) receiver(name string, low uint64) *receiver {
	w := s.receivers[name]
	if w == nil {
		w = &receiver{sender: name, low: low, seen: map[uint64]struct{}{}}
		s.receivers[name] = w
	}
	return w
}

// settle removes entries. It counts nothing: what a queue's counters say must
// not depend on whether an entry's accept is still in the log.
func (s *state) settle(r *record) {
	for _, k := range r.keys {
		e := s.entries[k]
		if e == nil {
			continue
		}
		s.remove(e)
		s.touched = append(s.touched, e)
	}
}

func (s *state) remove(e *Entry) {
	s.unweigh(e)
	e.at.unpin()
	e.stated.unpin()
	e.at, e.stated = nil, nil
	e.flags |= gone
	e.Queue.Live--
	e.Queue.Bytes -= int64(e.Size)
	delete(s.entries, e.Key)
	delete(s.extras, e.Key)
	delete(s.stories, e.Key)
	s.untrace(e)
	s.messages--
	s.weight -= weightEntry
}

func (s *state) putNote(r *record) {
	n := s.notes[r.name]
	if r.value == nil {
		if n != nil {
			n.at.unpin()
			n.at = nil
			delete(s.notes, r.name)
			s.weight -= int64(len(n.key) + len(n.value))
		}
		return
	}
	if n == nil {
		n = &note{key: r.name}
		s.notes[r.name] = n
		s.weight += int64(len(n.key))
	}
	s.weight += int64(len(r.value) - len(n.value))
	n.value = r.value
	s.pinTable(&n.at, n)
}

func (s *state) count(name string, add *counters) {
	q := s.queue(name)
	for i, n := range add {
		q.Counters[i] += n
	}
	s.counting(q)
}

// forget drops an empty queue. What it has counted goes to the queue "", and
// is said in the record: the queue's own counters may be purged by then. One
// that is not empty stays as it is.
func (s *state) forget(r *record) {
	q := s.queues[r.name]
	if q != nil && q.Live > 0 {
		return
	}
	if r.counts != nil {
		s.count(r.dest, r.counts)
	}
	if q == nil {
		return
	}
	if q.counted != nil {
		q.counted.unpin()
		q.counted = nil
		s.weight -= weightQueue + int64(len(q.Name))
	}
	delete(s.queues, r.name)
}

// queue finds or makes a queue.
func (s *state) queue(name string) *Queue {
	q := s.queues[name]
	if q == nil {
		q = &Queue{Name: name}
		s.queues[name] = q
	}
	return q
}

// counting pins the first frame that changed the queue's counters since they
// were last stated whole.
func (s *state) counting(q *Queue) {
	if q.counted == nil {
		s.pinQueue(q)
	}
}

func (s *state) pinQueue(q *Queue) {
	if q.counted == nil {
		s.weight += weightQueue + int64(len(q.Name))
	}
	s.pinTable(&q.counted, q)
}

func (s *state) setMeta(e *Entry, m *Meta) {
	if q := e.Queue; q == nil || q.Name != m.Queue {
		if q != nil {
			q.Live--
			q.Bytes -= int64(e.Size)
		}
		e.Queue = s.queue(m.Queue)
		e.Queue.Live++
		e.Queue.Bytes += int64(e.Size)
	}
	e.Due, e.FirstFailure = m.Due, m.FirstFailure
	e.Generation, e.Attempt = m.Generation, m.Attempt
	e.Vanished, e.Incomplete = m.Vanished, m.Incomplete
	e.flags &^= bare
	if m.bare() {
		e.flags |= bare
	}
	if m.Group != 0 {
		e.Group = m.Group
		e.flags |= grouped
	}
	setRare(s.extras, e.Key, m.Extra)
	if !e.Decided {
		setRare(s.stories, e.Key, m.Story)
	}
	s.untrace(e)
	if m.Spans != "" {
		s.traced[e.Key] = traced{spans: m.Spans, lastFailure: m.LastFailure}
		s.weight += weightTraced + int64(len(m.Spans))
	}
}

// setRare sets what few entries have.
func setRare(of map[Key][]byte, k Key, value []byte) {
	if len(value) > 0 {
		of[k] = bytes.Clone(value)
	} else if len(of) > 0 {
		delete(of, k)
	}
}

// traced is what stays in memory of an entry's meta beside what Entry holds, if
// its message is traced.
type traced struct {
	spans       string
	lastFailure int64
}

func (s *state) untrace(e *Entry) {
	if t, ok := s.traced[e.Key]; ok {
		s.weight -= weightTraced + int64(len(t.spans))
		delete(s.traced, e.Key)
	}
}

func (s *state) pin(at **frame) {
	(*at).unpin()
	s.frame.pins++
	*at = s.frame
}

func (s *state) pinTable(at **frame, t table) {
	if *at == s.frame {
		return
	}
	s.pin(at)
	s.tables[s.frame] = append(s.tables[s.frame], t)
}

// place says that this record states the entry whole.
func (s *state) place(e *Entry) {
	s.pin(&e.at)
	e.index = s.index
	e.stated.unpin()
	e.stated = nil
}

// placeStated says that this record states the entry's meta.
func (s *state) placeStated(e *Entry) {
	s.pin(&e.stated)
	e.statedIndex = s.index
}

// intern gives the string that is kept for a name which is often repeated.
func (s *state) intern(b []byte) string {
	if q := s.queues[string(b)]; q != nil {
		return q.Name
	}
	if t := s.senders[string(b)]; t != nil {
		return t.dest
	}
	return string(b)
}

// inOrder lists the live entries by key.
func (s *state) inOrder() []*Entry {
	list := make([]*Entry, 0, len(s.entries))
	for _, e := range s.entries {
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b *Entry) int { return cmp.Compare(a.Key, b.Key) })
	return list
}
