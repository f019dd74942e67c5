// Package remote is what the stores of brokers outside of the mesh have in
// common: which messages are live and where each was delivered, copies that are
// confirmed before their original is settled, what is remembered of what was
// settled, and the notes in the lane's ledger. A broker adds a Side: how a
// message is written, delivered and settled there.
package remote

import (
	"context"
	"errors"
	"time"
)

// What may become of a message that is written, besides being taken.
var (
	// ErrRefused: the broker does not take it.
	ErrRefused = errors.New("the broker refused it")
	// ErrNowhere: no queue took it. It is written once more when they have been made
	// anew: somebody has deleted them.
	ErrNowhere = errors.New("no queue of the broker's took it")
	// ErrUnknown: nobody knows whether the broker has it.
	ErrUnknown = errors.New("the broker did not confirm it before the connection was lost")
	// ErrNotWritten: the broker does not have it.
	ErrNotWritten = errors.New("the connection was lost before it was written")
)

// ErrElsewhere is what Holding.EstablishHolding answers if a message had better wait
// for another delay: what is there is not the mesh's.
var ErrElsewhere = errors.New("where it was to wait is not the mesh's")

// Sleep says whether the time has passed before ctx ended.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
