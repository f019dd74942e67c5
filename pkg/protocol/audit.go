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
}

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
