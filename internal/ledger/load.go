package ledger

import (
	"context"
	"errors"
)

// reading is an entry that is being read.
type reading struct {
	entry   *Entry
	message *Message
	meta    Meta
	err     error

	from  want // where the meta is read
	tries int
}

// loadTries is how often an entry is looked for before it is called lost. It
// is found at once unless it is written forward again and again meanwhile.
const loadTries = 8

// Load reads messages that are not in memory, and entries' whole meta.
// Owner.Loaded is called for each, later: in this turn for what is in memory.
// All that is asked for in a turn is read together, neighbours in the log at
// once.
func (l *Ledger) Load(entries ...*Entry) {
	for _, e := range entries {
		l.asked = append(l.asked, &reading{entry: e})
	}
}

// load reports what is in memory and reads the rest.
func (l *Ledger) load(asked []*reading) {
	var list []*reading
	var wants []want
	for _, x := range asked {
		e := x.entry
		switch {
		case e.flags.is(gone):
			l.owner.Loaded(e, nil, Meta{}, nil)
		case e.body != nil && e.flags.is(bare):
			l.owner.Loaded(e, e.body.message, l.Meta(e), nil)
		default:
			n := len(list)
			x.from = e.wantMeta(n)
			if wants = append(wants, x.from); e.stated != nil {
				wants = append(wants, e.wantMessage(n))
			}
			list = append(list, x)
		}
	}
	if len(list) > 0 {
		l.read(list, wants)
	}
}

func (l *Ledger) read(list []*reading, wants []want) {
	runs := l.runs(wants)
	l.env.spawn(func(ctx context.Context) func() {
		l.fetcher.fetch(ctx, wants, runs,
			func(w want, c content) error { return list[w.entry].fill(w, c) },
			func(w want, err error) { list[w.entry].err = err })
		return func() { l.wasRead(list) }
	})
}

// fill takes what a record says.
func (x *reading) fill(w want, c content) (err error) {
	if c.message != nil && x.message == nil {
		if x.message, err = decodeMessage(c.message); err != nil {
			return err
		}
	}
	if w.place == x.from.place {
		x.meta, err = decodeMeta(c.meta, plain)
	}
	return err
}

// wasRead reports what was read, unless it has moved or changed meanwhile:
// then it is read again.
func (l *Ledger) wasRead(list []*reading) {
	var lost []*reading
	for _, x := range list {
		e := x.entry
		switch {
		case l.closed:
			return
		case e.flags.is(gone):
			l.owner.Loaded(e, nil, Meta{}, nil)
		case x.tries < loadTries && (errors.Is(x.err, errMoved) || e.wantMeta(x.from.entry) != x.from):
			l.asked = append(l.asked, &reading{entry: e, tries: x.tries + 1})
		case errors.Is(x.err, errMoved):
			lost = append(lost, x)
		case x.err != nil:
			l.owner.Loaded(e, nil, Meta{}, x.err)
		default:
			if e.body == nil {
				l.keepBody(x.message, e.Size, messageOverhead, []*Entry{e})
			}
			l.owner.Loaded(e, x.message, x.meta, nil)
		}
	}
	if len(lost) > 0 {
		l.notFound(lost)
	}
}

// notFound sees to entries whose frames are not in the log. If another owner
// has taken over, it has purged them; else they are lost.
func (l *Ledger) notFound(list []*reading) {
	l.env.spawn(func(ctx context.Context) func() {
		newest, err := l.store.newest(ctx)
		return func() {
			if l.closed {
				return
			}
			if err == nil && l.isStale(newest) {
				l.close(ErrStale)
				return
			}
			for _, x := range list {
				e := x.entry
				if e.flags.is(gone) {
					l.owner.Loaded(e, nil, Meta{}, nil)
					continue
				}
				l.owner.Loaded(e, nil, Meta{}, &DamageError{
					Ledger: l.name, Seq: e.at.seq, First: uint64(e.Key), Last: uint64(e.Key),
					What: "the stream does not give out the frame it is in",
				})
			}
		}
	})
}

func (l *Ledger) isStale(newest stored) bool {
	h, _, err := decodeFrame(newest.data)
	return err == nil && h.epoch > l.epoch
}
