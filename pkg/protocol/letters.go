package protocol

// Dead letters of a queue on a broker are there. The dlq service lists, shows,
// redrives and discards them through the owners of lanes, beside those in its
// ledgers. Where nobody has a broker nobody answers.
const (
	// VerbLetters follows SubjectLane with a lane: BrokerLettersRequest →
	// BrokerLetters.
	VerbLetters = "letters"
	// VerbLettersAct follows SubjectLane with a lane: BrokerActRequest →
	// DeadActReply.
	VerbLettersAct = "letters-act"
)

// BrokerLettersRequest asks a lane's owner for the oldest dead letters that
// brokers hold of its queues: of one queue, of all that subscribe to a topic, of
// one message, or, with none of these, of all.
type BrokerLettersRequest struct {
	Queue     string `json:"queue,omitempty"`
	Topic     string `json:"topic,omitempty"`
	MessageID string `json:"message_id,omitempty"`
	// Known asks for the message only where the owner knows it to be. To look for
	// it means to read all dead letters.
	Known bool `json:"known,omitempty"`
	// Limit bounds the letters of each queue that are read; 0: only the number is
	// asked for.
	Limit int `json:"limit,omitempty"`
	// Skip leaves out so many of the oldest: an answer before was too large for more.
	Skip int `json:"skip,omitempty"`
	// Payloads asks for the letters' payloads too.
	Payloads bool `json:"payloads,omitempty"`
}

// BrokerLetters answers BrokerLettersRequest, each queue's in their order there, and
// those of several as they failed. Letters are
// whole if a message was asked for, else without headers and payload, and fewer
// than there are where the answer would be too large.
type BrokerLetters struct {
	Letters []DeadLetter `json:"letters"`
	Total   int64        `json:"total"`
	// Order is what each letter is in order by: when it failed last, or one that is
	// before it in its queue, ns since the epoch.
	Order []int64 `json:"order,omitempty"`
	// Away is as in DeadPage.
	Away []string `json:"away,omitempty"`
}

// BrokerActRequest redrives or discards dead letters that brokers hold of the
// lane's queues: one message, those of a queue, of all that subscribe to a topic,
// or all there are now.
type BrokerActRequest struct {
	Action    string `json:"action"` // redrive or discard
	MessageID string `json:"message_id,omitempty"`
	Known     bool   `json:"known,omitempty"` // as in BrokerLettersRequest
	Queue     string `json:"queue,omitempty"`
	Topic     string `json:"topic,omitempty"`
	By        string `json:"by,omitempty"` // as in DeadActRequest
}
