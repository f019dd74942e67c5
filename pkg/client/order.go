package client

import "github.com/waybill-mq/waybill/pkg/protocol"

// FIFO handles the messages of one group (InGroup) in order, one at a time; those
// without a group are one group. A message that fails keeps its place, and its
// group waits for it: no message overtakes another of its group, and no two of a
// group are handled at once. Different groups are handled at once, as many as
// Concurrency says.
//
// A handler that goes on past its Timeout keeps its group waiting until it
// returns: it should heed its context.
func FIFO() WorkOption {
	return workFunc(func(o *workOptions) error {
		o.kind = protocol.TypeFIFO
		return nil
	})
}

// OnDeadLetter says what becomes of a group of a FIFO queue when one of its
// messages is dead-lettered. Default protocol.DeadLetterContinue.
func OnDeadLetter(what protocol.OnDeadLetter) WorkOption {
	return workFunc(func(o *workOptions) error {
		switch what {
		case protocol.DeadLetterContinue, protocol.DeadLetterBlock, protocol.DeadLetterDivert:
			o.onDeadLetter = what
			return nil
		default:
			return protocol.Errorf(protocol.CodeInvalidArgs, "on_dead_letter is %q: it is %s, %s or %s", what,
				protocol.DeadLetterContinue, protocol.DeadLetterBlock, protocol.DeadLetterDivert)
		}
	})
}

// MaxPriority makes the queue one with priorities: of its messages those with
// the highest (Priority) are handled first, all above n being the same. 1 to
// 255; a FIFO queue ignores it.
func MaxPriority(n int) WorkOption {
	return workFunc(func(o *workOptions) error {
		if n < 1 || n > 255 {
			return protocol.Errorf(protocol.CodeInvalidArgs, "max_priority is %d: it is 1 to 255", n)
		}
		o.maxPriority = uint8(n)
		return nil
	})
}
