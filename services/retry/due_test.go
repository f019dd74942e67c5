package retry

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/waybill-mq/waybill/internal/ledger"
)

func TestDueOrderGivesTheFirstDue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var (
			heap  dueOrder
			model []*ledger.Entry
			key   ledger.Key
		)
		entry := func(t *rapid.T) *ledger.Entry {
			key++
			return &ledger.Entry{Key: key, Due: rapid.Int64Range(0, 20).Draw(t, "due")}
		}
		for range rapid.IntRange(0, 20).Draw(t, "waiting at the start") {
			model = append(model, entry(t))
		}
		heap.fill(slices.Clone(model))
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				e := entry(t)
				heap.add(e)
				model = append(model, e)
			},
			"take": func(t *rapid.T) {
				if len(model) == 0 {
					return
				}
				first := slices.MinFunc(model, compareDue)
				if got := heap.take(); got != first {
					t.Fatalf("took key %d due %d, want key %d due %d", got.Key, got.Due, first.Key, first.Due)
				}
				model = slices.DeleteFunc(model, func(e *ledger.Entry) bool { return e == first })
			},
			"remove": func(t *rapid.T) {
				odd := ledger.Key(rapid.IntRange(1, 3).Draw(t, "each of"))
				chosen := func(e *ledger.Entry) bool { return e.Key%odd == 0 }
				heap.remove(chosen)
				model = slices.DeleteFunc(model, chosen)
			},
			"": func(t *rapid.T) {
				first := heap.first()
				if len(model) == 0 {
					if first != nil {
						t.Fatalf("nothing waits, got %v", first)
					}
					return
				}
				if want := slices.MinFunc(model, compareDue); first != want {
					t.Fatalf("the first is key %d, want %d", first.Key, want.Key)
				}
			},
		})
	})
}
