package dlq

import (
	"bytes"
	"cmp"
	"slices"
	"sort"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// letter is a dead letter as the index has it. What orders it is kept here and
// not looked up: an entry is the ledger's, and may be another's once it is
// gone.
type letter struct {
	entry    *ledger.Entry
	failedAt int64 // the last failure, ns since the epoch
	id       protocol.MessageID
	twin     *letter // the next one of the same message: of another queue, or generation
	gone     bool    // redriven or discarded
}

func compareLetters(a, b *letter) int {
	return cmp.Or(cmp.Compare(a.failedAt, b.failedAt), bytes.Compare(a.id[:], b.id[:]))
}

// order is a row of letters, those that failed first in front. What is gone
// stays in the row until it is half of it, or somebody counts places.
type order struct {
	letters []*letter
	gone    int
}

// add puts a letter in its place, nearly always the last.
func (o *order) add(l *letter) {
	last := len(o.letters) - 1
	if last < 0 || compareLetters(o.letters[last], l) <= 0 {
		o.letters = append(o.letters, l)
		return
	}
	place, _ := slices.BinarySearchFunc(o.letters, l, compareLetters)
	o.letters = slices.Insert(o.letters, place, l)
}

// lost counts one letter of the row that has just gone.
func (o *order) lost() {
	o.gone++
	if 2*o.gone > len(o.letters) {
		o.tidy()
	}
}

// tidy takes out what is gone.
func (o *order) tidy() {
	if o.gone == 0 {
		return
	}
	o.letters = slices.DeleteFunc(o.letters, func(l *letter) bool { return l.gone })
	o.gone = 0
	if cap(o.letters) > 4*len(o.letters)+1024 {
		o.letters = slices.Clone(o.letters)
	}
}

// total is the number of letters that are there.
func (o *order) total() int { return len(o.letters) - o.gone }

// since is how many letters failed before from, and the row of those that
// did not.
func (o *order) since(from int64) (before int, rest []*letter) {
	o.tidy()
	before = sort.Search(len(o.letters), func(i int) bool { return o.letters[i].failedAt >= from })
	return before, o.letters[before:]
}

// first are the first letters that were there when until was the newest key,
// at most limit, without those that stay.
func (o *order) first(until ledger.Key, limit int, stays func(l *letter) bool) (found []*letter, more bool) {
	for _, l := range o.letters {
		if l.gone || l.entry.Key > until || stays(l) {
			continue
		}
		if len(found) == limit {
			return found, true
		}
		found = append(found, l)
	}
	return found, false
}
