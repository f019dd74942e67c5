package ledger

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// record is one step of a ledger's history. What apply does with it is the
// same whether it was just committed or read.
type record struct {
	kind   Kind
	raw    []byte // the encoded message (accept, carry), when it was read
	brief         // of the message
	to     []recipient
	origin *origin // nil: published, not handed over
	dedup  *Dedup

	key    Key
	meta   *Meta
	dest   string
	number uint64
	keys   []Key
	how    Counter // settle: what the end is counted as; 0: not said
	ends   *endings
	name   string
	value  []byte // nil: absent
	counts *counters
	seen   []dedupEntry
}

type recipient struct {
	key    Key
	meta   Meta
	raw    []byte // the encoded meta, when it was read
	dest   string
	number uint64
}

// origin says which handover a message came by.
type origin struct {
	sender            string
	number, watermark uint64
}

// outside: it came by none, and from no ledger. See Adopt.
func (o *origin) outside() bool { return o.sender == "" }

type counters [NumCounters]uint64

// dedupEntry is what is remembered of a publish that carried an id.
type dedupEntry struct {
	hash Dedup
	id   protocol.MessageID
	seq  uint64
}

const dedupEntryBytes = 40

// ordinals is how many ordinals the record takes.
func (r *record) ordinals() uint64 {
	if r.kind == KindAccept {
		return uint64(len(r.to))
	}
	return 1
}

// appendAccept is apart from appendRecord because it is the hot path.
func appendAccept(b []byte, m *Message, metas []Meta, o *origin, dedup *Dedup) []byte {
	b, start := open(b, fieldRecord)
	b = appendUint(b, 1, uint64(KindAccept))
	b = appendMessage(b, m)
	for i := range metas {
		var to int
		b, to = open(b, 3)
		b = appendMeta(b, 2, &metas[i])
		b = shut(b, to)
	}
	if o != nil {
		b = appendOrigin(b, o)
	}
	if dedup != nil {
		b = appendPresent(b, 5, dedup[:])
	}
	return shut(b, start)
}

func appendOrigin(b []byte, o *origin) []byte {
	b, start := open(b, 4)
	b = appendString(b, 1, o.sender)
	b = appendUint(b, 2, o.number)
	b = appendUint(b, 3, o.watermark)
	return shut(b, start)
}

// carried is one recipient of a carry: its encoded meta as it was read.
type carried struct {
	key  Key
	meta []byte
	out  *handover
}

// appendCarry writes forward what was read, byte for byte, so that fields of
// a later version come along.
func appendCarry(b, message []byte, to []carried) []byte {
	b, start := open(b, fieldRecord)
	b = appendUint(b, 1, uint64(kindCarry))
	b = appendPresent(b, 2, message)
	for i := range to {
		var pos int
		b, pos = open(b, 3)
		b = appendUint(b, 1, uint64(to[i].key))
		b = appendPresent(b, 2, to[i].meta)
		if out := to[i].out; out != nil {
			b = appendString(b, 3, out.dest)
			b = appendUint(b, 4, out.number)
		}
		b = shut(b, pos)
	}
	return shut(b, start)
}

// appendRecord writes any record but an accept and a carry.
func appendRecord(b []byte, r *record) []byte {
	b, start := open(b, fieldRecord)
	b = appendUint(b, 1, uint64(r.kind))
	b = appendUint(b, 6, uint64(r.key))
	if r.meta != nil {
		b = appendMeta(b, 7, r.meta)
	}
	b = appendString(b, 8, r.dest)
	b = appendUint(b, 9, r.number)
	b = appendKeys(b, r.keys)
	b = appendString(b, 11, r.name)
	b = appendValue(b, r)
	if r.counts != nil {
		b = appendCounters(b, r.counts)
	}
	b = appendUint(b, 14, uint64(r.how))
	b = appendEndings(b, r.ends)
	return shut(b, start)
}

func appendKeys(b []byte, keys []Key) []byte {
	if len(keys) == 0 {
		return b
	}
	b, start := open(b, 10)
	last := Key(0)
	for _, k := range keys {
		b = protowire.AppendVarint(b, protowire.EncodeZigZag(int64(k-last)))
		last = k
	}
	return shut(b, start)
}

func appendValue(b []byte, r *record) []byte {
	if r.kind == kindDedup {
		return appendSeen(b, r.seen)
	}
	if r.value == nil {
		return b
	}
	return appendPresent(b, 12, r.value)
}

func appendSeen(b []byte, seen []dedupEntry) []byte {
	b, start := open(b, 12)
	for i := range seen {
		b = append(b, seen[i].hash[:]...)
		b = append(b, seen[i].id[:]...)
		b = binary.LittleEndian.AppendUint64(b, seen[i].seq)
	}
	return shut(b, start)
}

