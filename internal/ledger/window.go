package ledger

import "slices"

// MaxOutstanding is how far the handovers of one ledger to another may run
// ahead of the oldest that is not done.
const MaxOutstanding = 65536

// sender is what a ledger keeps of its handovers to another: the last number
// given.
type sender struct {
	dest string
	last uint64
	at   *frame
}

func (s *sender) pinned() *frame { return s.at }

func (s *sender) record() record {
	return record{kind: kindSender, name: s.dest, number: s.last}
}

// receiver is what a ledger keeps of another's handovers to it: every number
// below low has been seen or will never come, and so has every one in seen.
type receiver struct {
	sender string
	low    uint64
	seen   map[uint64]struct{}
	at     *frame
}

func (w *receiver) pinned() *frame { return w.at }

func (w *receiver) record() record {
	r := record{kind: kindReceiver, name: w.sender, number: w.low}
	for n := range w.seen {
		r.keys = append(r.keys, Key(n))
	}
	slices.Sort(r.keys)
	return r
}

func (w *receiver) has(number uint64) bool {
	_, seen := w.seen[number]
	return number < w.low || seen
}

// add takes a number and what its sender said of those below.
func (w *receiver) add(number, watermark uint64) {
	if number >= w.low {
		w.seen[number] = struct{}{}
	}
	if watermark > w.low {
		for n := range w.seen {
			if n < watermark {
				delete(w.seen, n)
			}
		}
		w.low = watermark
	}
	for {
		if _, ok := w.seen[w.low]; !ok {
			return
		}
		delete(w.seen, w.low)
		w.low++
	}
}

// note is a key and value of the owner's.
type note struct {
	key   string
	value []byte
	at    *frame
}

func (n *note) pinned() *frame { return n.at }

func (n *note) record() record { return record{kind: KindNote, name: n.key, value: n.value} }

func (q *Queue) pinned() *frame { return q.counted }

func (q *Queue) record() record {
	c := counters(q.Counters)
	return record{kind: kindCounters, name: q.Name, counts: &c}
}

// Secret is a ledger's own random number, made with its first record. It is
// for tokens that others cannot guess.
type Secret [16]byte

type secret struct {
	value Secret
	at    *frame
}

func (s *secret) pinned() *frame { return s.at }

func (s *secret) record() record { return record{kind: kindSecret, value: s.value[:]} }
