package books

import (
	"context"
	"errors"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/internal/mesh"
)

// served is an open ledger with endpoints of its own.
type served[O Owner[O]] struct {
	*Book[O]
	endpoints []*mesh.Subscription
}

// serve adds a ledger's endpoints. They end with the
// ledger, also when it closes itself: its next owner has them then, and a
// question must not be answered by both.
func (h *Host[O]) serve(ctx context.Context, book *Book[O]) (ledger.Handle, error) {
	endpoints, err := h.endpoints(book)
	s := &served[O]{Book: book, endpoints: endpoints}
	if err != nil {
		return nil, errors.Join(err, s.Stop(ctx))
	}
	h.served.Go(func() {
		<-book.Done()
		ctx, cancel := context.WithTimeout(context.Background(), giveUpAfter)
		defer cancel()
		if err := s.drain(ctx); err != nil {
			h.o.Logger.Warn("the endpoints of a closed ledger did not end in time", "ledger", book.Name(), "error", err)
		}
	})
	return s, nil
}

func (h *Host[O]) endpoints(book *Book[O]) ([]*mesh.Subscription, error) {
	audit, err := Serve(h, book, auditQuestion[O]())
	if err != nil || h.o.Serve == nil {
		return []*mesh.Subscription{audit}, err
	}
	own, err := h.o.Serve(book)
	return append(own, audit), err
}

// Subscriptions collects what a service serves for a ledger.
type Subscriptions struct {
	All  []*mesh.Subscription
	errs []error
}

// Add takes what Serve returned.
func (s *Subscriptions) Add(one *mesh.Subscription, err error) {
	if err != nil {
		s.errs = append(s.errs, err)
		return
	}
	s.All = append(s.All, one)
}

// Err is what could not be served.
func (s *Subscriptions) Err() error { return errors.Join(s.errs...) }

// Stop answers what has arrived, then closes the ledger.
func (s *served[O]) Stop(ctx context.Context) error {
	return errors.Join(s.drain(ctx), s.Book.Stop(ctx))
}

func (s *served[O]) drain(ctx context.Context) error {
	errs := make([]error, 0, len(s.endpoints))
	for _, e := range s.endpoints {
		errs = append(errs, e.Drain(ctx))
	}
	return errors.Join(errs...)
}
