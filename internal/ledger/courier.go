package ledger

import (
	"cmp"
	"context"
	"errors"
	"time"
)

// outbox is what is on its way to one other ledger. Slots are by number: the
// handovers from base on, in the order they were decided; nil is done.
type outbox struct {
	dest   string
	base   uint64 // all below are done
	slots  []*Entry
	next   uint64 // the next number to look at
	flying bool   // a batch is under way: the next would overtake it
	pause  time.Time
	wait   backoff
	most   int // items of a batch; 0: offerItems
}

// progress is how far a handover is.
type progress uint8

const (
	waits progress = iota
	flies
	taken // the other ledger has it
)

const (
	offerBytes = 1 << 20 // of a batch
	offerItems = 4096    // of a batch
	// itemOverhead is about what an item of a batch takes beside headers and body.
	itemOverhead = 256
)

// post puts a decided entry into its outbox. They come in order of number.
func (l *Ledger) post(e *Entry) {
	b := l.outbox[e.out.dest]
	if b == nil {
		b = &outbox{dest: e.out.dest}
		l.outbox[b.dest] = b
	}
	b.put(e.out.number, e)
}

func (b *outbox) put(number uint64, e *Entry) {
	if len(b.slots) == 0 {
		b.base, b.next = number, number
	}
	for b.base+uint64(len(b.slots)) <= number {
		b.slots = append(b.slots, nil)
	}
	b.slots[number-b.base] = e
}

func (b *outbox) at(number uint64) *Entry {
	if i := number - b.base; number >= b.base && i < uint64(len(b.slots)) {
		return b.slots[i]
	}
	return nil
}

// delivered forgets an entry whose handover is done.
func (l *Ledger) delivered(e *Entry) {
	b := l.outbox[e.out.dest]
	if b.at(e.out.number) != nil {
		b.slots[e.out.number-b.base] = nil
	}
	for len(b.slots) > 0 && b.slots[0] == nil {
		b.slots = b.slots[1:]
		b.base++
	}
	b.next = max(b.next, b.base)
	l.dropOut(e)
}

func (l *Ledger) dropOut(e *Entry) {
	if e.out != nil && e.out.meta != nil {
		e.out.meta = nil
		l.bodies.release(metaOverhead)
	}
}

// courier offers what waits, and says when to try again. What goes to one ledger
// arrives there in the order it was decided, which is that of due times: a FIFO
// queue's messages that were put off come back as they were published.
func (l *Ledger) courier(now time.Time) (wake time.Time) {
	if l.closing {
		return wake
	}
	for _, b := range l.outbox {
		if b.flying {
			continue
		}
		if b.pause.After(now) {
			wake = sooner(wake, b.pause)
			continue
		}
		if items := b.take(min(offerBytes, l.store.maxFrame())); len(items) > 0 {
			l.offer(b, items)
		}
	}
	return wake
}

// take picks the next handovers that wait, as many as go at once. One that
// would run too far ahead of the oldest waits. What goes with a message, such as
// the text of its error, is not in most, bytes: offered
// makes a batch of half as many that turned out too long.
func (b *outbox) take(most int) (items []*Entry) {
	bytes := 0
	for ; b.next < b.base+min(uint64(len(b.slots)), MaxOutstanding); b.next++ {
		e := b.at(b.next)
		if e == nil || e.out.progress != waits {
			continue
		}
		bytes += int(e.Size) + itemOverhead
		if len(items) > 0 && bytes > most || len(items) == cmp.Or(b.most, offerItems) {
			break
		}
		e.out.progress = flies
		items = append(items, e)
	}
	return items
}

// offer hands over a batch. What is not in memory is read first.
func (l *Ledger) offer(b *outbox, items []*Entry) {
	b.flying = true
	letter := l.pack(b, items)
	l.env.spawn(func(ctx context.Context) func() {
		answer, err := letter.send(ctx)
		return func() { l.offered(b, items, answer, err) }
	})
}

// letter is a batch being written.
type letter struct {
	fetcher   *fetcher
	dest      string
	sender    string
	watermark uint64
	items     []letterItem
	wants     []want
	runs      []run
}

type letterItem struct {
	number  uint64
	message *Message
	meta    *Meta
	rawBody []byte // encoded, when message is nil
	rawMeta []byte // encoded, when meta is nil
}

func (l *Ledger) pack(b *outbox, items []*Entry) *letter {
	t := &letter{fetcher: &l.fetcher, dest: b.dest, sender: l.name, watermark: b.base}
	t.items = make([]letterItem, len(items))
	for i, e := range items {
		it := &t.items[i]
		*it = letterItem{number: e.out.number, message: l.Message(e), meta: e.out.meta}
		if it.message == nil {
			t.wants = append(t.wants, e.wantMessage(i))
		}
		if it.meta == nil {
			t.wants = append(t.wants, e.wantMeta(i))
		}
	}
	t.runs = l.runs(t.wants)
	return t
}

