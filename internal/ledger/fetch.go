package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
)

// place is where a record lies: its frame's sequence and its index there. It
// changes when the record is written forward, so nothing but reading may use
// it.
type place struct {
	seq   uint64
	index uint32
}

// want is one entry's part of a record that is to be read.
type want struct {
	place
	nth   uint16 // of the record's recipients
	entry int    // the caller's number of it
}

// wantMessage is where the entry's message lies, and its meta unless it was
// restated since.
func (e *Entry) wantMessage(i int) want { return want{place{e.at.seq, e.index}, e.nth, i} }

// wantMeta is where the entry's whole meta lies.
func (e *Entry) wantMeta(i int) want {
	if e.stated != nil {
		return want{place{e.stated.seq, e.statedIndex}, 0, i}
	}
	return e.wantMessage(i)
}

// run is a piece of the log to be read at once: n of the ledger's frames.
type run struct {
	from uint64
	n    int
}

// errMoved says that a frame is not there any more: what was live in it has
// been written forward.
var errMoved = errors.New("ledger: the frame is no longer in the log")

// maxRun bounds the frames that are read at once.
const maxRun = 64

// runs sorts what is wanted and says how to read it: neighbouring frames
// together, also across a few that are not needed.
func (s *state) runs(wants []want) []run {
	slices.SortFunc(wants, func(a, b want) int {
		return cmp.Or(cmp.Compare(a.seq, b.seq), cmp.Compare(a.index, b.index))
	})
	var list []run
	for _, w := range wants {
		if len(list) > 0 {
			last := &list[len(list)-1]
			if n := s.frames.span(last.from, w.seq); n <= last.n+3 && n <= maxRun {
				last.n = max(last.n, n)
				continue
			}
		}
		list = append(list, run{w.seq, 1})
	}
	return list
}

// fetcher reads records by place.
type fetcher struct {
	store  store
	ledger string
	bodies *Bodies
}

// fetch calls f with what was wanted, or fail with why not: a *DamageError,
// errMoved, or the context's error. What f is given is valid during the call
// only.
func (t *fetcher) fetch(ctx context.Context, wants []want, runs []run, f func(want, content) error, fail func(want, error)) {
	for i, r := range runs {
		n := len(wants)
		if i+1 < len(runs) {
			n = slices.IndexFunc(wants, func(w want) bool { return w.seq >= runs[i+1].from })
		}
		t.run(ctx, r, wants[:n], f, fail)
		wants = wants[n:]
	}
}

func (t *fetcher) run(ctx context.Context, r run, wants []want, f func(want, content) error, fail func(want, error)) {
	take := func(s stored) bool {
		n := 0
		for n < len(wants) && wants[n].seq == s.seq {
			n++
		}
		if n > 0 {
			t.bodies.putFrame(frameKey{t.ledger, s.seq}, s.data)
			t.pick(s, wants[:n], f, fail)
			wants = wants[n:]
		}
		return len(wants) > 0
	}
	if data := t.bodies.frame(frameKey{t.ledger, r.from}); r.n == 1 && data != nil {
		take(stored{r.from, data})
		return
	}
	err := t.store.read(ctx, r.from, r.n, take)
	for _, w := range wants {
		fail(w, cmp.Or(err, errMoved))
	}
}

// pick takes what is wanted from one frame.
func (t *fetcher) pick(s stored, wants []want, f func(want, content) error, fail func(want, error)) {
	_, records, err := decodeFrame(s.data)
	if err == nil {
		err = eachRecord(records, func(i uint32, raw []byte) error {
			for len(wants) > 0 && wants[0].index == i {
				c, err := contentOf(raw, wants[0].nth)
				if err == nil {
					err = f(wants[0], c)
				}
				if err != nil {
					return err
				}
				wants = wants[1:]
			}
			return nil
		})
	}
	if err == nil && len(wants) > 0 {
		err = fmt.Errorf("it has no record %d", wants[0].index)
	}
	for _, w := range wants {
		fail(w, &DamageError{Ledger: t.ledger, Seq: s.seq, What: err.Error()})
	}
}

// content is what a record says of one entry.
type content struct {
	message []byte // encoded; nil in a restate or decide
	meta    []byte // encoded
}

func contentOf(raw []byte, nth uint16) (c content, err error) {
	n := uint16(0)
	f := walk(raw)
	for f.next() {
		switch f.num {
		case 2:
			c.message = f.slice()
		case 3:
			if n == nth {
				c.meta, err = metaOf(f.slice())
			}
			n++
		case 7:
			c.meta = f.slice()
		}
	}
	return c, cmp.Or(err, f.err)
}

func metaOf(recipient []byte) (meta []byte, err error) {
	f := walk(recipient)
	for f.next() {
		if f.num == 2 {
			meta = f.slice()
		}
	}
	return meta, f.err
}
