package dlq

import (
	"iter"
	"slices"

	"github.com/waybill-mq/waybill/internal/books"
	"github.com/waybill-mq/waybill/internal/closing"
	"github.com/waybill-mq/waybill/internal/ledger"
)

var askClose = books.CloseQuestion[*drawer]()

// Tombs are the closed executions the drawer knows of.
func (d *drawer) Tombs() *closing.Closed { return &d.closed }

// Purge drops the dead letters of an execution.
func (d *drawer) Purge(execution string) {
	for q := range d.ledger.Queues() {
		if closing.ExecutionOf(q.Name) != execution {
			continue
		}
		for _, l := range slices.Clone(queueSlot(q).letters.letters) {
			if !l.gone {
				d.remove(l)
				d.discard(l.entry, nil)
			}
		}
	}
}

// Known: the drawer keeps nothing of a queue that the ledger does not know.
func (d *drawer) Known() iter.Seq[string] { return func(func(string) bool) {} }

// Forget gives a queue up: what the drawer keeps goes with the ledger's.
func (d *drawer) Forget(string) bool { return true }

// discard ends a letter for good.
func (d *drawer) discard(e *ledger.Entry, tag any) bool {
	if !d.ledger.Settle(e, ledger.Discarded, tag) {
		return false
	}
	d.leaving[e.ID]++
	return true
}
