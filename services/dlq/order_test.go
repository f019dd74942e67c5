package dlq

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

func TestOrderAgainstASortedRow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var (
			row   order
			model []*letter // what is there
			key   ledger.Key
		)
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				key++
				l := &letter{
					entry:    &ledger.Entry{Key: key},
					failedAt: rapid.Int64Range(1, 50).Draw(t, "failed at"),
					id:       idOf(rapid.Uint64().Draw(t, "id")),
				}
				row.add(l)
				model = append(model, l)
			},
			"remove": func(t *rapid.T) {
				if len(model) == 0 {
					return
				}
				i := rapid.IntRange(0, len(model)-1).Draw(t, "which")
				model[i].gone = true
				row.lost()
				model = slices.Delete(model, i, i+1)
			},
			"since": func(t *rapid.T) {
				from := rapid.Int64Range(0, 51).Draw(t, "from")
				before, rest := row.since(from)
				want := 0
				for _, l := range model {
					if l.failedAt < from {
						want++
					}
				}
				if before != want || before+len(rest) != len(model) {
					t.Fatalf("since %d: %d before and %d rest, want %d of %d", from, before, len(rest), want, len(model))
				}
			},
			"first": func(t *rapid.T) {
				until := ledger.Key(rapid.Uint64Range(0, uint64(key)).Draw(t, "until"))
				limit := rapid.IntRange(1, 5).Draw(t, "limit")
				found, more := row.first(until, limit, func(*letter) bool { return false })
				old := slices.DeleteFunc(slices.Clone(model), func(l *letter) bool { return l.entry.Key > until })
				if len(found) != min(limit, len(old)) || more != (len(old) > limit) {
					t.Fatalf("found %d (more: %v) of %d, limit %d", len(found), more, len(old), limit)
				}
			},
			"": func(t *rapid.T) {
				if row.total() != len(model) {
					t.Fatalf("total is %d, want %d", row.total(), len(model))
				}
				_, all := row.since(math.MinInt64)
				want := slices.Clone(model)
				slices.SortStableFunc(want, compareLetters)
				if !slices.EqualFunc(all, want, func(a, b *letter) bool { return compareLetters(a, b) == 0 }) {
					t.Fatalf("the order is wrong")
				}
			},
		})
	})
}

func idOf(n uint64) (id protocol.MessageID) {
	binary.BigEndian.PutUint64(id[:], n)
	return id
}

func TestMergeEndsWithTheShortestRow(t *testing.T) {
	places := []place{{ledger: 0}, {ledger: 1}, {ledger: 0}, {ledger: 1}}
	letter := func(id string) *protocol.DeadLetter { return &protocol.DeadLetter{MessageID: id} }
	tests := []struct {
		name string
		rows [2][]*protocol.DeadLetter
		want []string
	}{
		{"all", [2][]*protocol.DeadLetter{{letter("a"), letter("c")}, {letter("b"), letter("d")}}, []string{"a", "b", "c", "d"}},
		{"without what is gone", [2][]*protocol.DeadLetter{{letter("a"), nil}, {letter("b"), letter("d")}}, []string{"a", "b", "d"}},
		{"until one has no more", [2][]*protocol.DeadLetter{{letter("a")}, {letter("b"), letter("d")}}, []string{"a", "b"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			page := merge(places, []readReply{{Letters: test.rows[0]}, {Letters: test.rows[1]}})
			var got []string
			for _, l := range page {
				got = append(got, l.MessageID)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestBoundsOfNothing(t *testing.T) {
	if first, last := bounds([]headsReply{{}, {}}); cmp.Or(first, last) != 0 {
		t.Errorf("got %d to %d, want 0 to 0", first, last)
	}
	if first, last := bounds([]headsReply{{Total: 1, First: 7, Last: 9}, {}, {Total: 2, First: 3, Last: 8}}); first != 3 || last != 9 {
		t.Errorf("got %d to %d, want 3 to 9", first, last)
	}
}
