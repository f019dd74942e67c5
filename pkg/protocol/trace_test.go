package protocol_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

const (
	traceID     = "0af7651916cd43dd8448eb211c80319c"
	parentID    = "b7ad6b7169203331"
	traceparent = "00-" + traceID + "-" + parentID + "-01"
)

func TestCleanTraceKeepsWhatIsValid(t *testing.T) {
	for _, parent := range []string{
		traceparent,
		"00-" + traceID + "-" + parentID + "-00",
		"cc-" + traceID + "-" + parentID + "-09",
		"01-" + traceID + "-" + parentID + "-01-what-comes-later",
	} {
		headers := map[string][]string{
			"traceparent": {parent}, "tracestate": {"vendor=1"}, "baggage": {strings.Repeat("b", protocol.MaxBaggage)}, "x-tenant": {"a"},
		}
		before := maps.Clone(headers)
		protocol.CleanTrace(headers)
		if diff := cmp.Diff(before, headers); diff != "" {
			t.Errorf("%s: %s", parent, diff)
		}
	}
}

func TestCleanTraceDropsWhatIsNot(t *testing.T) {
	for _, parent := range []string{
		"", "garbage", traceparent[:54], traceparent + "0", traceparent + "-more",
		"ff-" + traceID + "-" + parentID + "-01",
		"01-" + traceID + "-" + parentID + "-01x",
		"00-" + strings.ToUpper(traceID) + "-" + parentID + "-01",
		"00-" + strings.Repeat("0", 32) + "-" + parentID + "-01",
		"00-" + traceID + "-" + strings.Repeat("0", 16) + "-01",
		"00_" + traceID + "-" + parentID + "-01",
		"00-" + traceID + "_" + parentID + "-01",
		"00-" + traceID + "-" + parentID + "_01",
		"0g-" + traceID + "-" + parentID + "-01",
		"00-" + traceID + "-" + parentID + "-0g",
		"00-" + traceID[:31] + "g-" + parentID + "-01",
	} {
		headers := map[string][]string{"traceparent": {parent}, "tracestate": {"vendor=1"}, "baggage": {"a=1"}, "x-tenant": {"a"}}
		protocol.CleanTrace(headers)
		if diff := cmp.Diff(map[string][]string{"baggage": {"a=1"}, "x-tenant": {"a"}}, headers); diff != "" {
			t.Errorf("%q: %s", parent, diff)
		}
	}
}

func TestCleanTraceOfOddHeaders(t *testing.T) {
	for what, headers := range map[string]map[string][]string{
		"two parents":         {"traceparent": {traceparent, traceparent}, "tracestate": {"a=1"}},
		"no parent":           {"tracestate": {"a=1"}},
		"empty parent":        {"traceparent": {}, "tracestate": {"a=1"}},
		"a member too long":   {"baggage": {strings.Repeat("b", protocol.MaxBaggage+1)}},
		"baggage of no value": {"baggage": {}},
		"nothing":             nil,
	} {
		protocol.CleanTrace(headers)
		if len(headers) != 0 {
			t.Errorf("%s: %v is left", what, headers)
		}
	}
}

func TestListsOfATraceAreCutInWholeMembers(t *testing.T) {
	list := func(members, bytes int) string {
		return strings.TrimSuffix(strings.Repeat("k="+strings.Repeat("v", bytes-3)+",", members), ",")
	}
	for what, c := range map[string]struct{ name, value, want string }{
		"baggage at its bounds":      {"baggage", list(64, 128), list(64, 128)},
		"a member too many":          {"baggage", list(65, 10), list(64, 10)},
		"bytes too many":             {"baggage", list(10, 1000), list(8, 1000)},
		"tracestate at its bounds":   {"tracestate", list(32, 16), list(32, 16)},
		"a tracestate's member more": {"tracestate", list(33, 8), list(32, 8)},
		"a tracestate too long":      {"tracestate", list(4, 200), list(2, 200)},
	} {
		headers := map[string][]string{"traceparent": {traceparent}, c.name: {c.value}}
		protocol.CleanTrace(headers)
		if diff := cmp.Diff([]string{c.want}, headers[c.name]); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}
	if got := protocol.CutBaggage(list(65, 10)); got != list(64, 10) {
		t.Errorf("baggage is cut to %q", got)
	}
}

func FuzzCleanTrace(f *testing.F) {
	f.Add(traceparent)
	f.Add("01-" + traceID + "-" + parentID + "-01-more")
	f.Fuzz(func(t *testing.T, parent string) {
		headers := map[string][]string{"traceparent": {parent}}
		protocol.CleanTrace(headers)
		if len(headers) == 0 {
			return
		}
		parts := strings.SplitN(parent, "-", 5)
		if len(parts) < 4 || len(parts[0]) != 2 || len(parts[1]) != 32 || len(parts[2]) != 16 || len(parts[3]) != 2 || strings.ToLower(parent[:55]) != parent[:55] {
			t.Errorf("%q passes", parent)
		}
	})
}
