package ledger

import (
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// arrival names a handover.
type arrival struct {
	sender string
	number uint64
}

// offer is a batch that another ledger handed over and that is not answered
// yet: some of it is being committed.
type offer struct {
	reply    func([]byte)
	waiting  int
	refusals []refusal
}

// item is one message of a batch.
type item struct {
	number  uint64
	message *Message
	meta    Meta
}

type batchOf struct {
	sender    string
	watermark uint64
	items     []item
}

// maxBacklog is how many bytes may wait for commits before handovers are
// refused for now.
const maxBacklog = 64 << 20

// receive takes a batch of handovers. It is answered once all it brings is
// committed, or was long ago.
func (l *Ledger) receive(raw []byte, reply func([]byte)) {
	o := &offer{reply: reply}
	if l.closing || l.closed || l.backlog.Load() > maxBacklog {
		o.abandon()
		return
	}
	b, err := decodeBatch(raw)
	if err != nil {
		l.log.Warn("a malformed handover", "ledger", l.name, "sender", b.sender, "err", err)
		o.refuse(0, protocol.Errorf(protocol.CodeInvalidArgs, "a malformed handover: %v", err))
		o.answer()
		return
	}
	o.waiting = 1 // until all items are looked at
	for i := range b.items {
		l.take(&b, &b.items[i], o)
	}
	o.settled()
}

func (l *Ledger) take(b *batchOf, it *item, o *offer) {
	w := l.receivers[b.sender]
	if w != nil && w.has(it.number) {
		return // a repeat: accepted
	}
	key := arrival{b.sender, it.number}
	if waiting, ok := l.arrival[key]; ok {
		o.waiting++
		l.arrival[key] = append(waiting, o)
		return
	}
	low := b.watermark
	if w != nil {
		low = max(low, w.low)
	}
	if it.number >= low+MaxOutstanding {
		o.refuse(it.number, protocol.Errorf(protocol.CodeLimitExceeded, "%d is too far ahead of %d", it.number, low))
		return
	}
	it.message.Story, it.meta.Story = JoinStories(it.message.Story, it.meta.Story), nil
	if err := l.owner.Incoming(it.message, &it.meta); err != nil {
		o.refuse(it.number, protocol.AsError(err))
		return
	}
	from := &origin{sender: b.sender, number: it.number, watermark: b.watermark}
	if err := l.accept(it.message, []Meta{it.meta}, from, nil, nil); err != nil {
		o.refuse(it.number, protocol.AsError(err))
		return
	}
	o.waiting++
	l.arrival[key] = []*offer{o}
}

// arrived answers those who wait for a handover that is committed now.
func (l *Ledger) arrived(from *origin) {
	key := arrival{from.sender, from.number}
	waiting := l.arrival[key]
	delete(l.arrival, key)
	for _, o := range waiting {
		o.settled()
	}
}

func (o *offer) refuse(number uint64, err *protocol.Error) {
	o.refusals = append(o.refusals, refusal{number: number, code: string(err.Code), text: err.Message})
}

// settled is called once for each item that waits; the last answers.
func (o *offer) settled() {
	o.waiting--
	if o.waiting == 0 {
		o.answer()
	}
}

func (o *offer) answer() {
	if o.reply != nil {
		o.reply(encodeAnswer(o.refusals))
		o.reply = nil
	}
}

// abandon refuses the whole batch for now: what of it is committed is known
// when it comes again.
func (o *offer) abandon() {
	o.refuse(0, protocol.Errorf(protocol.CodeUnavailable, "the ledger is closing or has too much to do"))
	o.answer()
}

func decodeBatch(raw []byte) (b batchOf, err error) {
	items := 0
	for f := walk(raw); f.next(); {
		if f.num == 4 {
			items++
		}
	}
	b.items = make([]item, 0, items)
	version := uint64(0)
	f := walk(raw)
	for f.next() {
		switch f.num {
		case 1:
			version = f.uint()
		case 2:
			b.sender = string(f.slice())
		case 3:
			b.watermark = f.uint()
		case 4:
			it, err := decodeItem(f.slice())
			if err != nil {
				return b, err
			}
			b.items = append(b.items, it)
		}
	}
	if f.err != nil {
		return b, f.err
	}
	if version != batchVersion || b.sender == "" || b.watermark == 0 {
		return b, errBatch
	}
	return b, nil
}

var errBatch = protocol.Errorf(protocol.CodeInvalidArgs, "its version, sender or watermark is missing or not known")

func decodeItem(raw []byte) (it item, err error) {
	f := walk(raw)
	for f.next() && err == nil {
		switch f.num {
		case 1:
			it.number = f.uint()
		case 2:
			it.message, err = decodeMessage(f.slice())
		case 3:
			it.meta, err = decodeMeta(f.slice(), plain)
		}
	}
	switch {
	case err != nil:
		return it, err
	case f.err != nil:
		return it, f.err
	case it.number == 0 || it.message == nil:
		return it, errItem
	}
	return it, nil
}

var errItem = protocol.Errorf(protocol.CodeInvalidArgs, "an item without a number or a message")
