package protocol

// VerbAudit follows SubjectLane, SubjectWaitingLedger and SubjectDeadLedger with
// a ledger: Empty → LedgerAudit of its owner, who looks at every message it has.
const VerbAudit = "audit"

// LedgerAudit is a ledger at one place of its log: what its counters say, and
// what is there.
type LedgerAudit struct {
	Ledger  string `json:"ledger"`
	Seq     uint64 `json:"seq"`     // the newest commit
	Queues  int    `json:"queues"`  // looked at
	Entries int64  `json:"entries"` // likewise
	// Gaps are queues of which the counters do not say what is there, MaxAuditGaps
	// at most, and MoreGaps how many more there are.
	Gaps     []AuditGap `json:"gaps,omitempty"`
	MoreGaps int        `json:"more_gaps,omitempty"`
	// Routes are sums as in Stats.Routes.
	Routes    map[string]AuditRoute `json:"routes,omitempty"`
	Sending   []AuditHandovers      `json:"sending,omitempty"`   // to other ledgers
	Receiving []AuditHandovers      `json:"receiving,omitempty"` // from other ledgers
	// OnBrokers are queues with messages, or what is counted of them, on a broker,
	// MaxAuditGaps at most, those first whose numbers differ most.
	OnBrokers []AuditOnBroker `json:"on_brokers,omitempty"`
	// Away are brokers that could not be looked at.
	Away []string `json:"away,omitempty"`
}

// AuditOnBroker is a queue on a broker. What the mesh counts of it and what the
// broker holds differ by messages that others put there, and by counts of the
// last moments before a router was killed.
type AuditOnBroker struct {
	Queue  string `json:"queue"`
	Broker string `json:"broker"`
	// In is what the mesh has put there, Out what it has ended.
	In  int64 `json:"in"`
	Out int64 `json:"out"`
	// Held is what is there: ready, in workers' hands, waiting, or dead.
	Held int64 `json:"held"`
}

// Difference is what is not there although it should be, or, below 0, what is
// there and nobody has counted.
func (a *AuditOnBroker) Difference() int64 { return a.In - a.Out - a.Held }

// MaxAuditGaps bounds LedgerAudit.Gaps.
const MaxAuditGaps = 100

// AuditGap is a queue that does not balance.
type AuditGap struct {
	Queue    string            `json:"queue"`
	Equation string            `json:"equation"` // one of the names in Equations
	Left     int64             `json:"left"`
	Right    int64             `json:"right"`
	Kept     int64             `json:"kept"`
	Counters map[string]uint64 `json:"counters"`
}

// AuditRoute is what a ledger has of a route.
type AuditRoute struct {
	Counters map[string]uint64 `json:"counters"`
	Kept     int64             `json:"kept,omitempty"`   // messages that are the ledger's
	Moving   int64             `json:"moving,omitempty"` // on their way to another, which may have them already
	// OnBroker: some of its messages are, or were, on a broker, and not handed
	// over between ledgers.
	OnBroker bool `json:"on_broker,omitempty"`
}

// AuditHandovers are the numbers of handovers to or from one other ledger: those
// that are not done, below the number that is next, or those that have come
// beside all below the lowest that has not.
type AuditHandovers struct {
	Ledger string      `json:"ledger"`
	Below  uint64      `json:"below"`
	Spans  []AuditSpan `json:"spans,omitempty"`
}

// AuditSpan is a row of numbers, both ends included.
type AuditSpan struct {
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
}
