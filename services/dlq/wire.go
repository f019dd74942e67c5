package dlq

import (
	"context"

	"github.com/waybill-mq/waybill/internal/books"
	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// question is something an instance asks of the owner of a ledger, on
// protocol.SubjectDeadLedger + <ledger> + "." + <verb>. Like all of the wire,
// the documents below grow by added fields only.
type question[Q, R any] struct {
	verb  string
	reply func(ctx context.Context, book *books.Book[*drawer], q Q) (R, error)
}

var (
	askHeads = question[headsRequest, headsReply]{"heads", readHeads}
	askRead  = question[readRequest, readReply]{"read", readPage}
	askShow  = question[showRequest, showReply]{"show", showWhole}
	askAct   = question[step, stepDone]{"act", actOn}
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

// readRequest asks for letters by key, without headers and payload.
type readRequest struct {
	Keys []ledger.Key `json:"keys"`
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

// action is what is done with letters.
type action string

const (
	redrive action = "redrive"
	discard action = "discard"
)

// step asks for a part of a redrive or a discard of a message, a queue, a topic
// or all letters. It is done when it is committed.
type step struct {
	Action action             `json:"action"`
	ID     protocol.MessageID `json:"id,omitzero"`
	Queue  string             `json:"queue,omitempty"`
	Topic  string             `json:"topic,omitempty"`
	// Until is the newest key there was at the first step; 0 in the first one.
	// It bounds the whole to what was there when it began, whoever owns the
	// ledger meanwhile.
	Until ledger.Key `json:"until,omitempty"`
	Limit int        `json:"limit"`
}

// stepDone answers step.
type stepDone struct {
	Count int64      `json:"count"`
	Until ledger.Key `json:"until"`
	More  bool       `json:"more,omitempty"`
}
