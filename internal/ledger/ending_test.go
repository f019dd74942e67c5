package ledger

import (
	"testing"
	"time"
)

// Who ended what, and how long that took, is what a settle says when it is read;
// what is not known stays so.
func TestEndingsAreReadAsTheyWereSaid(t *testing.T) {
	a, b := &Worker{ID: "a", Name: "first"}, &Worker{ID: "b"}
	for name, enders := range map[string][]ender{
		"nobody":   {{}, {}},
		"one":      {{a, 3 * time.Millisecond}, {a, 0}, {a, time.Hour}},
		"at once":  {{a, 999 * time.Microsecond}, {b, 0}},
		"mixed":    {{}, {a, time.Second}, {b, time.Second}, {a, 0}, {}, {a, -time.Second}},
		"one last": {{}, {}, {b, 0}},
	} {
		keys := make([]Key, len(enders))
		for i := range keys {
			keys[i] = Key(i + 1)
		}
		raw := appendRecord(nil, &record{kind: KindSettle, keys: keys, how: Acknowledged, ends: endsOf(enders)})
		r, err := decodeRecord(raw[1+lengthBytes:], plain)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for i, want := range enders {
			who, took := r.ends.of(i)
			if want.worker == nil {
				want.worker = &Worker{}
			}
			if who != *want.worker || took != max(want.took, 0).Truncate(time.Millisecond) {
				t.Errorf("%s: number %d was ended by %+v in %v, it says %+v in %v", name, i, *want.worker, want.took, who, took)
			}
		}
		if who, took := r.ends.of(len(enders)); who != (Worker{}) || took != 0 {
			t.Errorf("%s: one that is not there was ended by %+v in %v", name, who, took)
		}
	}
}
