package dlq

import (
	"github.com/waybill-mq/waybill/internal/books"
	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

type question[Q, R any] = books.Question[*drawer, Q, R]

// The questions to the owner of a ledger, on protocol.SubjectDeadLedger.
var (
	askHeads   = question[headsRequest, headsReply]{Verb: "heads", Reply: readHeads}
	askRead    = question[readRequest, readReply]{Verb: "read", Reply: readPage}
	askShow    = question[showRequest, showReply]{Verb: "show", Reply: showWhole}
	askPresent = question[protocol.DeadPresentRequest, protocol.DeadPresentReply]{Verb: protocol.VerbPresent, Reply: whichPresent}
	askAct     = question[books.Step, books.StepDone]{Verb: "act", Reply: actOn}
)

// headsRequest asks for letters in order of their last failure and id, of one
// queue, one topic or all, that failed at From or later.
type headsRequest struct {
	Queue string `json:"queue,omitempty"`
	Topic string `json:"topic,omitempty"`
	From  int64  `json:"from"`  // ns since the epoch
	Limit int    `json:"limit"` // 0: only the numbers
}

// headsReply answers headsRequest.
type headsReply struct {
	Total  int    `json:"total"`
	Before int    `json:"before"` // how many failed before From
	First  int64  `json:"first"`  // when the first of all failed; 0 if there is none
	Last   int64  `json:"last"`
	Heads  []head `json:"heads,omitempty"`
}

// head is what orders a letter, and its key in the ledger.
type head struct {
	Key      ledger.Key         `json:"key"`
	FailedAt int64              `json:"failed_at"` // ns since the epoch
	ID       protocol.MessageID `json:"id"`
}

// readRequest asks for letters by key, without headers, and with payloads if it
// says so.
type readRequest struct {
	Keys     []ledger.Key `json:"keys"`
	Payloads bool         `json:"payloads,omitempty"`
}

// readReply has the letters in the order of the keys, and none for one that is
// gone. It may end before the keys do, so that it stays small.
type readReply struct {
	Letters []*protocol.DeadLetter `json:"letters"`
}

// showRequest asks for the letter of a message, whole.
type showRequest struct {
	ID protocol.MessageID `json:"id"`
}

// showReply has the letter that failed last of those of the message, none if
// there are none.
type showReply struct {
	Letter *protocol.DeadLetter `json:"letter,omitempty"`
}

// What is done with letters.
const (
	redrive = "redrive"
	discard = "discard"
)
