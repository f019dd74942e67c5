package ledger

import (
	"context"
	"errors"
)

// loaded is what Owner.Loaded is called with.
type loaded struct {
	entry   *Entry
	message *Message
	meta    Meta
	err     error

	from  want // where the meta was read
	tries int
}

// loadTries is how often an entry is looked for before it is called lost. It
// is found at once unless it is written forward again and again meanwhile.
const loadTries = 8

// Load reads messages that are not in memory, and entries' whole meta.
// Owner.Loaded is called for each, later: in this turn for what is in memory.
// Neighbours in the log are read together, so it pays to ask for many.
func (l *Ledger) Load(entries ...*Entry) {
	list := make([]*loaded, len(entries))
	for i, e := range entries {
		list[i] = &loaded{entry: e}
	}
	l.load(list)
}

func (l *Ledger) load(list []*loaded) {
	var reading []*loaded
	var wants []want
	for _, x := range list {
		e := x.entry
		switch {
		case e.flags.is(gone):
			l.loads = append(l.loads, loaded{entry: e})
		case e.body != nil && e.flags.is(bare):
			l.loads = append(l.loads, loaded{entry: e, message: e.body.message, meta: l.Meta(e)})
		default:
			n := len(reading)
			x.from = e.wantMeta(n)
			if wants = append(wants, x.from); e.stated != nil {
				wants = append(wants, e.wantMessage(n))
			}
			reading = append(reading, x)
		}
	}
	if len(reading) > 0 {
		l.read(reading, wants)
	}
}

func (l *Ledger) read(list []*loaded, wants []want) {
	runs := l.runs(wants)
	l.env.spawn(func(ctx context.Context) func() {
		l.fetcher.fetch(ctx, wants, runs,
			func(w want, c content) error { return list[w.entry].fill(w, c) },
			func(w want, err error) { list[w.entry].err = err })
		return func() { l.wasRead(list) }
	})
}

// fill takes what a record says.
func (x *loaded) fill(w want, c content) (err error) {
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
func (l *Ledger) wasRead(list []*loaded) {
	if l.closed {
		return
	}
	var again []*loaded
	for _, x := range list {
		e := x.entry
		if !e.flags.is(gone) && (errors.Is(x.err, errMoved) || e.wantMeta(x.from.entry) != x.from) && x.tries < loadTries {
			again = append(again, &loaded{entry: e, tries: x.tries + 1})
			continue
		}
		l.loads = append(l.loads, l.result(x))
	}
	if len(again) > 0 {
		l.load(again)
	}
}

func (l *Ledger) result(x *loaded) loaded {
	e := x.entry
	if e.flags.is(gone) {
		return loaded{entry: e}
	}
	if errors.Is(x.err, errMoved) {
		x.err = &DamageError{
			Ledger: l.name, Seq: e.at.seq, First: uint64(e.Key), Last: uint64(e.Key),
			What: "the stream does not give out the frame it is in",
		}
	}
	if x.err == nil && e.body == nil {
		l.keepBody(x.message, e.Size, []*Entry{e})
	}
	return *x
}
