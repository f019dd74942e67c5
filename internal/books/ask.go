package books

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// Question is something an instance asks of the owner of a ledger, which may be
// another instance, on HostOptions.Ledger + <ledger> + "." + Verb. Like all of
// the wire, Q and R grow by added fields only.
type Question[O Owner[O], Q, R any] struct {
	Verb  string
	Reply func(ctx context.Context, book *Book[O], q Q) (R, error)
}

const (
	askTimeout = 30 * time.Second
	// A ledger that loses its owner has another within a few seconds; until
	// then nobody answers, and asking again has no second effect.
	askAgain = 100 * time.Millisecond
	askTries = 100
)

// Put puts a question to the owner of a ledger, and again while it has none.
// It is UNAVAILABLE if nobody owns the ledger for long, TIMEOUT if its owner
// does not answer.
func Put[O Owner[O], Q, R any](ctx context.Context, h *Host[O], name string, what Question[O, Q, R], q Q) (r R, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	again := time.NewTicker(askAgain)
	defer again.Stop()
	for range askTries {
		if book := h.Books.Get(name); book != nil {
			r, err = what.Reply(ctx, book, q)
		} else {
			r, err = mesh.Request[R](ctx, h.Conn, h.subjectOf(name, what.Verb), q)
		}
		if protocol.CodeOf(err) != protocol.CodeUnavailable {
			return r, err
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return r, err
		}
	}
	return r, protocol.Errorf(protocol.CodeUnavailable, "no %s service owns the ledger %s now: is one missing?", h.o.Service, name)
}

// PutToAll puts a question to the owners of all ledgers, and has the answers in
// the ledgers' order.
func PutToAll[O Owner[O], Q, R any](ctx context.Context, h *Host[O], what Question[O, Q, R], q Q) ([]R, error) {
	answers := make([]R, h.Total())
	group, ctx := errgroup.WithContext(ctx)
	for i := range answers {
		group.Go(func() (err error) {
			answers[i], err = Put(ctx, h, h.Name(i), what, q)
			return err
		})
	}
	return answers, group.Wait()
}

// Serve answers a question of other instances to a ledger that is open here.
func Serve[O Owner[O], Q, R any](h *Host[O], book *Book[O], what Question[O, Q, R]) (*mesh.Subscription, error) {
	return mesh.Serve(h.Mesh, "ledger-"+what.Verb, h.subjectOf(book.Name(), what.Verb), func(ctx context.Context, q Q) (R, error) {
		return what.Reply(ctx, book, q)
	})
}

// Name is the i-th ledger of the service.
func (h *Host[O]) Name(i int) string { return ledger.Name(h.o.Service, i) }

func (h *Host[O]) subjectOf(name, verb string) string { return h.o.Ledger + name + "." + verb }
