package fault_test

import (
	"context"
	"encoding/binary"
	"hash/crc32"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/waybill-mq/waybill/internal/operate"
	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/scope"
	"github.com/waybill-mq/waybill/test/harness"
)

// Numbers of the format, see internal/ledger/format.proto.
const (
	fieldRecord = 15

	recordKind   = 1
	recordOrigin = 4
	recordKeys   = 10
	recordName   = 11
	recordCounts = 13
	originNumber = 2

	kindAccept = 2
	kindSettle = 6
	kindCounts = 9

	counterAcknowledged = 3
)

// A record that somebody changed, and whose checksum is right, opens like any
// other; reconcile says in which queue, or between which ledgers, the books do
// not balance.
func TestFalsifiedRecordIsNamed(t *testing.T) {
	t.Parallel()
	m := harness.StartSeparate(t, nil)
	c := m.Connect()
	rejects := func(context.Context, *client.Delivery) error { return client.Reject(errOnPurpose) }
	acknowledges := func(context.Context, *client.Delivery) error { return nil }
	for _, route := range []string{"counted", "settled"} {
		work(t, c, "e", route, acknowledges)
		publish(t, c, "e", route, []byte("x"))
		harness.Await(t, "it is acknowledged", func() bool { return m.Queue("e", route).Counters["acknowledged"] == 1 })
	}
	work(t, c, "e", "handed", rejects)
	publish(t, c, "e", "handed", []byte("x"))
	harness.Await(t, "it is dead", func() bool { return m.Queue("e", "handed").Dead == 1 })
	m.AwaitRest("e", harness.Guard)
	m.Balanced()
	c.Close(t.Context()) // nobody may handle what rises again

	all := m.Instances()
	for _, i := range slices.Backward(all) {
		i.End()
	}
	counted, settled := scope.ScopedName("e", "counted"), scope.ScopedName("e", "settled")
	falsify(t, m.URL, "WAYBILL_ROUTER", func(records []aRecord) (done bool) {
		for _, r := range records {
			switch {
			case r.kind == kindCounts && r.name == counted && r.count(counterAcknowledged) == 1:
				r.setCount(counterAcknowledged, 2)
				done = true
			case r.kind == kindSettle && has(records, kindCounts, settled):
				r.bytes(recordKeys)[0] ^= 0x40 // another key, which nothing has
				done = true
			}
		}
		return done
	}, 2)
	falsify(t, m.URL, "WAYBILL_DLQ", func(records []aRecord) (done bool) {
		for _, r := range records {
			if origin := r.bytes(recordOrigin); r.kind == kindAccept && len(origin) > 0 {
				at, _ := find(origin, originNumber)
				origin[at]++
				done = true
			}
		}
		return done
	}, 1)
	for _, name := range harness.Services {
		m.Instance(name + "-1").Start()
	}
	m.FindGateways()
	m.AwaitReady()

	r, code := m.Reconcile()
	if code != 1 || r.Balanced {
		t.Errorf("the falsified books balance (exit code %d)", code)
	}
	named := func(what string, is func(g operate.Gap) bool) {
		if !slices.ContainsFunc(r.Gaps, is) {
			t.Errorf("no gap names %s: %+v", what, r.Gaps)
		}
	}
	named(counted, func(g operate.Gap) bool { return g.Queue == counted && strings.HasPrefix(g.Where, "router-") })
	named(settled, func(g operate.Gap) bool { return g.Queue == settled && g.Left-g.Right == -1 })
	named("the handover", func(g operate.Gap) bool {
		return strings.HasPrefix(g.Where, "router-") && strings.Contains(g.Where, "→ dlq-")
	})
	if said := m.Run("reconcile"); !strings.Contains(said.Stdout, counted) || strings.Contains(said.Stdout, "balanced:") {
		t.Errorf("people are told %s", said.Stdout)
	}
}

// aRecord is a record within a frame, which it shares its bytes with.
type aRecord struct {
	kind uint64
	name string
	raw  []byte
}

// find is where a field's value lies, and how long it is.
func find(message []byte, field protowire.Number) (at, length int) {
	for i := 0; i < len(message); {
		num, typ, n := protowire.ConsumeTag(message[i:])
		v := protowire.ConsumeFieldValue(num, typ, message[i+n:])
		if num == field {
			if typ == protowire.BytesType {
				_, k := protowire.ConsumeVarint(message[i+n:])
				return i + n + k, v - k
			}
			return i + n, v
		}
		i += n + v
	}
	return 0, 0
}

func (r aRecord) bytes(field protowire.Number) []byte {
	at, n := find(r.raw, field)
	return r.raw[at : at+n]
}

// counter is where a counter's number lies.
func (r aRecord) counter(which uint64) []byte {
	for b := r.bytes(recordCounts); len(b) > 0; {
		c, n := protowire.ConsumeVarint(b)
		_, k := protowire.ConsumeVarint(b[n:])
		if c == which {
			return b[n : n+k]
		}
		b = b[n+k:]
	}
	return nil
}

func (r aRecord) count(which uint64) byte {
	if at := r.counter(which); at != nil {
		return at[0]
	}
	return 0
}

func (r aRecord) setCount(which uint64, n byte) { r.counter(which)[0] = n }

func has(records []aRecord, kind uint64, name string) bool {
	return slices.ContainsFunc(records, func(r aRecord) bool { return r.kind == kind && r.name == name })
}

func recordsOf(frame []byte) (all []aRecord) {
	for b := frame; len(b) > 0; {
		num, typ, n := protowire.ConsumeTag(b)
		v := protowire.ConsumeFieldValue(num, typ, b[n:])
		if num == fieldRecord {
			_, k := protowire.ConsumeVarint(b[n:])
			r := aRecord{raw: b[n+k : n+v]}
			at, _ := find(r.raw, recordKind)
			r.kind, _ = protowire.ConsumeVarint(r.raw[at:])
			r.name = string(r.bytes(recordName))
			all = append(all, r)
		}
		b = b[n+v:]
	}
	return all
}

// falsify makes the stream anew, with the same sequences, from what change made
// of its frames; it must have changed that many.
func falsify(t *testing.T, url, stream string, change func([]aRecord) bool, want int) {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	info := s.CachedInfo()
	var frames []*jetstream.RawStreamMsg
	changed := 0
	for seq := info.State.FirstSeq; seq <= info.State.LastSeq; seq++ {
		frame, err := s.GetMsg(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		if change(recordsOf(frame.Data)) {
			changed++
			binary.LittleEndian.PutUint32(frame.Data[1:], crc32.Checksum(frame.Data[5:], crc32.MakeTable(crc32.Castagnoli)))
		}
		frames = append(frames, frame)
	}
	if changed != want {
		t.Fatalf("%d frames of %s are falsified, want %d", changed, stream, want)
	}
	if err := js.DeleteStream(t.Context(), stream); err != nil {
		t.Fatal(err)
	}
	info.Config.FirstSeq = info.State.FirstSeq
	if _, err := js.CreateStream(t.Context(), info.Config); err != nil {
		t.Fatal(err)
	}
	for _, frame := range frames {
		ack, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: frame.Subject, Data: frame.Data})
		if err != nil || ack.Sequence != frame.Sequence {
			t.Fatalf("frame %d is %+v now: %v", frame.Sequence, ack, err)
		}
	}
}
