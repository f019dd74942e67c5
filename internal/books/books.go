// Package books is what the services share that hold messages in ledgers of
// their own: the set of ledgers an instance has open, how others of its
// goroutines ask something of a ledger's owner, and what every such service
// tells of its ledgers: their queues, counters and load.
package books

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// Call is something to do in a ledger's goroutine, where alone its owner may
// be touched. It is the event of the owners of this package.
type Call[O any] func(owner O)

// Owner of a ledger in a set of Books.
type Owner[O any] interface {
	ledger.Owner[Call[O]]
	// Ledger is what Opened brought.
	Ledger() *ledger.Ledger
	// Moving is the number of the queue's messages that are decided and on
	// their way to another ledger.
	Moving(q *ledger.Queue) int64
}

// Books are the open ledgers of an instance. The zero value is ready; it is
// safe for concurrent use.
type Books[O Owner[O]] struct {
	mu   sync.RWMutex
	open map[string]*Book[O]
}

// Book is one open ledger of a set.
type Book[O Owner[O]] struct {
	*ledger.Running[Call[O]]

	books *Books[O]
}

// Open takes a ledger over for owner and adds it to the set.
func (b *Books[O]) Open(ctx context.Context, o ledger.Options, owner O) (*Book[O], error) {
	running, err := ledger.Open[Call[O]](ctx, o, owner)
	if err != nil {
		return nil, err
	}
	book := &Book[O]{Running: running, books: b}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open == nil {
		b.open = map[string]*Book[O]{}
	}
	b.open[o.Name] = book
	return book, nil
}

// Get is the ledger with that name, nil if it is not open here.
func (b *Books[O]) Get(name string) *Book[O] {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if book := b.open[name]; book != nil && !book.closed() {
		return book
	}
	return nil
}

// All are the ledgers that are open now, in order of name.
func (b *Books[O]) All() []*Book[O] {
	b.mu.RLock()
	defer b.mu.RUnlock()
	all := make([]*Book[O], 0, len(b.open))
	for _, name := range slices.Sorted(maps.Keys(b.open)) {
		if book := b.open[name]; !book.closed() {
			all = append(all, book)
		}
	}
	return all
}

// Wake gives every owner a turn.
func (b *Books[O]) Wake() {
	for _, book := range b.All() {
		book.Send(func(O) {})
	}
}

// Stop commits what is staged, closes the ledger and takes it out of the set.
func (k *Book[O]) Stop(ctx context.Context) error {
	k.books.mu.Lock()
	if k.books.open[k.Name()] == k {
		delete(k.books.open, k.Name())
	}
	k.books.mu.Unlock()
	return k.Running.Stop(ctx)
}

func (k *Book[O]) closed() bool {
	select {
	case <-k.Done():
		return true
	default:
		return false
	}
}

// Ask has f look something up in the ledger's goroutine. It is UNAVAILABLE when
// the ledger is closed.
func Ask[R any, O Owner[O]](ctx context.Context, k *Book[O], f func(owner O) R) (R, error) {
	return Await(ctx, k, func(owner O, answer func(R)) { answer(f(owner)) })
}

// Await has f do something in the ledger's goroutine that is answered there
// later, once. It is UNAVAILABLE if f certainly did not run; TIMEOUT if the
// ledger closed, or ctx ended, after f was sent and before the answer came.
func Await[R any, O Owner[O]](ctx context.Context, k *Book[O], f func(owner O, answer func(R))) (R, error) {
	var none R
	answers := make(chan R, 1)
	if !k.Send(func(owner O) { f(owner, func(r R) { answers <- r }) }) {
		return none, protocol.Errorf(protocol.CodeUnavailable, "%s is being closed here: ask again, its next owner answers", k.Name())
	}
	select {
	case r := <-answers:
		return r, nil
	case <-ctx.Done():
		return none, ended(ctx, k.Name())
	case <-k.Done():
	}
	select {
	case r := <-answers:
		return r, nil
	default:
		return none, protocol.Errorf(protocol.CodeTimeout, "%s closed before it answered: look at what happened, then ask again", k.Name())
	}
}

func ended(ctx context.Context, name string) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return protocol.Errorf(protocol.CodeTimeout, "%s did not answer in time", name)
	}
	return ctx.Err()
}
