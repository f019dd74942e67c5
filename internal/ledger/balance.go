package ledger

import (
	"maps"
	"slices"
)

// Whatever comes into a ledger is published or taken over from another, and is
// kept until it is settled or decided for another. Each of these is counted in
// the frame that makes it so: in every state that a log has, what came in equals
// what went out and what is there.

// Audit is a ledger at one place of its log: what its records amount to, and
// what is there, looked up one by one and not counted along.
type Audit struct {
	Seq       uint64 // the newest frame
	Queues    []QueueAudit
	Sending   []Handovers // to other ledgers: those given and not done
	Receiving []Handovers // from other ledgers: those that have come
}

// QueueAudit is a queue's part of an audit.
type QueueAudit struct {
	Name     string
	Counters [NumCounters]uint64
	Kept     int64 // entries that are the ledger's
	Moving   int64 // decided ones, that another ledger has already or will have
	// OnBroker: the counters are also of messages that are in no ledger. It is set
	// by the owner, who knows.
	OnBroker bool
}

// Handovers are numbers of handovers to or from one other ledger.
type Handovers struct {
	Ledger string
	// Below is where the numbers begin that Spans tell of: all below are done, or
	// have come. For a sender it is one more than the last it gave.
	Below uint64
	Spans []Span
}

// Span is a row of numbers, both ends included.
type Span struct{ First, Last uint64 }

// Audit takes the time to look at every entry.
func (l *Ledger) Audit() Audit {
	a := Audit{Seq: l.seq, Queues: make([]QueueAudit, 0, len(l.queues))}
	all := l.holdings()
	for name, q := range l.queues {
		h := all[q]
		a.Queues = append(a.Queues, QueueAudit{Name: name, Counters: q.Counters, Kept: h.kept, Moving: h.moving})
	}
	outstanding := map[string][]uint64{}
	for _, e := range l.entries {
		if e.Decided {
			outstanding[e.out.dest] = append(outstanding[e.out.dest], e.out.number)
		}
	}
	for dest, t := range l.senders {
		a.Sending = append(a.Sending, Handovers{Ledger: dest, Below: t.last + 1, Spans: spans(outstanding[dest])})
	}
	for sender, w := range l.receivers {
		a.Receiving = append(a.Receiving, Handovers{Ledger: sender, Below: w.low, Spans: spans(slices.Collect(maps.Keys(w.seen)))})
	}
	return a
}

// spans joins numbers that follow each other.
func spans(numbers []uint64) []Span {
	slices.Sort(numbers)
	var all []Span
	for _, n := range numbers {
		if k := len(all); k > 0 && n <= all[k-1].Last+1 {
			all[k-1].Last = n
			continue
		}
		all = append(all, Span{n, n})
	}
	return all
}

type holding struct{ kept, moving int64 }

func (s *state) holdings() map[*Queue]holding {
	all := map[*Queue]holding{}
	for _, e := range s.entries {
		h := all[e.Queue]
		if e.Decided {
			h.moving++
		} else {
			h.kept++
		}
		all[e.Queue] = h
	}
	return all
}

// In is what came into a queue, by its counters.
func In(c *[NumCounters]uint64) int64 { return int64(c[Published] + c[Taken]) }

// Out is what left it.
func Out(c *[NumCounters]uint64) int64 {
	return int64(c[Acknowledged] + c[Filtered] + c[Discarded] + c[Sent] + c[WrittenOff])
}

// writeOff balances the counters again, after a part of the log was given up
// with whatever it counted.
func (l *Ledger) writeOff() {
	holdings := l.holdings()
	for name, q := range l.queues {
		switch gap := In(&q.Counters) - Out(&q.Counters) - holdings[q].kept; {
		case gap > 0:
			l.Count(name, WrittenOff, uint64(gap))
		case gap < 0 && q.Counters[Taken] > 0 && q.Counters[Published] == 0:
			l.Count(name, Taken, uint64(-gap))
		case gap < 0:
			l.Count(name, Published, uint64(-gap))
		}
	}
}
