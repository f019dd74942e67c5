package filter_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/waybill-mq/waybill/pkg/filter"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

func compile(t *testing.T, raw string) *filter.Filter {
	t.Helper()
	f, err := filter.Compile([]byte(raw))
	if err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return f
}

func matches(t *testing.T, raw, payload string) bool {
	t.Helper()
	return compile(t, raw).Match(new(filter.Document).Input([]byte(payload)))
}

// vectors are the right answers that every implementation of the language has.
type vectors struct {
	Document json.RawMessage `json:"document"`
	Cases    []struct {
		Filter  json.RawMessage `json:"filter"`
		Matches bool            `json:"matches"`
		Error   protocol.Code   `json:"error"`
	} `json:"cases"`
}

func readVectors(t testing.TB) vectors {
	t.Helper()
	raw, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestVectors(t *testing.T) {
	v := readVectors(t)
	if len(v.Cases) < 60 {
		t.Fatalf("only %d cases", len(v.Cases))
	}
	for _, c := range v.Cases {
		f, err := filter.Compile(c.Filter)
		if code := protocol.CodeOf(err); code != c.Error {
			t.Errorf("%.200s: error %v, want %q", c.Filter, err, c.Error)
			continue
		}
		d := new(filter.Document).Roots(v.Document)
		if err == nil && f.Match(d) != c.Matches {
			t.Errorf("%s: matches is %v\n%+v", c.Filter, !c.Matches, f.Explain(d))
		}
	}
}

// What the vectors leave open, on the input {"s": …}.
func TestMatch(t *testing.T) {
	for _, c := range []struct {
		filter, payload string
		want            bool
	}{
		// No coercion, and what is absent is not null.
		{`{"input.v":{"$eq":null}}`, `{}`, false},
		{`{"input.v":{"$ne":null}}`, `{}`, true},
		{`{"input.v":{"$exists":false}}`, `{"v":null}`, false},
		{`{"input.v":{"$eq":true}}`, `{"v":"true"}`, false},
		{`{"input.v":{"$eq":0}}`, `{"v":false}`, false},
		{`{"input.v":{"$lt":1}}`, `{"v":null}`, false},
		{`{"input.v":{"$gte":"5"}}`, `{"v":5}`, false},
		// Numbers are doubles.
		{`{"input.v":{"$eq":0}}`, `{"v":-0}`, true},
		{`{"input.v":{"$eq":100}}`, `{"v":1e2}`, true},
		{`{"input.v":{"$eq":0.1}}`, `{"v":0.1000000000000000055511151231257827}`, true},
		{`{"input.v":{"$eq":9007199254740992}}`, `{"v":9007199254740993}`, true},
		{`{"input.v":{"$gt":9007199254740992}}`, `{"v":1e400}`, true},
		{`{"input.v":{"$lt":-9007199254740992}}`, `{"v":-1e400}`, true},
		{`{"input.v":{"$eq":0}}`, `{"v":1e-400}`, true},
		// Strings are ordered by code point: U+FF5E before U+1F600, unlike in UTF-16.
		{`{"input.v":{"$gt":"～"}}`, `{"v":"😀"}`, true},
		{`{"input.v":{"$lt":"b"}}`, `{"v":"a"}`, true},
		{`{"input.v":{"$lt":"a"}}`, `{"v":"B"}`, true},
		{`{"input.v":{"$lt":"aa"}}`, `{"v":"a"}`, true},
		{`{"input.v":{"$prefix":""}}`, `{"v":""}`, true},
		{`{"input.v":{"$prefix":"ab"}}`, `{"v":"a"}`, false},
		// Escapes are one way of writing a character.
		{`{"input.v":{"$eq":"naïve\n"}}`, `{"v":"na\u00efve\n"}`, true},
		{`{"input.v":{"$eq":"na\u00efve"}}`, `{"v":"naïve"}`, true},
		{`{"input.v":{"$eq":"😀"}}`, `{"v":"\ud83d\ude00"}`, true},
		{`{"input.v":{"$eq":"\ufffdx"}}`, `{"v":"\ud83dx"}`, true},
		{`{"input.v":{"$prefix":"a/"}}`, `{"v":"a\/b"}`, true},
		{`{"input.v":{"$eq":1}}`, `{"\u0076":1}`, true},
		{`{"input.ü":{"$eq":1}}`, `{"ü":1}`, true},
		{`{"input.a\\\\b":{"$eq":1}}`, `{"a\\b":1}`, true},
		// The last of equal keys counts, as for most who read JSON.
		{`{"input.v":{"$eq":2}}`, `{"v":1,"v":2}`, true},
		{`{"input":{"$eq":{"v":2}}}`, `{"v":1,"v":2}`, true},
		{`{"input":{"$eq":{"v":2,"w":1}}}`, `{"v":1,"v":2}`, false},
		// Segments that index.
		{`{"input.1":{"$eq":"b"}}`, `["a","b"]`, true},
		{`{"input.01":{"$exists":true}}`, `["a","b"]`, false},
		{`{"input.01":{"$exists":true}}`, `{"01":1}`, true},
		{`{"input.-1":{"$exists":true}}`, `["a","b"]`, false},
		{`{"input.2":{"$exists":true}}`, `["a","b"]`, false},
		{`{"input.99999999999999999999":{"$exists":true}}`, `["a"]`, false},
		{`{"input.99999999999999999999":{"$exists":true}}`, `{"99999999999999999999":1}`, true},
		{`{"input.items.sku":{"$exists":true}}`, `{"items":[{"sku":1}]}`, false},
		{`{"input.v.x":{"$exists":true}}`, `{"v":"x"}`, false},
		// The root itself, and roots that are not there.
		{`{"input":{"$eq":5}}`, `5`, true},
		{`{"input":{"$exists":true}}`, ` null `, true},
		{`{"metadata.trace":{"$exists":false}}`, `{"metadata":{"trace":1}}`, true},
		{`{"output":{"$ne":1}}`, `1`, true},
		// Deep equality.
		{`{"input":{"$eq":{"a":[1,{"b":null}],"c":{}}}}`, `{"c":{},"a":[1.0,{"b":null}]}`, true},
		{`{"input":{"$eq":{"a":1}}}`, `{"a":1,"b":2}`, false},
		{`{"input":{"$eq":{"a":1,"b":2}}}`, `{"a":1}`, false},
		{`{"input":{"$eq":[1,2]}}`, `[1]`, false},
		{`{"input":{"$eq":[1]}}`, `[1,2]`, false},
		{`{"input":{"$eq":[]}}`, `{}`, false},
		{`{"input":{"$nin":[1,[2],{"a":3}]}}`, `{"a":3}`, false},
		// $any within $any, and @ being the innermost element.
		{`{"input":{"$any":{"$any":{"$eq":3}}}}`, `[[1],[2,3]]`, true},
		{`{"input":{"$any":{"@":{"$any":{"@.k":{"$eq":3}}}}}}`, `[[{"k":1}],[{"k":3}]]`, true},
		{`{"input":{"$any":{"@.a":{"$eq":1},"@.b":{"$eq":2}}}}`, `[{"a":1,"b":1},{"a":2,"b":2}]`, false},
		{`{"input":{"$any":{"$gt":1,"$lt":3}}}`, `[1,3]`, false},
		{`{"input":{"$any":{"$not":{"@":{"$eq":1}}}}}`, `[1,2]`, true},
		{`{"input":{"$any":{"$exists":true}}}`, `[null]`, true},
		{`{"input":{"$any":{}}}`, `{"0":1}`, false},
	} {
		if got := matches(t, c.filter, c.payload); got != c.want {
			t.Errorf("%s on %s is %v", c.filter, c.payload, got)
		}
		if got := referenceMatch([]byte(c.filter), []byte(`{"input":`+c.payload+`}`)); got != c.want {
			t.Errorf("the reference has %v for %s on %s", got, c.filter, c.payload)
		}
	}
}

// A payload that is not JSON is matched by nothing but the empty filter, also
// not by filters that ask for what is not there.
func TestNotJSON(t *testing.T) {
	for _, payload := range []string{"", " ", "high", "{", `{"a":1}x`, `{"a":01}`, `{'a':1}`, `[1,]`, `{"a":1,}`, "\"\xff\"", "\"\x01\"", `"\x"`, `"\u12"`, `"`, "nul", "-", "1.", "1e", "\xef\xbb\xbf{}", "NaN", "[1}", `{"a"}`, `{1:2}`} {
		if !matches(t, `{}`, payload) {
			t.Errorf("the empty filter does not match %q", payload)
		}
		for _, f := range []string{`{"input":{"$exists":false}}`, `{"$not":{"input":{"$exists":true}}}`, `{"$and":[{}]}`} {
			if matches(t, f, payload) {
				t.Errorf("%s matches %q", f, payload)
			}
		}
	}
	if matches := compile(t, `{"input":{"$exists":false}}`).Match(new(filter.Document).Roots([]byte(`[]`))); matches {
		t.Error("a document that is no object of roots matches")
	}
}

// What is refused, and what the message says about it.
func TestRefused(t *testing.T) {
	deep := strings.Repeat("[", 33) + strings.Repeat("]", 33)
	for _, c := range []struct{ filter, says string }{
		{``, "not JSON"},
		{`{"input.n":{"$eq":1}`, "not JSON"},
		{`[]`, "not an array"},
		{`{"input.p":"high"}`, `input.p: takes an object of operators such as {"$eq": "high"}`},
		{`{"input.p":{}}`, "input.p: has no operator"},
		{`{"p":{"$eq":1}}`, "p: a path begins with one of input, output, error, caller, metadata"},
		{`{"$or":[{"input.a":{"$eq":1}},{"input.b":{"$like":1}}]}`, "$or [1] input.b $like: is no operator"},
		{`{"$nor":[{}]}`, "$nor: is not known here"},
		{`{"$eq":1}`, "$eq: is not known here"},
		{`{"input.a":{"$gt":null}}`, "input.a $gt: takes a number or a string, not null"},
		{`{"input.a":{"$exists":1}}`, "input.a $exists: takes true or false"},
		{`{"input.a":{"$prefix":1}}`, "input.a $prefix: takes a string"},
		{`{"input.a":{"$any":[]}}`, "input.a $any: takes an object"},
		{`{"input.a":{"$any":{"$eq":1,"@":{"$eq":1}}}}`, "input.a $any @: is no operator"},
		{`{"input.a":{"$any":{"@":{"$eq":1},"$eq":1}}}`, "input.a $any $eq: is not known here"},
		{`{"input.a":{"$any":{"@x":{"$eq":1}}}}`, "input.a $any @x: a path within $any begins with @"},
		{`{"input..a":{"$eq":1}}`, "empty segment"},
		{`{"input.":{"$eq":1}}`, "empty segment"},
		{`{"input.a":{"$eq":1},"input.a":{"$eq":2}}`, `"input.a" stands there twice`},
		{`{"input.a":{"$eq":1,"$eq":2}}`, `"$eq" stands there twice`},
		{`{"input.a":{"$eq":9007199254740993}}`, "beyond ±2^53"},
		{`{"input.a":{"$in":[[-9007199254740992.5]]}}`, "beyond ±2^53"},
		{`{"input.a":{"$lt":1e400}}`, "beyond ±2^53"},
		{`{"input.a":{"$eq":` + deep + `}}`, "nested deeper than 32"},
		{`{"input.a":{"$in":[` + deep + `]}}`, "nested deeper than 32"},
		{`{"$not":` + strings.Repeat(`{"$or":[`, 8) + `{}` + strings.Repeat(`]}`, 8) + `}`, "nested deeper than 8"},
		{`{"input":` + strings.Repeat(`{"$any":`, 8) + `{}` + strings.Repeat(`}`, 8) + `}`, "nested deeper than 8"},
		{`{"input.a":{"$eq":"` + strings.Repeat("x", 8192) + `"}}`, "may have 8192"},
	} {
		_, err := filter.Compile([]byte(c.filter))
		if protocol.CodeOf(err) != protocol.CodeInvalidFilter || !strings.Contains(fmt.Sprint(err), c.says) {
			t.Errorf("%.120s: %v, want it to say %q", c.filter, err, c.says)
		}
	}
}

// The largest of everything is still taken.
func TestLimits(t *testing.T) {
	deep := strings.Repeat("[", 32) + strings.Repeat("]", 32)
	operators := make([]string, filter.MaxOperators)
	for i := range operators {
		operators[i] = fmt.Sprintf(`"input.p%d":{"$exists":true}`, i)
	}
	atMost := "{" + strings.Join(operators, ",") + "}"
	for _, f := range []string{
		atMost,
		`{"input.a":{"$eq":` + deep + `}}`,
		`{"input.a":{"$in":[` + deep + `]}}`,
		`{"input` + strings.Repeat(".a", 16) + `":{"$exists":true}}`,
		`{"input.a":{"$in":[9007199254740992,-9007199254740992,9007199254740992.0]}}`,
		strings.Repeat(`{"$not":`, 7) + `{}` + strings.Repeat(`}`, 7),
		strings.Repeat(`{"$and":[`, 100) + `{}` + strings.Repeat(`]}`, 100),
		`{"input.a":{"$eq":"` + strings.Repeat("x", 8192-len(`{"input.a":{"$eq":""}}`)) + `"}}` + strings.Repeat(" ", 9000),
	} {
		compile(t, f)
	}
	if _, err := filter.Compile([]byte(strings.TrimSuffix(atMost, "}") + `,"$not":{"input.q":{"$eq":1}}}`)); protocol.CodeOf(err) != protocol.CodeInvalidFilter {
		t.Errorf("an operator too many: %v", err)
	}
}

// The zero value and nil match everything, and read nothing.
func TestEverything(t *testing.T) {
	var f *filter.Filter
	for _, f := range []*filter.Filter{f, {}, compile(t, " {} ")} {
		if !f.Everything() || !f.Match(new(filter.Document)) || f.Explain(new(filter.Document)) != nil || f.String() != "{}" {
			t.Errorf("%v is not everything", f)
		}
	}
	if compile(t, `{"$and":[{}]}`).Everything() {
		t.Error("a filter with a clause is everything")
	}
	if got := compile(t, `{ "input" : { "$exists" : true } }`).String(); got != `{"input":{"$exists":true}}` {
		t.Error(got)
	}
}

func TestExplain(t *testing.T) {
	f := compile(t, `{"input.p":{"$eq":"high","$exists":true},"$or":[{"input.n":{"$gt":4}},{"input.t":{"$any":{"$eq":"b"}},"input.u":{"$any":{}}},{}],"$not":{"$and":[{"input.q":{"$in":[1]}}]}}`)
	got := f.Explain(new(filter.Document).Input([]byte(`{"p":"low","t":["a","b"],"u":[],"n":5}`)))
	want := []filter.Reason{
		{Clause: `input.p $eq "high"`, Why: `is "low"`},
		{Clause: `input.p $exists true`, Matches: true, Why: `is "low"`},
		{Clause: "$or", Matches: true, Reasons: []filter.Reason{
			{Clause: "input.n $gt 4", Matches: true, Why: "is 5"},
			{Clause: "[1]", Reasons: []filter.Reason{
				{Clause: `input.t $any {"$eq":"b"}`, Matches: true, Why: `element 1 is "b"`},
				{Clause: "input.u $any {}", Why: "none of 0 elements does"},
			}},
			{Clause: "[2]", Matches: true},
		}},
		{Clause: "$not", Matches: true, Reasons: []filter.Reason{
			{Clause: "$and", Reasons: []filter.Reason{{Clause: "input.q $in [1]", Why: "is absent"}}},
		}},
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
	if rs := f.Explain(new(filter.Document).Input([]byte("{"))); len(rs) != 1 || rs[0].Matches || !strings.Contains(rs[0].Why, "not JSON") {
		t.Errorf("%+v", rs)
	}
}

// One document is used for many payloads, and evaluating allocates nothing.
func TestNoAllocations(t *testing.T) {
	f := compile(t, `{"input.priority":{"$in":["low","h\u0069gh"]},"input.n":{"$gt":4.5},"input.items":{"$any":{"@.qty":{"$gt":8}}},"input.s":{"$prefix":"na"}}`)
	var d filter.Document
	payload := []byte(`{"priority":"high","n":5,"items":[{"qty":2},{"qty":9}],"s":"na\u00efve"}`)
	if n := testing.AllocsPerRun(100, func() {
		if !f.Match(d.Input(payload)) {
			t.Fatal("no match")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// anyJSON draws a small document whose names and values recur, as JSON.
func anyJSON(t *rapid.T, depth int) string {
	kinds := 5
	if depth > 0 {
		kinds = 7
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return "null"
	case 1:
		return rapid.SampledFrom([]string{"true", "false"}).Draw(t, "boolean")
	case 2:
		return rapid.SampledFrom([]string{"0", "-0.0", "1", "1.0", "10e-1", "2", "-3.5", "9007199254740992"}).Draw(t, "number")
	case 3, 4:
		return rapid.SampledFrom([]string{`""`, `"a"`, `"\u0061"`, `"ab"`, `"ß"`, `"\ud83d\ude00"`, `"\n"`, `"1"`}).Draw(t, "string")
	case 5:
		return "[" + strings.Join(draws(t, func() string { return anyJSON(t, depth-1) }), ",") + "]"
	default:
		return "{" + members(draws(t, func() string { return anyKey(t) + ":" + anyJSON(t, depth-1) })) + "}"
	}
}

func draws(t *rapid.T, f func() string) []string {
	drawn := make([]string, rapid.IntRange(0, 3).Draw(t, "how many"))
	for i := range drawn {
		drawn[i] = f()
	}
	return drawn
}

// members leaves out those whose key is there already.
func members(all []string) string {
	seen, kept := map[string]bool{}, []string(nil)
	for _, m := range all {
		var key string
		_ = json.NewDecoder(strings.NewReader(m)).Decode(&key)
		if !seen[key] {
			seen[key], kept = true, append(kept, m)
		}
	}
	return strings.Join(kept, ",")
}

func anyKey(t *rapid.T) string {
	return rapid.SampledFrom([]string{`"a"`, `"b"`, `"0"`, `"1"`, `"\u0061"`, `"a.b"`, `""`, `"\\"`}).Draw(t, "key")
}

func anyPath(t *rapid.T, root string) string {
	segments := rapid.SliceOfN(rapid.SampledFrom([]string{".a", ".b", ".0", ".1", `.a\\.b`, `.\\\\`}), 0, 3).Draw(t, "segments")
	return `"` + root + strings.Join(segments, "") + `"`
}

func anyFilter(t *rapid.T, root string, depth int) string {
	return "{" + members(draws(t, func() string {
		kinds := 1
		if depth > 0 {
			kinds = 4
		}
		several := func() string {
			return "[" + strings.Join(append(draws(t, func() string { return anyFilter(t, root, depth-1) }), anyFilter(t, root, depth-1)), ",") + "]"
		}
		switch rapid.IntRange(0, kinds-1).Draw(t, "clause") {
		case 1:
			return `"$not":` + anyFilter(t, root, depth-1)
		case 2:
			return `"$and":` + several()
		case 3:
			return `"$or":` + several()
		default:
			return anyPath(t, root) + ":{" + members(append(draws(t, func() string { return anyTest(t, depth) }), anyTest(t, depth))) + "}"
		}
	})) + "}"
}

func anyTest(t *rapid.T, depth int) string {
	operators := []string{"$eq", "$ne", "$in", "$nin", "$gt", "$gte", "$lt", "$lte", "$exists", "$prefix", "$any"}
	operator := rapid.SampledFrom(operators).Draw(t, "operator")
	var operand string
	switch operator {
	case "$eq", "$ne":
		operand = anyJSON(t, 2)
	case "$in", "$nin":
		operand = "[" + strings.Join(draws(t, func() string { return anyJSON(t, 1) }), ",") + "]"
	case "$exists":
		operand = rapid.SampledFrom([]string{"true", "false"}).Draw(t, "there")
	case "$prefix":
		operand = rapid.SampledFrom([]string{`""`, `"a"`, `"\u00df"`}).Draw(t, "prefix")
	case "$any":
		operand = "{}"
		if depth > 0 {
			operand = rapid.SampledFrom([]string{anyFilter(t, "@", depth-1), "{" + anyTest(t, depth-1) + "}"}).Draw(t, "elements")
		}
	default:
		operand = rapid.SampledFrom([]string{"0", "1", "1.5", `"a"`, `"ß"`}).Draw(t, "bound")
	}
	return `"` + operator + `":` + operand
}

// Whatever the filter and the document: the answer is the plain one's, and
// that of the explanation; and JSON is what encoding/json takes for it.
func TestAgreesWithTheReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw, document := anyFilter(t, "input", 2), `{"input":`+anyJSON(t, 3)+`}`
		f, err := filter.Compile([]byte(raw))
		if err != nil {
			if protocol.CodeOf(err) == protocol.CodeInvalidFilter && strings.Contains(err.Error(), "after the 64th") {
				return
			}
			t.Fatalf("%s: %v", raw, err)
		}
		checkAgrees(t, f, raw, document)
	})
}

type failer interface {
	Fatalf(format string, args ...any)
}

func checkAgrees(t failer, f *filter.Filter, raw, document string) {
	d := new(filter.Document).Roots([]byte(document))
	got, want := f.Match(d), referenceMatch([]byte(raw), []byte(document))
	if got != want {
		t.Fatalf("%s on %s: %v, the reference has %v", raw, document, got, want)
	}
	explained := true
	for _, r := range f.Explain(d) {
		explained = explained && r.Matches
	}
	if explained != got {
		t.Fatalf("%s on %s: %v, explained as %v", raw, document, got, explained)
	}
}

// isDeep says whether encoding/json gives up on it for its depth.
func isDeep(raw []byte) bool {
	return bytes.Count(raw, []byte("["))+bytes.Count(raw, []byte("{")) > 9000
}

func FuzzMatch(f *testing.F) {
	for _, c := range readVectors(f).Cases {
		f.Add(string(c.Filter), `{"input":{"n":5,"tags":["a",{"b":null}]}}`)
	}
	f.Add(`{"input.a":{"$any":{"@":{"$any":{"$eq":1e1}}}}}`, `{"input":{"a":[[10],"\ud83d"],"a":1}}`)
	f.Fuzz(func(t *testing.T, raw, document string) {
		d := new(filter.Document).Roots([]byte(document))
		if isObject := json.Valid([]byte(document)) && utf8.ValidString(document) && strings.HasPrefix(strings.TrimSpace(document), "{"); d.IsJSON() != isObject && !isDeep([]byte(document)) {
			t.Fatalf("%q: JSON is %v", document, !isObject)
		}
		compiled, err := filter.Compile([]byte(raw))
		if err != nil {
			if protocol.CodeOf(err) != protocol.CodeInvalidFilter {
				t.Fatalf("%q: %v", raw, err)
			}
			return
		}
		if strings.ContainsAny(raw, "\x01\x02") || strings.Contains(raw, `\u000`) || isDeep([]byte(document)) {
			return // what the reference stands for in paths, and cannot read
		}
		checkAgrees(t, compiled, raw, document)
	})
}

func BenchmarkMatch(b *testing.B) {
	f, err := filter.Compile([]byte(`{"input.priority":{"$eq":"high"},"input.total":{"$gte":100}}`))
	if err != nil {
		b.Fatal(err)
	}
	for _, size := range []int{128, 1024, 16 << 10} {
		payload := fmt.Appendf(nil, `{"id":"0199f1c8","text":%q,"priority":"high","total":250}`, strings.Repeat("x", size-60))
		b.Run(fmt.Sprintf("%dB", len(payload)), func(b *testing.B) {
			b.SetBytes(int64(len(payload)))
			b.ReportAllocs()
			var d filter.Document
			for b.Loop() {
				if !f.Match(d.Input(payload)) {
					b.Fatal("no match")
				}
			}
		})
	}
	b.Run("read before", func(b *testing.B) {
		d := new(filter.Document).Input([]byte(`{"id":"0199f1c8","priority":"high","total":250}`))
		for b.Loop() {
			if !f.Match(d) {
				b.Fatal("no match")
			}
		}
	})
}
