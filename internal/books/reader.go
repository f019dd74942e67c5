package books

import "github.com/waybill-mq/waybill/internal/ledger"

// Reader reads messages from the log for people who look at them. It is used in
// the ledger's goroutine; the owner passes on what Owner.Loaded is told.
type Reader struct {
	waiting map[ledger.Key][]Read
}

// Read is told what was read of an entry; m is nil if it is gone, or with err.
type Read func(e *ledger.Entry, m *ledger.Message, meta ledger.Meta, err error)

// Load reads entries, together: neighbours in the log are read at once.
func (r *Reader) Load(l *ledger.Ledger, entries []*ledger.Entry, got Read) {
	if r.waiting == nil {
		r.waiting = map[ledger.Key][]Read{}
	}
	var ask []*ledger.Entry
	for _, e := range entries {
		if len(r.waiting[e.Key]) == 0 {
			ask = append(ask, e)
		}
		r.waiting[e.Key] = append(r.waiting[e.Key], got)
	}
	l.Load(ask...)
}

// Loaded gives what was read to all who wait for it.
func (r *Reader) Loaded(e *ledger.Entry, m *ledger.Message, meta ledger.Meta, err error) {
	waiting := r.waiting[e.Key]
	delete(r.waiting, e.Key)
	for _, got := range waiting {
		got(e, m, meta, err)
	}
}
