package ledger

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

var goldenNew = flag.Bool("ledger.golden", false, "write golden files that do not exist yet; none is ever changed")

var (
	goldenID   = protocol.MessageID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
	goldenHash = Dedup{0xd, 0xe, 0xd}
	// unknownField is field 99 with the varint 7, as a later version might add.
	unknownField  = []byte{0x98, 0x06, 0x07}
	goldenMessage = &Message{
		ID: goldenID, PublishedAt: 1_700_000_000_000_000_001, Priority: 9, Group: "g",
		Headers: map[string][]string{"trace": {"a\x00b\xff", ""}}, Body: []byte("body\x00\xff"), Extra: unknownField,
	}
	goldenMeta = Meta{
		Queue: "/queue/e/r", Generation: 1, Attempt: 2, Vanished: 3, Incomplete: 4, Due: 5, FirstFailure: -6, LastFailure: 7,
		Reason: protocol.ReasonFailed, Error: "an error", Source: "a subscription", Extra: unknownField,
	}
)

// goldenRecords has a record of each kind, with every field it may have.
func goldenRecords() map[string][]byte {
	of := func(r record) []byte { return appendRecord(nil, &r) }
	var all counters
	for i := range Refused + 1 { // those of the first version
		all[i] = uint64(i) * 100
	}
	story := appendEvent(nil, &Event{
		Kind: Attempted, At: -8, Generation: 1, Attempt: 2, Outcome: protocol.Failed, Took: 300, Worker: "w", WorkerID: "id",
		Subscription: "s", Error: "e", Due: 9, By: "b", Trace: []byte{0, 1},
	})
	story = appendUint(story, 2, 3)
	encodedMessage := appendMessage(nil, goldenMessage)[1+lengthBytes:]
	encodedMeta := appendMeta(nil, 7, &goldenMeta)[1+lengthBytes:]
	return map[string][]byte{
		"epoch":  of(record{kind: kindEpoch, name: "owner", value: []byte("mark")}),
		"accept": appendAccept(nil, goldenMessage, []Meta{goldenMeta, {Queue: "/topic/t", Attempt: 1}}, nil, &goldenHash),
		"accept-handover": appendAccept(nil, &Message{ID: goldenID}, []Meta{{}},
			&origin{sender: "router-00", number: 300, watermark: 299}, nil),
		"carry": appendCarry(nil, encodedMessage, []carried{
			{key: 70, meta: encodedMeta}, {key: 71, meta: nil, out: &handover{dest: "dlq-01", number: 3}},
		}),
		"restate-spans": of(record{kind: KindRestate, key: 6, meta: &Meta{Queue: "/queue/e/r", Attempt: 2, LastFailure: 7, Spans: "a trace's id, and a span"}}),
		"restate-group": of(record{kind: KindRestate, key: 3, meta: &Meta{Queue: "q", Attempt: 1, Group: 0x0102030405060708}}),
		"restate":       of(record{kind: KindRestate, key: 1 << 40, meta: &goldenMeta}),
		"decide":        of(record{kind: KindDecide, key: 5, meta: &goldenMeta, dest: "retry-02", number: 9}),
		"settle":        of(record{kind: KindSettle, keys: []Key{9, 3, 1 << 50, 4}}),
		"done":          of(record{kind: KindDone, keys: []Key{1}}),
		"note":          of(record{kind: KindNote, name: "k", value: []byte("v")}),
		"note-empty":    of(record{kind: KindNote, name: "k", value: []byte{}}),
		"note-delete":   of(record{kind: KindNote, name: "k"}),
		"counts":        of(record{kind: kindCounts, name: "/queue/e/r", counts: &counters{Delivered: 2, Refused: 300}}),
		"barrier":       of(record{kind: kindBarrier, value: []byte("mark")}),
		"forget":        of(record{kind: kindForget, name: "/queue/e/r"}),
		"secret":        of(record{kind: kindSecret, value: goldenID[:]}),
		"sender":        of(record{kind: kindSender, name: "dlq-00", number: 12}),
		"receiver":      of(record{kind: kindReceiver, name: "router-01", number: 12, keys: []Key{14, 20}}),
		"counters":      of(record{kind: kindCounters, name: "/queue/e/r", counts: &all}),
		"dedup":         of(record{kind: kindDedup, number: 1_700_000_000, seen: []dedupEntry{{goldenHash, goldenID, 77}, {Dedup{1}, goldenID, 78}}}),
		"accept-story":  appendAccept(nil, &Message{ID: goldenID, Story: story}, []Meta{{Queue: "q", Spans: "s", Story: story}}, nil, nil),
		"forget-into":   of(record{kind: kindForget, name: "/queue/e/r", dest: "/queue//r", counts: &counters{Delivered: 2}}),
		"settle-how":    of(record{kind: KindSettle, keys: []Key{9}, how: Discarded}),
		"settle-by": of(record{kind: KindSettle, keys: []Key{9, 8, 7}, how: Acknowledged, ends: &endings{
			workers: []Worker{{ID: "id", Name: "n"}, {ID: "other"}}, runs: []uint64{1, 2, 2, 1}, took: []uint64{0, 300, 1},
		}}),
		"accept-publisher": appendAccept(nil, &Message{ID: goldenID, Publisher: "a/b"}, []Meta{{Queue: "q"}}, nil, nil),
		"accept-adopted":   appendAccept(nil, &Message{ID: goldenID}, []Meta{{Queue: "q", Attempt: 2, Due: 5}}, &origin{}, &goldenHash),
		"counts-later":     of(record{kind: kindCounts, name: "q", counts: &counters{Taken: 1, Sent: 2, HandedBack: 3, WrittenOff: 4}}),
	}
}

