package ledger

// Uncommitted is what was counted for a queue and is not in its Counters yet: a
// queue that is not the ledger's own has no record to wait for.
func (l *Ledger) Uncommitted(queue string) (sum [NumCounters]uint64) {
	add := func(c *counters) {
		for i, n := range c {
			sum[i] += n
		}
	}
	if c := l.stage.counts[queue]; c != nil {
		add(c)
	}
	for _, b := range l.stage.batches {
		b.countsOf(queue, add)
	}
	if l.flight != nil && l.flight.batch != nil {
		l.flight.batch.countsOf(queue, add)
	}
	return sum
}

// countsOf finds what a batch counts for a queue: in its records once it is
// sealed.
func (b *batch) countsOf(queue string, found func(*counters)) {
	if !b.sealed {
		for i := range b.tallies {
			if b.tallies[i].queue == queue {
				found(&b.tallies[i].counts)
			}
		}
		return
	}
	for i := range b.records {
		if r := &b.records[i]; r.kind == kindCounts && r.name == queue {
			found(r.counts)
		}
	}
}
