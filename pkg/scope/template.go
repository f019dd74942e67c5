package scope

import "strings"

// Template names what a queue of the embedded transport is one of, whichever
// execution or passing listener it belongs to: its route; its own name, if it is
// an observer's or a group's; <topic>::listen, if it is a listener's.
func Template(queue string) string {
	if rest, ok := strings.CutPrefix(queue, QueuePrefix); ok {
		_, route, _ := strings.Cut(rest, "/")
		return route
	}
	if i := strings.Index(queue, memberMark+listenMark); i >= 0 {
		return strings.TrimSuffix(queue[:i+len(memberMark+listenMark)], ":")
	}
	return queue
}

// Folded is the name under which the counters of queues that are forgotten stay,
// added up by Template. No queue has it.
func Folded(queue string) string { return ScopedName("", Template(queue)) }

// IsFolded tells such a name from that of a queue.
func IsFolded(name string) bool { return strings.HasPrefix(name, QueuePrefix+"/") }
