package remote

import (
	"context"
	"time"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker"
)

// Reading takes the dead letters that were in their place when it began, the oldest
// first. Those that it does not settle go back in its end.
type Reading interface {
	// Next is the next letter; nil: there is none any more.
	Next(ctx context.Context) (*Delivery, error)
	// Redrive writes messages to their queue, and returns when the broker has them all.
	Redrive(ctx context.Context, all []*Writing) error
	// Settle settles letters.
	Settle(all []*Delivery) error
}

var everyone protocol.MessageID

// Browse reads the oldest letters of a queue, or of all of them the one with an id.
// Place is what the broker calls where they are.
func Browse(ctx context.Context, r Reading, queue, place string, most int, id protocol.MessageID) (letters []broker.Letter, err error) {
	for id != everyone || len(letters) < most {
		d, err := r.Next(ctx)
		if err != nil || d == nil {
			return letters, err
		}
		if id != everyone && d.Message.ID != id {
			continue
		}
		d.Meta.Queue = queue
		letters = append(letters, broker.Letter{Message: d.Message, Meta: d.Meta, Place: place})
		if id != everyone {
			break
		}
	}
	return letters, nil
}

// ActOnce is how many letters are on their way at once.
const ActOnce = 256

// Act redrives or discards letters, and says how many. Each that is redriven is written
// to its queue, confirmed, and only then settled.
func Act(ctx context.Context, r Reading, a broker.Action) (acted int64, err error) {
	for {
		some, err := meant(ctx, r, a.ID)
		if err == nil && a.Redrive && len(some) > 0 {
			err = r.Redrive(ctx, anew(some, a.By))
		}
		if err == nil && len(some) > 0 {
			err = r.Settle(some)
		}
		if err != nil {
			return acted, err
		}
		acted += int64(len(some))
		if a.ID != everyone || len(some) < ActOnce {
			return acted, nil
		}
	}
}

// meant are the next letters, or the one with an id.
func meant(ctx context.Context, r Reading, id protocol.MessageID) (some []*Delivery, err error) {
	most := ActOnce
	if id != everyone {
		most = 1
	}
	for len(some) < most {
		d, err := r.Next(ctx)
		if err != nil || d == nil {
			return some, err
		}
		if id == everyone || d.Message.ID == id {
			some = append(some, d)
		}
	}
	return some, nil
}

// anew are letters as they begin anew.
func anew(some []*Delivery, by string) []*Writing {
	all := make([]*Writing, len(some))
	for i, d := range some {
		meta := broker.Meta{Generation: d.Meta.Generation + 1, Attempt: 1, Spans: d.Meta.Spans}
		meta.Tell(ledger.Event{Kind: ledger.Redrove, At: time.Now().UnixNano(), Generation: meta.Generation, Attempt: 1, By: by})
		all[i] = &Writing{Kind: Fresh, Message: d.Message, Meta: &meta}
	}
	return all
}

// Confirmed waits for as many answers of a broker's, and returns the first fault.
func Confirmed(ctx context.Context, n int, said <-chan error) error {
	for range n {
		select {
		case err := <-said:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
