package ledger

import (
	"maps"
	"slices"
	"strings"

	"github.com/waybill-mq/waybill/internal/document"
)

// leases is the record of who keeps which ledger of a service: one document
// that every instance rewrites, by compare and set, once a beat. So each
// decision is made on the whole picture, and two cannot be made on the same.
type leases struct {
	document.Head
	// Tail is the highest last sequence of the stream that was ever seen. A
	// stream that ends before it has lost what was committed.
	Tail uint64 `json:"tail"`
	// Instances are those that keep ledgers, and how often each has written.
	Instances map[string]lessee `json:"instances"`
	// Holders is who keeps a ledger; what is not named is free.
	Holders map[string]string `json:"holders"`
}

type lessee struct {
	Beat uint64 `json:"beat"`
}

// renew writes the instance's beat and takes out the silent, whose ledgers are
// free then.
func (t *leases) renew(self string, silent map[string]bool) {
	if t.Instances == nil {
		t.Instances, t.Holders = map[string]lessee{}, map[string]string{}
	}
	maps.DeleteFunc(t.Instances, func(id string, _ lessee) bool { return silent[id] && id != self })
	t.Instances[self] = lessee{Beat: t.Instances[self].Beat + 1}
	maps.DeleteFunc(t.Holders, func(_, holder string) bool { _, alive := t.Instances[holder]; return !alive })
}

// leave takes the instance out, and frees all it held.
func (t *leases) leave(self string) {
	delete(t.Instances, self)
	maps.DeleteFunc(t.Holders, func(_, holder string) bool { return holder == self })
}

// share takes free ledgers until the instance has its share, and returns those
// it has beyond it: it has to stop those before it frees them. ledgers are all
// of the service.
func (t *leases) share(self string, ledgers []string) (surplus []string) {
	mine := make([]string, 0, len(ledgers))
	share := t.shareOf(self, len(ledgers))
	order := t.preference(self, ledgers)
	for _, name := range order {
		if t.Holders[name] == self {
			mine = append(mine, name)
		}
	}
	if len(mine) > share {
		return mine[share:]
	}
	for _, name := range order {
		if len(mine) == share {
			break
		}
		if _, held := t.Holders[name]; !held {
			t.Holders[name] = self
			mine = append(mine, name)
		}
	}
	return nil
}

// shareOf is how many ledgers of total the instance may have: the same as all
// others, and one more for as many as the division leaves over. Those are the
// ones that have it already, so that it does not change hands, then the first
// by name.
func (t *leases) shareOf(self string, total int) int {
	each, over := total/len(t.Instances), total%len(t.Instances)
	count := map[string]int{}
	for _, holder := range t.Holders {
		count[holder]++
	}
	ids := slices.SortedFunc(maps.Keys(t.Instances), func(a, b string) int {
		if more, less := count[a] > each, count[b] > each; more != less {
			if more {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	if slices.Index(ids, self) < over {
		return each + 1
	}
	return each
}

// preference orders the ledgers so that each instance begins with others than
// its neighbours: then few change hands when all have come.
func (t *leases) preference(self string, ledgers []string) []string {
	ids := slices.Sorted(maps.Keys(t.Instances))
	rank, n := slices.Index(ids, self), len(ids)
	var first, later []string
	for i, name := range ledgers {
		if i%n == rank {
			first = append(first, name)
		} else {
			later = append(later, name)
		}
	}
	return append(first, later...)
}

// held are the instance's ledgers.
func (t *leases) held(self string) map[string]bool {
	held := map[string]bool{}
	for name, holder := range t.Holders {
		if holder == self {
			held[name] = true
		}
	}
	return held
}
