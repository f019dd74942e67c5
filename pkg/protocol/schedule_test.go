package protocol_test

import (
	"maps"
	"testing"
	"time"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

func TestTakeSchedule(t *testing.T) {
	now := time.Date(2026, 3, 4, 5, 6, 7, 8_000_000, time.UTC)
	refused := time.Unix(0, 1)
	for _, c := range []struct {
		name, value string
		want        time.Time // zero: at once
	}{
		{"Waybill-Delay-Ms", "1500", now.Add(1500 * time.Millisecond)},
		{"WAYBILL-DELAY-MS", "1", now.Add(time.Millisecond)},
		{"Waybill-Delay-Ms", "0", time.Time{}},
		{"Waybill-Delay-Ms", "-1", refused},
		{"Waybill-Delay-Ms", "1e3", refused},
		{"Waybill-Delay-Ms", " 1", refused},
		{"Waybill-Delay-Ms", "9223372036854775807", refused},
		{"Waybill-Deliver-At", "2026-03-04T06:06:08.5+01:00", now.Add(time.Second + 492*time.Millisecond)},
		{"waybill-deliver-at", "1772600768008", time.UnixMilli(1772600768008)},
		{"Waybill-Deliver-At", "2026-03-04T05:06:07.008Z", time.Time{}},
		{"Waybill-Deliver-At", "-5", time.Time{}},
		{"Waybill-Deliver-At", "2036-03-04T05:06:07Z", time.Date(2036, 3, 4, 5, 6, 7, 0, time.UTC)},
		{"Waybill-Deliver-At", "2036-03-06T05:06:07Z", refused},
		{"Waybill-Deliver-At", "9223372036854775807", refused},
		{"Waybill-Deliver-At", "2026-03-04T06:06:08", refused},
		{"Waybill-Deliver-At", "1772600768008.5", refused},
	} {
		headers := map[string][]string{"x-own": {"1"}, c.name: {c.value}}
		got, err := protocol.TakeSchedule(headers, now)
		if c.want.Equal(refused) {
			if protocol.CodeOf(err) != protocol.CodeInvalidArgs {
				t.Errorf("%s %q: got %v and %v, want INVALID_ARGS", c.name, c.value, got, err)
			}
			continue
		}
		if err != nil || !got.Equal(c.want) {
			t.Errorf("%s %q: got %v and %v, want %v", c.name, c.value, got, err, c.want)
		}
		if !maps.EqualFunc(headers, map[string][]string{"x-own": {"1"}}, func(a, b []string) bool { return a[0] == b[0] }) {
			t.Errorf("%s %q: left %v", c.name, c.value, headers)
		}
	}
	for _, headers := range []map[string][]string{
		{protocol.HeaderDelayMs: {"1"}, protocol.HeaderDeliverAt: {"1"}},
		{protocol.HeaderDelayMs: {"1"}, "waybill-delay-ms": {"1"}},
		{protocol.HeaderDelayMs: {"1", "2"}},
		{protocol.HeaderDelayMs: {}},
	} {
		if _, err := protocol.TakeSchedule(headers, now); protocol.CodeOf(err) != protocol.CodeInvalidArgs {
			t.Errorf("%v: got %v, want INVALID_ARGS", headers, err)
		}
	}
}
