package router

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/services/router/broker"
)

// readyModel is a ready list beside the simplest thing that does the same.
type readyModel struct {
	list readyList
	want []*broker.Entry // sorted by key
	out  []*broker.Entry // taken, and may come back
	key  ledger.Key
}

func (m *readyModel) insert(e *broker.Entry) {
	i, _ := slices.BinarySearchFunc(m.want, e.Key, func(x *broker.Entry, k ledger.Key) int { return int(x.Key) - int(k) })
	m.want = slices.Insert(m.want, i, e)
	m.list.push(e)
}

func TestReadyListKeepsOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &readyModel{}
		t.Repeat(map[string]func(*rapid.T){
			"new": func(t *rapid.T) {
				for range rapid.IntRange(1, 50).Draw(t, "n") {
					m.key++
					m.insert(&broker.Entry{Key: m.key})
				}
			},
			"pop": func(t *rapid.T) {
				for range rapid.IntRange(1, 50).Draw(t, "n") {
					e := m.list.pop()
					if len(m.want) == 0 {
						if e != nil {
							t.Fatalf("popped %d of an empty list", e.Key)
						}
						return
					}
					if e != m.want[0] {
						t.Fatalf("popped %v, want %d", e, m.want[0].Key)
					}
					m.want, m.out = m.want[1:], append(m.out, e)
				}
			},
			"back": func(t *rapid.T) {
				if len(m.out) == 0 {
					return
				}
				i := rapid.IntRange(0, len(m.out)-1).Draw(t, "which")
				e := m.out[i]
				m.out = slices.Delete(m.out, i, i+1)
				m.insert(e)
			},
			"remove": func(t *rapid.T) {
				if len(m.want) == 0 {
					return
				}
				i := rapid.IntRange(0, len(m.want)-1).Draw(t, "which")
				if !m.list.remove(m.want[i]) {
					t.Fatalf("%d was not found", m.want[i].Key)
				}
				m.want = slices.Delete(m.want, i, i+1)
			},
			"remove what is not there": func(t *rapid.T) {
				if len(m.out) > 0 && m.list.remove(m.out[0]) {
					t.Fatal("removed what had been taken")
				}
			},
			"": func(t *rapid.T) {
				if m.list.size != len(m.want) {
					t.Fatalf("size %d, want %d", m.list.size, len(m.want))
				}
				n := 0
				m.list.ahead(func(e *broker.Entry) bool {
					n++
					return slices.Contains(m.want, e)
				})
				if n != len(m.want) {
					t.Fatalf("%d seen ahead, want %d", n, len(m.want))
				}
			},
		})
	})
}

func TestReadyListTakesOlder(t *testing.T) {
	var older, newer readyList
	for key := range ledger.Key(10) {
		older.push(&broker.Entry{Key: key})
	}
	older.pop()
	for key := ledger.Key(10); key < 15; key++ {
		newer.push(&broker.Entry{Key: key})
	}
	newer.push(&broker.Entry{Key: 3}) // one that came back
	newer.take(&older)
	if older.size != 0 || newer.size != 15 {
		t.Fatalf("sizes %d and %d", older.size, newer.size)
	}
	last := ledger.Key(0)
	for e := newer.pop(); e != nil; e = newer.pop() {
		if e.Key < last {
			t.Fatalf("%d after %d", e.Key, last)
		}
		last = e.Key
	}
}

// A lineup keeps priorities, and order within one, whatever comes back, is
// removed, or changes what the highest is.
func TestLineupKeepsPriorities(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var u lineup
		var want []*broker.Entry
		key := ledger.Key(0)
		order := func() {
			slices.SortFunc(want, func(a, b *broker.Entry) int {
				return cmp.Or(int(min(b.Priority, u.most))-int(min(a.Priority, u.most)), int(a.Key)-int(b.Key))
			})
		}
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				key++
				e := &broker.Entry{Key: key, Priority: rapid.Uint8Range(0, 5).Draw(t, "priority")}
				u.push(e)
				want = append(want, e)
			},
			"pop and push back": func(*rapid.T) {
				if e := u.pop(); e != nil {
					u.push(e)
				}
			},
			"pop": func(t *rapid.T) {
				order()
				if e := u.pop(); len(want) > 0 && e != want[0] || len(want) == 0 && e != nil {
					t.Fatalf("popped %v of %d", e, len(want))
				}
				want = want[min(1, len(want)):]
			},
			"remove": func(t *rapid.T) {
				if len(want) == 0 {
					return
				}
				i := rapid.IntRange(0, len(want)-1).Draw(t, "which")
				if !u.remove(want[i]) || u.remove(want[i]) {
					t.Fatal("not removed, or twice")
				}
				want = slices.Delete(want, i, i+1)
			},
			"take": func(*rapid.T) {
				var older readyList
				first := slices.MinFunc(append(slices.Clone(want), &broker.Entry{Key: key + 1}), func(a, b *broker.Entry) int { return int(a.Key) - int(b.Key) })
				if first.Key == 1 {
					return
				}
				e := &broker.Entry{Key: first.Key - 1, Priority: 3}
				older.push(e)
				u.take(&older)
				want = append(want, e)
			},
			"limit": func(t *rapid.T) { u.limit(rapid.Uint8Range(0, 6).Draw(t, "most")) },
			"": func(t *rapid.T) {
				order()
				if u.size != len(want) || len(want) > 0 && u.peek() != want[0] {
					t.Fatalf("%d entries, want %d; next %v", u.size, len(want), u.peek())
				}
				n := 0
				u.ahead(func(*broker.Entry) bool { n++; return true })
				if n != len(want) {
					t.Fatalf("%d seen ahead, want %d", n, len(want))
				}
			},
		})
	})
}
