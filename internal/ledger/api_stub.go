package ledger

// Signatures only, so that the services compile; the ledger's own files replace this one.

import (
	"context"
	"errors"
	"iter"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

type Bodies struct{}

func NewBodies(limit int64) *Bodies { panic("stub") }

var ErrStale = errors.New("stale")

type DamageError struct{ Ledger, What string }

func (e *DamageError) Error() string { return e.What }

// Dedup is the 128-bit hash of (queue or topic, publisher's id).
type Dedup [16]byte

func DedupOf(queue, id string) Dedup { panic("stub") }

type Running[E any] struct{}

func Open[E any](ctx context.Context, o Options, owner Owner[E]) (*Running[E], error) { panic("stub") }
func (r *Running[E]) Send(e E) bool                                                   { panic("stub") }
func (r *Running[E]) Stop(ctx context.Context) error                                  { panic("stub") }
func (r *Running[E]) Done() <-chan struct{}                                           { panic("stub") }
func (r *Running[E]) Err() error                                                      { panic("stub") }
func (r *Running[E]) Epoch() uint64                                                   { panic("stub") }
func (r *Running[E]) Backlog() int                                                    { panic("stub") }

type Ledger struct{}

func (l *Ledger) Accept(m *Message, metas []Meta, dedup *Dedup, tag any) error { panic("stub") }
func (l *Ledger) Restate(e *Entry, meta Meta, tag any) bool                    { panic("stub") }
func (l *Ledger) Decide(e *Entry, dest string, meta Meta, tag any) bool        { panic("stub") }
func (l *Ledger) Settle(e *Entry, tag any) bool                                { panic("stub") }
func (l *Ledger) Count(queue string, c Counter, n uint64)                      { panic("stub") }
func (l *Ledger) Meta(e *Entry) Meta                                           { panic("stub") }
func (l *Ledger) Note(key string) []byte                                       { panic("stub") }
func (l *Ledger) PutNote(key string, value []byte, tag any)                    { panic("stub") }
func (l *Ledger) Notes() iter.Seq2[string, []byte]                             { panic("stub") }
func (l *Ledger) Message(e *Entry) *Message                                    { panic("stub") }
func (l *Ledger) Load(entries ...*Entry)                                       { panic("stub") }
func (l *Ledger) Entries() iter.Seq[*Entry]                                    { panic("stub") }
func (l *Ledger) Entry(k Key) *Entry                                           { panic("stub") }
func (l *Ledger) Queues() iter.Seq[*Queue]                                     { panic("stub") }
func (l *Ledger) Queue(name string) *Queue                                     { panic("stub") }
func (l *Ledger) ForgetQueue(name string)                                      { panic("stub") }
func (l *Ledger) Epoch() uint64                                                { panic("stub") }
func (l *Ledger) Name() string                                                 { panic("stub") }
func (l *Ledger) Secret() [16]byte                                             { panic("stub") }
func (l *Ledger) Live() (messages, bytes int64)                                { panic("stub") }
func (c Counter) String() string                                               { panic("stub") }

var _ = protocol.Version
