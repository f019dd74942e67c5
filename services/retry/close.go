package retry

import (
	"iter"
	"math"

	"github.com/waybill-mq/waybill/internal/books"
	"github.com/waybill-mq/waybill/internal/closing"
	"github.com/waybill-mq/waybill/internal/ledger"
)

var askClose = books.CloseQuestion[*shelf]()

// Tombs are the closed executions the shelf knows of.
func (s *shelf) Tombs() *closing.Closed { return &s.closed }

// Purge drops what waits of an execution.
func (s *shelf) Purge(execution string) {
	for more := true; more; {
		var taken []*ledger.Entry
		taken, more = s.takeOff(books.Step{Execution: execution, Until: math.MaxUint64, Limit: stepSize})
		for _, e := range taken {
			s.discard(e, nil)
		}
	}
}

// Known: the shelf keeps nothing of a queue that the ledger does not know.
func (s *shelf) Known() iter.Seq[string] { return func(func(string) bool) {} }

// Forget gives a queue up: what the shelf keeps goes with the ledger's.
func (s *shelf) Forget(string) bool { return true }