// goldenFrames are whole frames, and what goes between ledgers.
func goldenFrames() map[string][]byte {
	h := header{ledger: "router-03", epoch: 7, first: 1000, count: 2, time: 1_700_000_000_000_000_000, floor: 900, floorSeq: 55, live: 12345}
	frame := appendHead(nil, &h)
	frame = append(frame, goldenRecords()["accept"]...)
	first := header{ledger: "a", epoch: 1, first: 1, count: 1, floor: 1}
	l := &letter{sender: "router-03", watermark: 8, items: []letterItem{
		{number: 9, message: goldenMessage, meta: &goldenMeta}, {number: 10, message: &Message{ID: goldenID}, meta: &Meta{}},
	}}
	return map[string][]byte{
		"frame":       sealFrame(frame),
		"frame-first": sealFrame(append(appendHead(nil, &first), goldenRecords()["epoch"]...)),
		"batch":       l.encode(),
		"answer":      encodeAnswer([]refusal{{number: 9, code: "QUOTA_EXCEEDED", text: "full"}}),
		"answer-all":  encodeAnswer(nil),
	}
}

// TestGolden has what an earlier build wrote be what this one writes, byte for
// byte. The files are append-only.
func TestGolden(t *testing.T) {
	all := goldenFrames()
	for name, b := range goldenRecords() {
		all["record-"+name] = b
	}
	for name, b := range all {
		path := filepath.Join("testdata", "v1", name+".bin")
		want, err := os.ReadFile(path)
		if os.IsNotExist(err) && *goldenNew {
			want, err = b, os.WriteFile(path, b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(b, want) {
			t.Errorf("%s is now written as\n%x\nand was\n%x", name, b, want)
		}
	}
}

// TestGoldenRead reads every file there is, those of earlier builds too.
func TestGoldenRead(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "v1", "record-*.bin"))
	if err != nil || len(files) < 19 {
		t.Fatalf("%d golden records: %v", len(files), err)
	}
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		r, err := decodeRecord(b[1+lengthBytes:], plain)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if again := encodeAgain(t, &r); !bytes.Equal(again, b) {
			t.Errorf("%s: read and written again it is\n%x\nnot\n%x", path, again, b)
		}
	}
}

