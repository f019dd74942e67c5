package ledger

import (
	"errors"
	"fmt"
)

// ErrStale ends a ledger that another owner has taken over.
var ErrStale = errors.New("ledger: another owner has taken over")

// errStopped is the cause of a ledger's own end.
var errStopped = errors.New("ledger: stopped")

// DamageError says that a ledger cannot be opened without losing something:
// which, where in its stream, which of its records, and what is wrong there.
// Nothing in the stream was changed. Options.AcceptLoss opens it without them.
type DamageError struct {
	Ledger string
	Seq    uint64 // in the stream; 0: at no one place
	First  uint64 // the records that are missing or cannot be read; 0: not known
	Last   uint64
	What   string
}

func (e *DamageError) Error() string {
	s := "ledger " + e.Ledger + " is damaged"
	if e.Seq > 0 {
		s += fmt.Sprintf(" at stream sequence %d", e.Seq)
	}
	if e.First > 0 {
		s += fmt.Sprintf(", records %d to %d", e.First, e.Last)
	}
	return s + ": " + e.What + "; restore the stream from a backup, or accept the loss and open the ledger without it"
}
