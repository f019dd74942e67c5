package policy

import (
	"slices"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// Verdicts are those an asker can execute.
type Verdicts struct{ can []protocol.Verdict }

// ParseVerdicts takes the set of a request. It is INVALID_ARGS without
// "return", the one verdict that every other can fall back to. What this
// version does not know is ignored: it never says it.
func ParseVerdicts(said []protocol.Verdict) (Verdicts, error) {
	if !slices.Contains(said, protocol.VerdictReturn) {
		return Verdicts{}, protocol.Errorf(protocol.CodeInvalidArgs,
			"verdicts %q lack %q: an asker must be able to take a message back", said, protocol.VerdictReturn)
	}
	return Verdicts{can: said}, nil
}

// nearest is v, or the verdict that comes nearest to it without losing the
// message: to wait where it is (hold), else to be delivered again (return, not
// before the same due time). An acknowledged delivery that cannot be settled
// is delivered again too.
func (s Verdicts) nearest(v protocol.Verdict) protocol.Verdict {
	if slices.Contains(s.can, v) {
		return v
	}
	waits := v == protocol.VerdictRetryAt || v == protocol.VerdictDeadLetter
	if waits && slices.Contains(s.can, protocol.VerdictHold) {
		return protocol.VerdictHold
	}
	return protocol.VerdictReturn
}
