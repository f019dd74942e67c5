package protocol

import "time"

// BrokerState says what a broker is used for.
type BrokerState string

// States of brokers.
const (
	BrokerActive   BrokerState = "active"   // it takes what routes name it for
	BrokerDraining BrokerState = "draining" // it takes nothing new, and is worked off
	BrokerRetired  BrokerState = "retired"  // it is not used any more
)

// Broker is a broker of the configuration, beside the adapter.
type Broker struct {
	Adapter
	State BrokerState `json:"state"`
}

// Route says on which broker the queues and topics are whose names match. Names are
// /queue/<execution>/<route>, /topic/<topic> and /jobs/<queue>; in a pattern * is
// anything but / and ., ** is anything.
type Route struct {
	Pattern string `json:"pattern"`
	Broker  string `json:"broker"`
}

// PlacedBroker is a broker outside of the mesh that has messages of it.
type PlacedBroker struct {
	// ID never changes: the mesh's notes about the broker name it.
	ID string `json:"id"`
	// Name is what people call it.
	Name    string      `json:"name"`
	Adapter Adapter     `json:"adapter"`
	State   BrokerState `json:"state"` // active or draining
	// Place is where it is, without secrets: what has the same is the same broker.
	Place string `json:"place"`
	// Replaced: no key of the configuration names it any more. It is retired once it
	// is empty.
	Replaced bool `json:"replaced,omitempty"`
}

// Placement says on which brokers messages are. BrokerBuiltin is the mesh itself.
type Placement struct {
	// Number rises with each change.
	Number  uint64         `json:"number"`
	Brokers []PlacedBroker `json:"brokers,omitempty"`
	// Routes name brokers by their ids, and so does Adapter, for what no route names.
	Routes  []Route `json:"routes,omitempty"`
	Adapter string  `json:"adapter"`
}

// Prepared answers a Placement that a router could work by: it is connected to
// all of its brokers that are active.
type Prepared struct {
	Instance string `json:"instance"`
	// Same are those of them that the router found to be one and the same.
	Same []SameBroker `json:"same,omitempty"`
}

// SameBroker is two brokers of a Placement, by their ids, that are one: its messages are
// in the same queues, whatever its address.
type SameBroker struct {
	ID    string `json:"id"`
	Other string `json:"other"`
}

// BrokersRequest asks routers for the brokers there are. Count has them look at
// how much each holds of their lanes.
type BrokersRequest struct {
	Count bool `json:"count,omitempty"`
	// ID asks for one alone.
	ID string `json:"id,omitempty"`
}

// BrokersPage is one router's answer.
type BrokersPage struct {
	Instance string `json:"instance"`
	Number   uint64 `json:"number"` // Placement.Number
	// Lanes are how many the router has, of Total.
	Lanes   int          `json:"lanes"`
	Total   int          `json:"total"`
	Brokers []BrokerInfo `json:"brokers"`
}

// AllLanes says whether pages are of routers that have all lanes between them.
func AllLanes(pages []BrokersPage) bool {
	lanes := 0
	for i := range pages {
		lanes += pages[i].Lanes
	}
	return len(pages) > 0 && lanes >= pages[0].Total
}

// BrokerInfo is a broker for people.
type BrokerInfo struct {
	ID       string      `json:"id"`
	Name     string      `json:"name"`
	Kind     string      `json:"kind"`
	State    BrokerState `json:"state"`
	Place    string      `json:"place,omitempty"`    // where it is
	Replaced bool        `json:"replaced,omitempty"` // see PlacedBroker
	Routes   []string    `json:"routes,omitempty"`   // patterns; ** of the adapter
	// Away is why it cannot be used, since Since.
	Away  string    `json:"away,omitempty"`
	Since time.Time `json:"since,omitzero"`
	// Queues are those that were used there and not forgotten, of which it holds
	// Ready messages, Waiting for another try, InFlight in the hands of routers and
	// Dead. They were not counted without Counted.
	Counted  bool  `json:"counted"`
	Queues   int   `json:"queues"`
	Ready    int64 `json:"ready"`
	Waiting  int64 `json:"waiting"`
	InFlight int64 `json:"in_flight"`
	Dead     int64 `json:"dead"`
	// Busy is how many publishes are on their way there, and how many queues are still
	// to be taken out of their topics.
	Busy int64 `json:"busy,omitempty"`
}

// Holds is how many messages it is known to have.
func (b *BrokerInfo) Holds() int64 { return b.Ready + b.Waiting + b.InFlight + b.Dead }

// BrokerStats is a broker as a router last saw it: the messages it holds of the router's
// queues, those in the hands of routers not included.
type BrokerStats struct {
	Up      bool  `json:"up"` // it can be used
	Ready   int64 `json:"ready"`
	Waiting int64 `json:"waiting"` // for another try
	Dead    int64 `json:"dead"`
	// Unknown is how many queues could not be looked at the last time, or have not been
	// yet: of these the numbers are those of before, or none.
	Unknown int64 `json:"unknown,omitempty"`
}

// Plus is a broker as two routers see it, each with queues of its own.
func (b BrokerStats) Plus(o BrokerStats) BrokerStats {
	return BrokerStats{b.Up && o.Up, b.Ready + o.Ready, b.Waiting + o.Waiting, b.Dead + o.Dead, b.Unknown + o.Unknown}
}

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
	// Away says which brokers could not be asked, and why.
	Away []string `json:"away,omitempty"`
}
