package ledger

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// Worker is who ends entries. Two are the same if their addresses are.
type Worker struct {
	ID, Name string
}

// ender says who has ended an entry; the zero value that it is not known.
type ender struct {
	worker *Worker
	took   time.Duration
}

// enderBytes is more than what an ender takes beside its worker's texts.
const enderBytes = 16

// By says who has ended e, whose settlement was staged last, and how long that
// took: it is told with the story of e. It has no effect on an entry that ends
// otherwise.
func (l *Ledger) By(e *Entry, worker *Worker, took time.Duration) {
	k := len(l.stage.batches)
	if k == 0 || worker == nil {
		return
	}
	b := l.stage.batches[k-1]
	for i := range b.settled {
		s := &b.settled[i]
		if n := len(s.entries); n > 0 && s.entries[n-1] == e {
			s.enders[n-1] = ender{worker, took}
			b.tallied += enderBytes
			if n == 1 || s.enders[n-2].worker != worker {
				b.tallied += len(worker.ID) + len(worker.Name)
			}
			return
		}
	}
}

// endings are who ended the keys of a settle, as it is recorded: each worker is
// named once.
type endings struct {
	workers []Worker
	runs    []uint64 // pairs: of how many keys, and their worker's place from 1; 0: not known
	took    []uint64 // ms, by key; nil: all 0
}

// endsOf is nil if nothing is known.
func endsOf(enders []ender) *endings {
	e := &endings{}
	places := map[*Worker]uint64{nil: 0}
	timed := false
	for i, one := range enders {
		place, known := places[one.worker]
		if !known {
			e.workers = append(e.workers, *one.worker)
			place = uint64(len(e.workers))
			places[one.worker] = place
		}
		if i == 0 || enders[i-1].worker != one.worker {
			e.runs = append(e.runs, 0, place)
		}
		e.runs[len(e.runs)-2]++
		timed = timed || one.took >= time.Millisecond
	}
	if len(e.workers) == 0 {
		return nil
	}
	if timed {
		e.took = make([]uint64, len(enders))
		for i, one := range enders {
			e.took[i] = uint64(max(one.took, 0) / time.Millisecond)
		}
	}
	return e
}

// of says who ended key number i; the zero Worker if it is not known.
func (e *endings) of(i int) (w Worker, took time.Duration) {
	if e == nil {
		return w, 0
	}
	if i < len(e.took) {
		took = time.Duration(e.took[i]) * time.Millisecond
	}
	left := uint64(i)
	for runs := e.runs; len(runs) >= 2; runs = runs[2:] {
		if left >= runs[0] {
			left -= runs[0]
			continue
		}
		if place := runs[1]; place > 0 && place <= uint64(len(e.workers)) {
			w = e.workers[place-1]
		}
		return w, took
	}
	return w, took
}

func appendEndings(b []byte, e *endings) []byte {
	if e == nil {
		return b
	}
	for i := range e.workers {
		var start int
		b, start = open(b, 15)
		b = appendString(b, 1, e.workers[i].ID)
		b = appendString(b, 2, e.workers[i].Name)
		b = shut(b, start)
	}
	b = appendVarints(b, 16, e.runs)
	return appendVarints(b, 17, e.took)
}

func appendVarints(b []byte, num protowire.Number, numbers []uint64) []byte {
	if len(numbers) == 0 {
		return b
	}
	b, start := open(b, num)
	for _, n := range numbers {
		b = protowire.AppendVarint(b, n)
	}
	return shut(b, start)
}

// decode takes a field of its own.
func (e *endings) decode(f *fields) {
	switch f.num {
	case 15:
		var w Worker
		g := walk(f.slice())
		for g.next() {
			switch g.num {
			case 1:
				w.ID = string(g.slice())
			case 2:
				w.Name = string(g.slice())
			}
		}
		if g.err != nil {
			f.fail(g.err)
		}
		e.workers = append(e.workers, w)
	case 16:
		e.runs = f.uints(e.runs)
	case 17:
		e.took = f.uints(e.took)
	}
}
