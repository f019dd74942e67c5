package client

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"pgregory.net/rapid"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

const usual = `{"stream":"WAYBILL_builtin","seq":18446744073,"message_id":"01890a5d-ac96-774b-bcce-b302099a8057","broker":"builtin","durability":"fsync","listeners":3}`

// The hand-written reader says what encoding/json does, or leaves it to it.
func TestReceiptsAreReadAsJSONIs(t *testing.T) {
	words := rapid.OneOf(rapid.StringMatching(`[A-Za-z0-9_\-]{0,12}`), rapid.String())
	rapid.Check(t, func(t *rapid.T) {
		want := Receipt{
			Stream: words.Draw(t, "stream"), Seq: rapid.Uint64().Draw(t, "seq"), Duplicate: rapid.Bool().Draw(t, "duplicate"),
			MessageID: words.Draw(t, "message id"), Broker: words.Draw(t, "broker"), Durability: words.Draw(t, "durability"),
			Listeners: rapid.Int().Draw(t, "listeners"),
		}
		b, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var read Receipt
		if err := json.Unmarshal(b, &read); err != nil { // what is no UTF-8 is read as something else
			t.Fatal(err)
		}
		like := Receipt{Stream: want.Stream}
		got, err := parseReceipt(&nats.Msg{Data: b}, &like)
		if err != nil || !cmp.Equal(*got, read) {
			t.Fatalf("%s was read as %+v, %v", b, got, err)
		}
		if r := readReceipt(b, &like); r != nil && !cmp.Equal(*r, read) {
			t.Fatalf("%s was read by hand as %+v", b, r)
		}
	})
}

func TestNoTextBreaksTheReader(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := []byte(usual)
		for range rapid.IntRange(1, 3).Draw(t, "changes") {
			i := rapid.IntRange(0, len(b)-1).Draw(t, "at")
			b = append(b[:i], append(rapid.SliceOfN(rapid.SampledFrom([]byte(`{}[]":,\0at `+"\n\xff")), 0, 2).Draw(t, "with"), b[i+1:]...)...)
		}
		r := readReceipt(b, &Receipt{})
		if r == nil {
			return
		}
		var want Receipt
		if err := json.Unmarshal(b, &want); err == nil && !cmp.Equal(*r, want) {
			t.Fatalf("%s was read by hand as %+v", b, r)
		}
	})
}

func TestReceipts(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		byHand bool
		seq    uint64
		code   protocol.Code
	}{
		"usual":         {usual, true, 18446744073, ""},
		"duplicate":     {`{"stream":"S","seq":7,"duplicate":true,"message_id":"m"}`, true, 7, ""},
		"newer":         {`{"stream":"S","seq":7,"shard":{"a":[1,2]}}`, false, 7, ""},
		"white space":   {`{ "stream": "S", "seq": 7 }`, false, 7, ""},
		"error":         {`{"error":{"code":503,"description":"no"},"code":"QUOTA_EXCEEDED","message":"full"}`, false, 0, protocol.CodeQuotaExceeded},
		"foreign error": {`{"error":{"code":503}}`, false, 0, protocol.CodeInternal},
		"no object":     {`+ok`, false, 0, protocol.CodeInternal},
		"nothing":       {``, false, 0, protocol.CodeInternal},
		"cut":           {usual[:40], false, 0, protocol.CodeInternal},
	} {
		t.Run(name, func(t *testing.T) {
			if r := readReceipt([]byte(c.answer), &Receipt{}); (r != nil) != c.byHand {
				t.Errorf("read by hand: %+v", r)
			}
			r, err := parseReceipt(&nats.Msg{Data: []byte(c.answer)}, &Receipt{})
			if protocol.CodeOf(err) != c.code {
				t.Fatalf("got %v, want %q", err, c.code)
			}
			if err == nil && r.Seq != c.seq {
				t.Errorf("seq %d, want %d", r.Seq, c.seq)
			}
		})
	}
}

func BenchmarkReceipt(b *testing.B) {
	like := Receipt{Stream: "WAYBILL_builtin", Broker: "builtin", Durability: protocol.DurabilityFsync}
	msg := &nats.Msg{Data: []byte(usual)}
	b.ReportAllocs()
	for b.Loop() {
		if r, err := parseReceipt(msg, &like); err != nil || r.Listeners != 3 {
			b.Fatal(r, err)
		}
	}
}
