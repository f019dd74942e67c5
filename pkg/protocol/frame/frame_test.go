package frame_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/protocol/frame"
)

var deliveries = []frame.Delivery{
	{
		Subscription: "s1", Token: []byte("t1"), ID: protocol.MessageID{1, 2, 3}, Attempt: 1, MaxRetries: 3, TimeoutMs: 30000,
		Body: []byte("one"),
	},
	{
		Subscription: "s1", Token: []byte("t2"), ID: protocol.MessageID{4}, Attempt: 2, Generation: 7, MaxRetries: 3, TimeoutMs: 1,
		Priority: 9, Group: "g", Headers: map[string][]string{"x": {"a", ""}}, Body: []byte{},
	},
	{Subscription: "s2", Token: []byte("t3"), ID: protocol.MessageID{5}, Attempt: 1, Body: bytes.Repeat([]byte("b"), 300), Declined: true},
}

// A span is read as the header that it would be otherwise.
func TestASpanIsOneMoreHeader(t *testing.T) {
	d := frame.Delivery{Headers: map[string][]string{"x": {"a"}}, Span: "00f067aa0ba902b7", Body: []byte("one")}
	b := frame.AppendDelivery(frame.BeginDeliveries(nil, 1), &d)
	got, _, err := readDeliveries(b)
	want := map[string][]string{"x": {"a"}, protocol.HeaderSpan: {d.Span}}
	if err != nil || len(got) != 1 || !cmp.Equal(got[0].Headers, want) || len(b) > d.Size()+16 || len(d.Headers) != 1 {
		t.Fatalf("read was %v, %v", got, err)
	}
}

var outcomes = []frame.Outcome{
	{Token: "t1", Outcome: protocol.Acknowledged},
	{Token: "t2", Outcome: protocol.Failed, Text: "why", RetryAfterMs: 300},
	{Token: "t3", Outcome: protocol.Cancelled},
}

func framed() []byte {
	b := frame.BeginDeliveries(nil, 42)
	for i := range deliveries {
		b = frame.AppendDelivery(b, &deliveries[i])
	}
	return b
}

func readDeliveries(b []byte) (all []frame.Delivery, epoch uint64, err error) {
	epoch, items := frame.Deliveries(b)
	for d, err := range items {
		if err != nil {
			return all, epoch, err
		}
		all = append(all, *d)
	}
	return all, epoch, nil
}

func readOutcomes(b []byte) (all []frame.Outcome, err error) {
	for o, err := range frame.Outcomes(b) {
		if err != nil {
			return all, err
		}
		all = append(all, o)
	}
	return all, nil
}

func TestDeliveriesComeBackAsTheyWere(t *testing.T) {
	got, epoch, err := readDeliveries(framed())
	if err != nil || epoch != 42 {
		t.Fatalf("epoch %d, error %v", epoch, err)
	}
	if diff := cmp.Diff(deliveries, got); diff != "" {
		t.Fatal(diff)
	}
	size := 0
	for i := range deliveries {
		size += deliveries[i].Size()
	}
	if len(framed())-2 > size {
		t.Fatalf("%d bytes, and %d were expected at most", len(framed())-2, size)
	}
}

func TestOutcomesComeBackAsTheyWere(t *testing.T) {
	var b []byte
	for i := range outcomes {
		b = frame.AppendOutcome(b, &outcomes[i])
	}
	got, err := readOutcomes(b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(outcomes, got); diff != "" {
		t.Fatal(diff)
	}
}

// What this version writes is what every later one reads.
func TestBytesOnTheWire(t *testing.T) {
	b := frame.AppendDelivery(frame.BeginDeliveries(nil, 300), &deliveries[1])
	const delivery = "01ac02" + "a5808000" + "027331" + "027432" + "04000000000000000000000000000000" + "02" + "07" + "03" + "01" + "09" +
		"0167" + "01" + "0178" + "02" + "0161" + "00" + "00"
	if got := hex.EncodeToString(b); got != delivery {
		t.Errorf("deliveries are\n%s, want\n%s", got, delivery)
	}
	o := frame.AppendOutcome(frame.AppendOutcome(nil, &outcomes[0]), &outcomes[1])
	const two = "01" + "83808000" + "027431" + "90808000" + "027432" + "066661696c6564" + "03776879" + "ac02"
	if got := hex.EncodeToString(o); got != two {
		t.Errorf("outcomes are\n%s, want\n%s", got, two)
	}
}

func TestAnItemMayGrow(t *testing.T) {
	const later = "01" + "07" + "027431" + "00" + "00" + "00" + "ff" + "03" + "027432"
	b, err := hex.DecodeString(later)
	if err != nil {
		t.Fatal(err)
	}
	got, err := readOutcomes(b)
	if err != nil || len(got) != 2 || got[0].Token != "t1" || got[0].Outcome != protocol.Acknowledged || got[1].Token != "t2" {
		t.Fatalf("%v, %v", got, err)
	}
}

// However a frame is cut or changed, reading it ends, with what lies before
// the damage or an error.
func FuzzRead(f *testing.F) {
	f.Add(framed())
	f.Add(frame.AppendOutcome(nil, &outcomes[1]))
	f.Fuzz(func(t *testing.T, b []byte) {
		if all, _, err := readDeliveries(b); err != nil && !errors.Is(err, frame.ErrMalformed) {
			t.Fatalf("%v after %d", err, len(all))
		}
		if all, err := readOutcomes(b); err != nil && !errors.Is(err, frame.ErrMalformed) {
			t.Fatalf("%v after %d", err, len(all))
		}
	})
}

func TestWhatIsCutIsMalformed(t *testing.T) {
	b := framed()
	for n := range b {
		all, _, err := readDeliveries(b[:n])
		whole := len(all) == len(deliveries)
		if whole || len(all) > 0 && !cmp.Equal(all, deliveries[:len(all)]) {
			t.Fatalf("%d of %d bytes are %d deliveries, error %v", n, len(b), len(all), err)
		}
	}
}