func appendCounters(b []byte, c *counters) []byte {
	b, start := open(b, 13)
	for i, n := range c {
		if n > 0 {
			b = protowire.AppendVarint(b, uint64(i))
			b = protowire.AppendVarint(b, n)
		}
	}
	return shut(b, start)
}

// decodeRecord reads one record. What it returns lies partly in b; r.raw and a
// recipient's raw say where.
func decodeRecord(b []byte, intern interner) (r record, err error) {
	f := walk(b)
	for f.next() {
		switch f.num {
		case 1:
			r.kind = Kind(f.uint32())
		case 2:
			r.raw = f.slice()
			r.brief, err = glance(r.raw)
		case 3:
			err = r.decodeRecipient(f.slice(), intern)
		case 4:
			r.origin, err = decodeOrigin(f.slice(), intern)
		case 5:
			h := Dedup(f.fixed(len(Dedup{})))
			r.dedup = &h
		case 7:
			r.meta = new(Meta)
			*r.meta, err = decodeMeta(f.slice(), intern)
		default:
			r.decodePlain(&f, intern)
		}
		if err != nil {
			return r, err
		}
	}
	if err = f.err; err == nil {
		err = r.check()
	}
	return r, err
}

func (r *record) decodePlain(f *fields, intern interner) {
	switch f.num {
	case 6:
		r.key = Key(f.uint())
	case 8:
		r.dest = intern(f.slice())
	case 9:
		r.number = f.uint()
	case 10:
		r.keys = decodeKeys(f)
	case 11:
		r.name = intern(f.slice())
	case 12:
		r.value = bytes.Clone(f.slice())
		if r.value == nil {
			r.value = []byte{}
		}
	case 13:
		r.counts = decodeCounters(f)
	case 14:
		r.how = Counter(f.uint())
	case 15, 16, 17:
		if r.ends == nil {
			r.ends = &endings{}
		}
		r.ends.decode(f)
	}
}

func (r *record) decodeRecipient(b []byte, intern interner) (err error) {
	var to recipient
	f := walk(b)
	for f.next() && err == nil {
		switch f.num {
		case 1:
			to.key = Key(f.uint())
		case 2:
			to.raw = f.slice()
			to.meta, err = decodeMeta(to.raw, intern)
		case 3:
			to.dest = intern(f.slice())
		case 4:
			to.number = f.uint()
		}
	}
	r.to = append(r.to, to)
	if err == nil {
		err = f.err
	}
	return err
}

func decodeOrigin(b []byte, intern interner) (*origin, error) {
	o := &origin{}
	f := walk(b)
	for f.next() {
		switch f.num {
		case 1:
			o.sender = intern(f.slice())
		case 2:
			o.number = f.uint()
		case 3:
			o.watermark = f.uint()
		}
	}
	return o, f.err
}

func decodeKeys(f *fields) []Key {
	diffs := f.uints(nil)
	keys := make([]Key, len(diffs))
	last := Key(0)
	for i, d := range diffs {
		last += Key(protowire.DecodeZigZag(d))
		keys[i] = last
	}
	return keys
}

// decodeCounters leaves out the counters of a later version.
func decodeCounters(f *fields) *counters {
	c := &counters{}
	pairs := f.uints(nil)
	for ; len(pairs) >= 2; pairs = pairs[2:] {
		if pairs[0] < uint64(NumCounters) {
			c[pairs[0]] = pairs[1]
		}
	}
	return c
}

// check refuses a record that states nothing, or that this version does not
// know: either way the history cannot be followed beyond it.
func (r *record) check() error {
	switch r.kind {
	case KindAccept, kindCarry:
		if r.raw == nil || len(r.to) == 0 {
			return fmt.Errorf("an accepted message is incomplete")
		}
	case kindDedup:
		return r.decodeSeen()
	case kindSecret:
		if len(r.value) != len(Secret{}) {
			return fmt.Errorf("the secret has %d bytes", len(r.value))
		}
	case kindCounts, kindCounters:
		if r.counts == nil {
			return fmt.Errorf("counters without numbers")
		}
	case KindRestate, KindDecide:
		if r.meta == nil {
			return fmt.Errorf("a change of a message without what it became")
		}
	case KindSettle, KindDone, KindNote, kindEpoch, kindBarrier, kindForget, kindSender, kindReceiver:
	default:
		return fmt.Errorf("a record of kind %d, which this version does not know: open the ledger with a later one", r.kind)
	}
	return nil
}

func (r *record) decodeSeen() error {
	if len(r.value)%dedupEntryBytes != 0 {
		return fmt.Errorf("a table of publish ids has %d bytes", len(r.value))
	}
	for b := r.value; len(b) > 0; b = b[dedupEntryBytes:] {
		r.seen = append(r.seen, dedupEntry{
			hash: Dedup(b[:16]), id: protocol.MessageID(b[16:32]), seq: binary.LittleEndian.Uint64(b[32:]),
		})
	}
	r.value = nil
	return nil
}
