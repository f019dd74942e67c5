package protocol

// What a queue holds on a broker is looked at, and acted on, through the owner of
// its lane. Where nobody has a broker nobody answers.
const (
	// VerbBrokerWaiting follows SubjectLane with a lane: WaitingListRequest →
	// WaitingPage, of what waits on brokers for its next try. It is one page of
	// Limit messages of each queue at most.
	VerbBrokerWaiting = "broker-waiting"
	// VerbBrokerWaitingAct follows SubjectLane with a lane: BrokerWaitingAct →
	// WaitingActReply.
	VerbBrokerWaitingAct = "broker-waiting-act"
	// VerbBrokerTrail follows SubjectLane with a lane: TrailRequest → BrokerTrail.
	VerbBrokerTrail = "broker-trail"
)

// BrokerWaitingAct releases or cancels messages that wait on brokers.
type BrokerWaitingAct struct {
	Action string `json:"action"` // release or cancel
	WaitingActRequest
}

// BrokerTrail answers TrailRequest with what brokers hold of a message.
type BrokerTrail struct {
	Trails []Trail `json:"trails"`
	// Unseen are queues, by their names on the brokers, with messages that are not
	// looked at since they are being consumed.
	Unseen []string `json:"unseen,omitempty"`
}
