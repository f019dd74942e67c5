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
	// ErrUnknown: nobody knows whether the broker has it.
	ErrUnknown = errors.New("the connection was lost before the broker confirmed it")
	// ErrNotWritten: the broker does not have it.
	ErrNotWritten = errors.New("the connection was lost before it was written")
)

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