func (t *letter) send(ctx context.Context) (answer, error) {
	var failed error
	if len(t.wants) > 0 {
		t.fetcher.fetch(ctx, t.wants, t.runs, t.fill, func(_ want, err error) { failed = err })
	}
	if failed != nil {
		return answer{}, failed
	}
	reply, err := t.fetcher.store.offer(ctx, t.dest, t.encode())
	if err != nil {
		return answer{}, err
	}
	return decodeAnswer(reply)
}

// fill keeps what a record says of an item. The last meta wins: it is the one
// that was decided, since places are read in order.
func (t *letter) fill(w want, c content) error {
	it := &t.items[w.entry]
	if it.message == nil && c.message != nil {
		it.rawBody = append([]byte(nil), c.message...)
	}
	if it.meta == nil && c.meta != nil {
		it.rawMeta = append([]byte(nil), c.meta...)
	}
	return nil
}

func (t *letter) encode() []byte {
	b := appendUint(make([]byte, 0, t.length()), 1, batchVersion)
	b = appendString(b, 2, t.sender)
	b = appendUint(b, 3, t.watermark)
	for i := range t.items {
		it := &t.items[i]
		var start int
		b, start = open(b, 4)
		b = appendUint(b, 1, it.number)
		if it.message != nil {
			b = appendMessage(b, it.message)
		} else {
			b = appendPresent(b, 2, it.rawBody)
		}
		if it.meta != nil {
			b = appendMeta(b, 3, it.meta)
		} else {
			b = appendPresent(b, 3, it.rawMeta)
		}
		b = shut(b, start)
	}
	return b
}

// length is about what the letter takes.
func (t *letter) length() int {
	n := acceptBytes
	for i := range t.items {
		it := &t.items[i]
		n += 2*acceptBytes + len(it.rawBody) + len(it.rawMeta)
		if it.message != nil {
			n += int(it.message.size())
		}
	}
	return n
}

// offered takes the other ledger's answer to a batch.
func (l *Ledger) offered(b *outbox, items []*Entry, a answer, err error) {
	b.flying = false
	if l.closed {
		return
	}
	again := err != nil
	for _, e := range items {
		if err == nil && a.accepted(e.out.number) {
			e.out.progress = taken
			l.finish(e)
			continue
		}
		again = true
		e.out.progress = waits
		b.next = min(b.next, e.out.number)
	}
	if !again {
		b.wait = backoff{}
		b.most = min(2*b.most, offerItems)
		return
	}
	if errors.Is(err, errTooLong) && len(items) > 1 {
		b.most = len(items) / 2
		return
	}
	b.pause = l.env.now().Add(b.wait.next())
	if _, damaged := errors.AsType[*DamageError](err); damaged {
		l.log.Error("a message cannot be handed over: it cannot be read", "ledger", l.name, "dest", b.dest, "err", err)
	} else {
		l.log.Debug("a handover is tried again", "ledger", l.name, "dest", b.dest, "err", err, "refusals", len(a.refusals))
	}
}

// reopened is told that the other ledger has an owner again: what waits for it goes
// at once.
func (l *Ledger) reopened(dest string) {
	if b := l.outbox[dest]; b != nil {
		b.pause, b.wait = time.Time{}, backoff{}
	}
}

// batchVersion is that of the wire between ledgers.
const batchVersion = 1

// answer is what the other ledger says to a batch.
type answer struct {
	refusals map[uint64]refusal // by number; 0 stands for all
}

type refusal struct {
	number uint64
	code   string
	text   string
}

func (a answer) accepted(number uint64) bool {
	_, all := a.refusals[0]
	_, one := a.refusals[number]
	return !all && !one
}

func encodeAnswer(refusals []refusal) []byte {
	b := appendUint(nil, 1, batchVersion)
	for _, r := range refusals {
		var start int
		b, start = open(b, 2)
		b = appendUint(b, 1, r.number)
		b = appendString(b, 2, r.code)
		b = appendString(b, 3, r.text)
		b = shut(b, start)
	}
	return b
}

var errAnswer = errors.New("ledger: the answer to a handover is malformed")

func decodeAnswer(raw []byte) (a answer, err error) {
	a.refusals = map[uint64]refusal{}
	version := uint64(0)
	f := walk(raw)
	for f.next() {
		switch f.num {
		case 1:
			version = f.uint()
		case 2:
			r := decodeRefusal(&f)
			a.refusals[r.number] = r
		}
	}
	if f.err != nil || version != batchVersion {
		return a, errAnswer
	}
	return a, nil
}

func decodeRefusal(f *fields) (r refusal) {
	w := walk(f.slice())
	for w.next() {
		switch w.num {
		case 1:
			r.number = w.uint()
		case 2:
			r.code = string(w.slice())
		case 3:
			r.text = string(w.slice())
		}
	}
	if w.err != nil {
		f.fail(w.err)
	}
	return r
}
