package ledger

import (
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// Event is one thing that happened to a message, in the story that goes with it
// from ledger to ledger.
type Event struct {
	Kind       EventKind
	At         int64 // when it ended, ns since the epoch
	Generation uint32
	Attempt    uint32
	// Of an attempt:
	Outcome      protocol.Outcome
	Took         int64  // ns; 0: not known
	Worker       string // its name
	WorkerID     string
	Subscription string
	Error        string // cut at MaxEventError
	Due          int64  // not again before, ns since the epoch; 0: at once
	// By is who asked for what a person asks for, as far as they said.
	By string
	// Trace is what a later span refers to this event by; nil if it was not
	// sampled.
	Trace []byte
}

// EventKind is what kind of thing happened. The numbers are on disk.
type EventKind uint8

// Kinds of events.
const (
	Attempted  EventKind = 1 // a delivery that ended, and not by being acknowledged
	Redrove    EventKind = 2 // a dead letter sent back
	Released   EventKind = 3 // let go before its time
	FollowedIt EventKind = 4 // dead-lettered because of another message's end
)

const (
	// MaxEvents bounds a story: of a longer one the oldest events are left out,
	// and counted.
	MaxEvents = 32
	// MaxEventError bounds an event's error, in bytes; Meta.Error has the whole
	// text of the newest.
	MaxEventError = 256
)

// Tell adds an event to the meta's story.
func (m *Meta) Tell(e Event) {
	e.Error = clip(e.Error, MaxEventError)
	story := append(make([]byte, 0, len(m.Story)+e.length()), m.Story...)
	m.Story = shorten(appendEvent(story, &e))
}

// StoryOf is all that is kept of what happened to a message, oldest first, and
// how many older events are not. What cannot be read is not in it.
func StoryOf(m *Message, meta *Meta) (events []Event, leftOut uint64) {
	return decodeStory(JoinStories(m.Story, meta.Story))
}

// LastEvent is the newest event of a message, if there is any.
func LastEvent(m *Message, meta *Meta) (Event, bool) {
	story := meta.Story
	if len(story) == 0 {
		story = m.Story
	}
	var last []byte
	for f := walk(story); f.next(); {
		if f.num == 1 {
			last = f.slice()
		}
	}
	if last == nil {
		return Event{}, false
	}
	e, err := decodeEvent(last)
	return e, err == nil
}

// JoinStories is a story and what followed it, for who keeps a message that
// leaves the ledger elsewhere. Neither is changed.
func JoinStories(first, then []byte) []byte {
	switch {
	case len(then) == 0:
		return first
	case len(first) == 0:
		return then
	}
	return shorten(append(append(make([]byte, 0, len(first)+len(then)), first...), then...))
}

// shorten leaves out the oldest events of a story that has too many.
func shorten(story []byte) []byte {
	events := 0
	for f := walk(story); f.next(); {
		if f.num == 1 {
			events++
		}
	}
	if events <= MaxEvents {
		return story
	}
	short, leftOut := make([]byte, 0, len(story)), uint64(0)
	for f := walk(story); f.next(); {
		switch {
		case f.num == 2:
			leftOut += f.uint()
		case f.num == 1 && events > MaxEvents:
			leftOut++
			events--
		default:
			short = append(short, f.raw...)
		}
	}
	return appendUint(short, 2, leftOut)
}

func decodeStory(story []byte) (events []Event, leftOut uint64) {
	for f := walk(story); f.next(); {
		switch f.num {
		case 1:
			if e, err := decodeEvent(f.slice()); err == nil {
				events = append(events, e)
			}
		case 2:
			leftOut += f.uint()
		}
	}
	return events, leftOut
}

// length is more than what the event takes when it is encoded.
func (e *Event) length() int {
	return acceptBytes + len(e.Outcome) + len(e.Worker) + len(e.WorkerID) + len(e.Subscription) +
		len(e.Error) + len(e.By) + len(e.Trace)
}

func appendEvent(b []byte, e *Event) []byte {
	b, start := open(b, 1)
	b = appendUint(b, 1, uint64(e.Kind))
	b = appendFixed(b, 2, uint64(e.At))
	b = appendUint(b, 3, uint64(e.Generation))
	b = appendUint(b, 4, uint64(e.Attempt))
	b = appendString(b, 5, e.Outcome)
	b = appendUint(b, 6, uint64(e.Took))
	b = appendString(b, 7, e.Worker)
	b = appendString(b, 8, e.WorkerID)
	b = appendString(b, 9, e.Subscription)
	b = appendString(b, 10, e.Error)
	b = appendFixed(b, 11, uint64(e.Due))
	b = appendString(b, 12, e.By)
	b = appendString(b, 13, e.Trace)
	return shut(b, start)
}

func decodeEvent(b []byte) (e Event, err error) {
	f := walk(b)
	for f.next() {
		switch f.num {
		case 1:
			e.Kind = EventKind(f.uint())
		case 2:
			e.At = int64(f.uint())
		case 3:
			e.Generation = f.uint32()
		case 4:
			e.Attempt = f.uint32()
		case 5:
			e.Outcome = protocol.Outcome(f.slice())
		case 6:
			e.Took = int64(f.uint())
		default:
			e.decodeRest(&f)
		}
	}
	return e, f.err
}

func (e *Event) decodeRest(f *fields) {
	switch f.num {
	case 7:
		e.Worker = string(f.slice())
	case 8:
		e.WorkerID = string(f.slice())
	case 9:
		e.Subscription = string(f.slice())
	case 10:
		e.Error = string(f.slice())
	case 11:
		e.Due = int64(f.uint())
	case 12:
		e.By = string(f.slice())
	case 13:
		e.Trace = append([]byte(nil), f.slice()...)
	}
}
