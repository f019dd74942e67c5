package ledger

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// snapshot writes a state so that equal states are equal texts. Where things
// lie in the log is not part of it.
func snapshot(s *state) string {
	var b strings.Builder
	fmt.Fprintf(&b, "epoch %d last %d time %d messages %d bytes %d secret %x\n", s.epoch, s.last, s.time, s.messages, s.bytes, s.secret.value)
	for _, e := range s.inOrder() {
		fmt.Fprintf(&b, "entry %d %s %s g%d a%d v%d i%d due %d first %d size %d group %x priority %d bare %v", e.Key, e.ID, e.Queue.Name,
			e.Generation, e.Attempt, e.Vanished, e.Incomplete, e.Due, e.FirstFailure, e.Size, e.Group, e.Priority, e.flags.is(bare))
		if e.Decided {
			fmt.Fprintf(&b, " to %s %d", e.out.dest, e.out.number)
		}
		fmt.Fprintf(&b, " extra %x story %x spans %v\n", s.extras[e.Key], s.stories[e.Key], s.traced[e.Key])
	}
	for _, name := range slices.Sorted(maps.Keys(s.queues)) {
		q := s.queues[name]
		if q.Live != 0 || q.Bytes != 0 || q.Counters != [NumCounters]uint64{} {
			fmt.Fprintf(&b, "queue %s %d %d %v\n", name, q.Live, q.Bytes, q.Counters)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(s.notes)) {
		fmt.Fprintf(&b, "note %s %x\n", key, s.notes[key].value)
	}
	for _, dest := range slices.Sorted(maps.Keys(s.senders)) {
		fmt.Fprintf(&b, "sender %s %d\n", dest, s.senders[dest].last)
	}
	for _, from := range slices.Sorted(maps.Keys(s.receivers)) {
		w := s.receivers[from]
		fmt.Fprintf(&b, "receiver %s %d %v\n", from, w.low, slices.Sorted(maps.Keys(w.seen)))
	}
	var seen []string
	for h, d := range s.dedup.seen {
		seen = append(seen, fmt.Sprintf("seen %x %s %d %d\n", h, d.id, d.seq, d.bucket))
	}
	slices.Sort(seen)
	b.WriteString(strings.Join(seen, ""))
	return b.String()
}
