package dlq

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/waybill-mq/waybill/internal/books"
	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

const (
	askTimeout = 30 * time.Second
	// A ledger that loses its owner has another within a few seconds; until
	// then nobody answers, and asking again has no second effect.
	askAgain = 100 * time.Millisecond
	askTries = 100
)

// ask asks the owner of a ledger, which may be this instance.
func ask[Q, R any](ctx context.Context, s *Service, name string, what question[Q, R], q Q) (r R, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	again := time.NewTicker(askAgain)
	defer again.Stop()
	for range askTries {
		if book := s.host.Books.Get(name); book != nil {
			r, err = what.reply(ctx, book, q)
		} else {
			r, err = mesh.Request[R](ctx, s.host.Conn, subjectOf(name, what.verb), q)
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
	return r, protocol.Errorf(protocol.CodeUnavailable, "no dlq service owns the ledger %s now: is one missing?", name)
}

// askAll asks the owners of all ledgers, and has the answers in their order.
func askAll[Q, R any](ctx context.Context, s *Service, what question[Q, R], q Q) ([]R, error) {
	answers := make([]R, s.host.Total())
	group, ctx := errgroup.WithContext(ctx)
	for i := range answers {
		group.Go(func() (err error) {
			answers[i], err = ask(ctx, s, name(i), what, q)
			return err
		})
	}
	return answers, group.Wait()
}

func subjectOf(name, verb string) string { return protocol.SubjectDeadLedger + name + "." + verb }

// serve answers what others ask of a ledger that is open here.
func serve[Q, R any](s *Service, book *books.Book[*drawer], what question[Q, R]) (*mesh.Subscription, error) {
	return mesh.Serve(s.host.Mesh, "ledger-"+what.verb, subjectOf(book.Name(), what.verb), func(ctx context.Context, q Q) (R, error) {
		return what.reply(ctx, book, q)
	})
}
