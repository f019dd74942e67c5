package ledger

import (
	"maps"
	"slices"

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
	share := (len(ledgers) + len(t.Instances) - 1) / len(t.Instances)
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
