package broker

import (
	"strconv"
	"time"
)

// Delay is how a broker brings a failed message back after its delay.
type Delay string

// Delays.
const (
	DelayExact Delay = "exact" // to the millisecond, any delay
	DelayMesh  Delay = "mesh"  // as exact, and the message waits in the mesh
	DelayFixed Delay = "fixed" // one delay for all
	DelayNone  Delay = "none"
)

// Any says whether a message may have any delay.
func (d Delay) Any() bool { return d == DelayExact || d == DelayMesh }

// Capabilities say what a broker can honour. What it cannot is refused when it
// would change what happens to a message (Refusal).
type Capabilities struct {
	// TopicsOnly: it has no queues, of executions or named ones, and keeps nothing of
	// a topic for a subscriber that is not there.
	TopicsOnly bool
	Durable    bool // messages survive the broker's restart
	Retries    bool // a failed message is delivered again
	Delay      Delay
	// DeadLetters says that what is given up is kept, and can be looked at,
	// redriven and discarded.
	DeadLetters bool
	// Waiting says that what waits for its next try can be looked at, let go
	// before its time, and cancelled; elsewhere it is counted. A Remote that has
	// it is one of Shelves.
	Waiting    bool
	FIFO       bool // queues that keep the order of each group
	Priorities bool // queues whose most urgent message is first
	Schedules  bool // a publish may say when its message is due
	// Dedup is the window in which a publisher's id is stored once; 0: never.
	Dedup time.Duration
	// Resumes says that a delivery survives its router: the next owner applies
	// its outcome. A broker that binds deliveries to a connection redelivers.
	Resumes bool
	// Open says that other programs may put messages straight into its queues;
	// they are handled as if they had been published.
	Open bool
	// MaxName bounds a scoped name in bytes; 0: no bound of its own.
	MaxName int
}

// Capability is one of a broker's Capabilities, for people and programs.
type Capability struct {
	Name  string `json:"name"`
	Value string `json:"value"` // yes, no, or how far
	Text  string `json:"text"`  // what that means
}

// WithMeshDelay are those of a broker whose messages wait in the mesh.
func (c Capabilities) WithMeshDelay() Capabilities {
	c.Delay, c.Waiting = DelayMesh, true
	return c
}

const yes, no = "yes", "no"

// List tells the capabilities one by one, always in the same order.
func (c Capabilities) List() []Capability {
	return []Capability{
		either("queues", !c.TopicsOnly, "executions have queues, and there are named ones", "there are topics only, and a subscriber that is not there misses what is published"),
		either("durable", c.Durable, "messages survive a restart of the broker", "what the broker holds is lost with it"),
		either("retries", c.Retries, "a failed message is delivered again until its tries are spent", "a message is delivered once; a failure is its end"),
		{"delay", string(c.Delay), delays[c.Delay]},
		either("dead_letters", c.DeadLetters, "what is given up is kept, to be looked at, redriven and discarded", "what is given up is gone"),
		either("waiting", c.Waiting, "what waits for its next try is listed, let go and cancelled", "what waits for its next try is only counted"),
		either("fifo", c.FIFO, "a queue may keep the order of each group, over failures too", "no queue keeps its order over a failure"),
		either("priorities", c.Priorities, "the most urgent message is delivered first", "priorities are ignored, with a warning"),
		either("schedules", c.Schedules, "a publish may say when its message is due", "a message is due when it is published"),
		c.dedup(),
		either("resumes", c.Resumes, "a handler may outlive its router: its outcome counts", "a message whose router stops is delivered again; the first handler's outcome is superseded"),
		either("open", c.Open, "what another program puts straight into a queue, or publishes on the channel of a topic, is handled too", "nobody but the mesh can put anything into a queue"),
		c.maxName(),
	}
}

var delays = map[Delay]string{
	DelayExact: "a failed message comes back after its own delay, to the millisecond",
	DelayMesh:  "a failed message waits in the mesh and comes back after its own delay, to the millisecond",
	DelayFixed: "every failed message of a queue comes back after the same delay",
	DelayNone:  "nothing waits",
}

func either(name string, has bool, with, without string) Capability {
	if has {
		return Capability{name, yes, with}
	}
	return Capability{name, no, without}
}

func (c Capabilities) dedup() Capability {
	if c.Dedup == 0 {
		return Capability{"dedup", no, "a publish that is repeated is another message"}
	}
	return Capability{"dedup", c.Dedup.String(), "a publish that repeats an id within this time stores nothing"}
}

func (c Capabilities) maxName() Capability {
	const text = "how many bytes the name of a queue may have on the broker"
	if c.MaxName == 0 {
		return Capability{"max_name", "unbounded", text}
	}
	return Capability{"max_name", strconv.Itoa(c.MaxName), text}
}