// encodeAgain writes a record that was read.
func encodeAgain(t *testing.T, r *record) []byte {
	t.Helper()
	switch r.kind {
	case KindAccept:
		m, err := decodeMessage(r.raw)
		if err != nil {
			t.Fatal(err)
		}
		metas := make([]Meta, len(r.to))
		for i := range metas {
			metas[i] = r.to[i].meta
		}
		return appendAccept(nil, m, metas, r.origin, r.dedup)
	case kindCarry:
		to := make([]carried, len(r.to))
		for i := range to {
			to[i] = carried{key: r.to[i].key, meta: r.to[i].raw}
			if r.to[i].dest != "" {
				to[i].out = &handover{dest: r.to[i].dest, number: r.to[i].number}
			}
		}
		return appendCarry(nil, r.raw, to)
	}
	return appendRecord(nil, r)
}

func TestMessageRoundTrip(t *testing.T) {
	m, err := decodeMessage(appendMessage(nil, goldenMessage)[1+lengthBytes:])
	if err != nil || !reflect.DeepEqual(m, goldenMessage) {
		t.Errorf("%+v %v", m, err)
	}
	glance, err := glance(appendMessage(nil, goldenMessage)[1+lengthBytes:])
	if err != nil || glance != goldenMessage.brief() || glance.id != goldenID || glance.group == 0 || glance.priority == 0 {
		t.Errorf("at a glance it is %+v, %v", glance, err)
	}
	meta, err := decodeMeta(appendMeta(nil, 7, &goldenMeta)[1+lengthBytes:], plain)
	if err != nil || !reflect.DeepEqual(meta, goldenMeta) {
		t.Errorf("%+v %v", meta, err)
	}
}

// TestAFlippedBitIsFound flips every bit of a frame.
func TestAFlippedBitIsFound(t *testing.T) {
	frame := goldenFrames()["frame"]
	if _, _, err := decodeFrame(frame); err != nil {
		t.Fatal(err)
	}
	for i := range len(frame) * 8 {
		b := bytes.Clone(frame)
		b[i/8] ^= 1 << (i % 8)
		if _, _, err := decodeFrame(b); err == nil {
			t.Errorf("bit %d flipped, and not found", i)
		}
	}
}

func TestALaterVersionIsRefused(t *testing.T) {
	for name, b := range map[string][]byte{
		"a frame":  sealFrame(append(appendHead(nil, &header{ledger: "a"}), 0x10, 2)),
		"a record": sealFrame(append(appendHead(nil, &header{ledger: "a"}), appendRecord(nil, &record{kind: 99})...)),
	} {
		_, records, err := decodeFrame(b)
		if err == nil {
			_, err = decodeRecords(nil, records, plain)
		}
		if err == nil || !strings.Contains(err.Error(), "later") {
			t.Errorf("%s of a later version: %v", name, err)
		}
	}
}

// FuzzFrame has nothing that is read make the decoder panic, and what it takes
// be written again as it was meant.
func FuzzFrame(f *testing.F) {
	for _, b := range goldenFrames() {
		f.Add(b)
	}
	for _, b := range goldenRecords() {
		f.Add(sealFrame(append(appendHead(nil, &header{ledger: "a", count: 1}), b...)))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > crcBytes { // let most of it pass the checksum
			b = sealFrame(bytes.Clone(b))
		}
		_, records, err := decodeFrame(b)
		if err != nil {
			return
		}
		list, err := decodeRecords(nil, records, plain)
		if err != nil {
			return
		}
		s := newState()
		s.begin(&header{first: 1}, 1)
		for i := range list {
			s.apply(&list[i])
			again, err := decodeRecord(plainAgain(&list[i]), plain)
			if err == nil && again.kind != list[i].kind {
				t.Errorf("kind %d became %d", list[i].kind, again.kind)
			}
		}
		s.end()
	})
}

func plainAgain(r *record) []byte {
	if r.kind == KindAccept || r.kind == kindCarry {
		return nil
	}
	return appendRecord(nil, r)[1+lengthBytes:]
}

// FuzzBatch does the same for what other ledgers send.
func FuzzBatch(f *testing.F) {
	f.Add(goldenFrames()["batch"])
	f.Add(goldenFrames()["answer"])
	f.Fuzz(func(t *testing.T, b []byte) {
		if batch, err := decodeBatch(b); err == nil && (batch.sender == "" || batch.watermark == 0) {
			t.Error("a batch without a sender")
		}
		if a, err := decodeAnswer(b); err == nil {
			a.accepted(1)
		}
	})
}
