package protocol

import (
	"strconv"
	"strings"
)

// QueueType says in what order a queue's messages are handled.
type QueueType string

// Queue types.
const (
	TypeConcurrent QueueType = "concurrent" // as many at once as the consumers take
	TypeStandard   QueueType = "standard"   // another word for it
	// TypeFIFO handles the messages of one group in order, one at a time; a
	// message that fails keeps its place. Messages without a group are one group.
	TypeFIFO QueueType = "fifo"
)

// OnDeadLetter says what becomes of the rest of a group of a FIFO queue when
// one of its messages is dead-lettered.
type OnDeadLetter string

// What a group does.
const (
	DeadLetterContinue OnDeadLetter = "continue" // it goes on with the next message
	DeadLetterBlock    OnDeadLetter = "block"    // it waits until the letter is redriven and handled, or discarded
	DeadLetterDivert   OnDeadLetter = "divert"   // what waits in it is dead-lettered too
)

// MaxGroup is the longest name of a message's group, in bytes.
const MaxGroup = 256

// TakeOrder takes HeaderGroup and HeaderPriority, however they are written, out
// of a publish's headers. INVALID_ARGS: one is given twice; the group is empty
// or longer than MaxGroup, or the priority is not from 0 to 255.
func TakeOrder(headers map[string][]string) (group string, priority uint8, err error) {
	var grouped, prioritised bool
	for name, values := range headers {
		switch {
		case strings.EqualFold(name, HeaderGroup):
			if grouped || len(values) != 1 {
				return "", 0, Errorf(CodeInvalidArgs, "%s is given twice: a message has one group", HeaderGroup)
			}
			grouped = true
			group, err = values[0], CheckGroup(values[0])
		case strings.EqualFold(name, HeaderPriority):
			if prioritised || len(values) != 1 {
				return "", 0, Errorf(CodeInvalidArgs, "%s is given twice: a message has one priority", HeaderPriority)
			}
			prioritised = true
			priority, err = parsePriority(values[0])
		default:
			continue
		}
		if err != nil {
			return "", 0, err
		}
		delete(headers, name)
	}
	return group, priority, nil
}

// CheckGroup refuses a name that no group of messages has: INVALID_ARGS.
func CheckGroup(group string) error {
	if group == "" || len(group) > MaxGroup {
		return Errorf(CodeInvalidArgs, "the group of a message has %d bytes: it has 1 to %d", len(group), MaxGroup)
	}
	return nil
}

func parsePriority(s string) (uint8, error) {
	n, err := strconv.ParseUint(s, 10, 8)
	if err != nil {
		return 0, Errorf(CodeInvalidArgs, "%s is %.64q: it is a whole number from 0 to 255", HeaderPriority, s)
	}
	return uint8(n), nil
}
