package client

import (
	"strings"
	"sync"
	"time"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// How long, and how much of, the finished work is remembered.
const (
	rememberFor   = time.Minute
	rememberMost  = 65536
	rememberBytes = 16 << 20 // keys and error texts
)

// memory is what a worker knows of deliveries, by their outcome subject: which
// run, and how those of the last minute ended. So a delivery that comes twice
// runs once, and an outcome that was lost with a connection or a router is
// given again.
type memory struct {
	mu      sync.Mutex
	known   map[string]*job
	running int
	// The jobs that have ended and are remembered, in order, and their number.
	oldest, newest *job
	ended          int
	bytes          int
	count          uint64 // of endings ever
	// sent is the number up to which the server is known to have the outcomes.
	sent  uint64
	lanes map[string]owner // the newest seen
}

// owner is what is known of a lane's.
type owner struct {
	epoch  uint64
	frames bool // it takes outcomes in frames
}

// job is a delivery that runs, or how it ended, which does not change any more.
type job struct {
	key    string // the subject its outcome is published on
	lane   string
	worker *Worker // who runs it; nil once it has ended
	ending
	at     time.Time
	number uint64 // of its ending: 1, 2, …
	next   *job   // that ended after it
}

// afterMs is the pause before the next attempt, rounded up.
func (j *job) afterMs() int64 {
	ms := j.after.Milliseconds()
	if j.after%time.Millisecond > 0 {
		ms++
	}
	return ms
}

func newMemory() *memory {
	return &memory{known: make(map[string]*job), lanes: make(map[string]owner)}
}

// seen is what the memory says of a delivery that arrives.
type seen int

const (
	seenNew seen = iota
	seenRunning
	seenFinished
	seenFormer // of a lane's former owner
)

// begin notes a delivery as running. If it is known already nothing changes,
// and the job is the one that is known; except that one that was handed back
// may run now. An epoch of 0 is not looked at.
func (m *memory) begin(key, lane string, o owner, w *Worker) (seen, *job) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o.epoch > 0 && !m.isNewest(lane, o) {
		return seenFormer, nil
	}
	j := m.known[key]
	switch {
	case j == nil, j.worker == nil && j.outcome == protocol.Cancelled:
		j = &job{key: key, lane: lane, worker: w}
		m.known[key] = j
		m.running++
		return seenNew, j
	case j.worker != nil:
		return seenRunning, j
	default:
		return seenFinished, j
	}
}

// takesFrames says whether the lane's owner takes outcomes in frames.
func (m *memory) takesFrames(lane string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lanes[lane].frames
}

// finish notes a running delivery's outcome; false if it has one already.
func (m *memory) finish(j *job, end ending) bool {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if j.worker == nil {
		return false
	}
	m.running--
	m.count++
	j.worker, j.ending, j.at, j.number = nil, end, now, m.count
	m.remember(j)
	return true
}

// remember appends j to what has ended, and forgets what is old or too much.
func (m *memory) remember(j *job) {
	if m.newest != nil {
		m.newest.next = j
	} else {
		m.oldest = j
	}
	m.newest = j
	m.ended++
	m.bytes += len(j.key) + len(j.text)
	for o := m.oldest; o != j && (j.at.Sub(o.at) > rememberFor || m.ended > rememberMost || m.bytes > rememberBytes); o = m.oldest {
		m.oldest = o.next
		m.ended--
		m.bytes -= len(o.key) + len(o.text)
		if m.isCurrent(o) {
			delete(m.known, o.key)
		}
	}
}

// isCurrent is false for a job that was handed back and has run since. Locked.
func (m *memory) isCurrent(j *job) bool { return m.known[j.key] == j }

// drop forgets a delivery that never ran.
func (m *memory) drop(j *job) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if j.worker != nil {
		j.worker = nil
		delete(m.known, j.key)
		m.running--
	}
}

// mark is the number of the newest ending, for confirm.
func (m *memory) mark() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.count
}

// confirm says that the server has all outcomes up to the mark.
func (m *memory) confirm(mark uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sent = max(m.sent, mark)
}

// unconfirmed are the ended jobs whose outcomes may not have reached the
// server.
func (m *memory) unconfirmed() []*job {
	m.mu.Lock()
	defer m.mu.Unlock()
	var jobs []*job
	for j := m.oldest; j != nil; j = j.next {
		if j.number > m.sent && m.isCurrent(j) {
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// newer notes a lane's owner, unless a later one was seen.
func (m *memory) newer(lane string, o owner) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.isNewest(lane, o)
}

// isNewest notes a lane's owner; false if a later one was seen, so that this
// one is a former. Locked.
func (m *memory) isNewest(lane string, o owner) bool {
	switch known := m.lanes[lane]; {
	case o.epoch < known.epoch:
		return false
	case o.epoch > known.epoch, o.frames && !known.frames:
		m.lanes[lane] = o
	}
	return true
}

// claims are the lane's deliveries: all that run, and the newest finished ones
// that fit in about limit bytes.
func (m *memory) claims(lane string, limit int) protocol.Claims {
	m.mu.Lock()
	defer m.mu.Unlock()
	var c protocol.Claims
	var finished []*job
	prefix := protocol.SubjectOutcome + lane + "."
	for key, j := range m.known {
		if token, ok := strings.CutPrefix(key, prefix); ok && j.worker != nil {
			c.Running = append(c.Running, token)
			limit -= len(token) + 8
		}
	}
	for j := m.oldest; j != nil; j = j.next {
		if strings.HasPrefix(j.key, prefix) && m.isCurrent(j) {
			finished = append(finished, j)
		}
	}
	for i := len(finished) - 1; i >= 0 && limit > 0; i-- {
		j := finished[i]
		token := j.key[len(prefix):]
		c.Finished = append(c.Finished, protocol.FinishedWork{Token: token, Outcome: j.outcome, Error: j.text, RetryAfterMs: j.afterMs()})
		limit -= len(token) + 2*len(j.text) + 64
	}
	return c
}

// held are the deliveries a worker runs.
func (m *memory) held(w *Worker) []*job {
	m.mu.Lock()
	defer m.mu.Unlock()
	var jobs []*job
	for _, j := range m.known {
		if j.worker == w {
			jobs = append(jobs, j)
		}
	}
	return jobs
}

func (m *memory) inFlight() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.running
}
