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
	known   map[string]note
	running int
	// endings are in order; the first has number first+1.
	endings []ending
	first   uint64
	bytes   int
	// sent is the number up to which the server is known to have the outcomes.
	sent   uint64
	epochs map[string]uint64 // highest seen, by lane
}

// note is what is known of a delivery: who runs it, or the number of its ending.
type note struct {
	number uint64 // 0: it runs
	worker *Worker
}

// ending is how a delivery ended.
type ending struct {
	key     string
	outcome protocol.Outcome
	text    string
	at      time.Time
}

func newMemory() *memory {
	return &memory{known: make(map[string]note), epochs: make(map[string]uint64)}
}

// seen is what the memory says of a delivery that arrives.
type seen int

const (
	seenNew seen = iota
	seenRunning
	seenFinished
)

// begin notes a delivery as running. If it is known already nothing changes,
// and the ending is that of a finished one.
func (m *memory) begin(key string, w *Worker) (seen, ending) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, known := m.known[key]
	switch {
	case !known:
		m.known[key] = note{worker: w}
		m.running++
		return seenNew, ending{}
	case n.number == 0:
		return seenRunning, ending{}
	default:
		return seenFinished, m.endings[n.number-m.first-1]
	}
}

// finish notes a running delivery's outcome; false if it has one already.
func (m *memory) finish(key string, outcome protocol.Outcome, text string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n, known := m.known[key]; !known || n.number != 0 {
		return false
	}
	m.running--
	now := time.Now()
	m.forgetOld(now)
	m.endings = append(m.endings, ending{key: key, outcome: outcome, text: text, at: now})
	m.bytes += len(key) + len(text)
	m.known[key] = note{number: m.newest()}
	return true
}

// drop forgets a delivery that never ran.
func (m *memory) drop(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n, known := m.known[key]; known && n.number == 0 {
		delete(m.known, key)
		m.running--
	}
}

func (m *memory) forgetOld(now time.Time) {
	n := 0
	for n < len(m.endings) && (now.Sub(m.endings[n].at) > rememberFor || len(m.endings)-n >= rememberMost || m.bytes > rememberBytes) {
		e := &m.endings[n]
		m.bytes -= len(e.key) + len(e.text)
		delete(m.known, e.key)
		*e = ending{}
		n++
	}
	m.endings = m.endings[n:]
	m.first += uint64(n)
}

func (m *memory) newest() uint64 { return m.first + uint64(len(m.endings)) }

// mark is the number of the newest ending, for confirm.
func (m *memory) mark() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.newest()
}

// confirm says that the server has all outcomes up to the mark.
func (m *memory) confirm(mark uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sent = max(m.sent, mark)
}

// unconfirmed are the endings that may not have reached the server.
func (m *memory) unconfirmed() []ending {
	m.mu.Lock()
	defer m.mu.Unlock()
	skip := min(max(m.sent, m.first)-m.first, uint64(len(m.endings)))
	return append([]ending(nil), m.endings[skip:]...)
}

// newer notes a lane's epoch; false if a higher one was seen, so that this one
// is a former owner's.
func (m *memory) newer(lane string, epoch uint64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if epoch < m.epochs[lane] {
		return false
	}
	m.epochs[lane] = epoch
	return true
}

// claims are the lane's deliveries: all that run, and the newest finished ones
// that fit in about limit bytes.
func (m *memory) claims(lane string, limit int) protocol.Claims {
	m.mu.Lock()
	defer m.mu.Unlock()
	var c protocol.Claims
	prefix := protocol.SubjectOutcome + lane + "."
	for key, n := range m.known {
		if token, ok := strings.CutPrefix(key, prefix); ok && n.number == 0 {
			c.Running = append(c.Running, token)
			limit -= len(token) + 8
		}
	}
	for i := len(m.endings) - 1; i >= 0 && limit > 0; i-- {
		e := &m.endings[i]
		if token, ok := strings.CutPrefix(e.key, prefix); ok {
			c.Finished = append(c.Finished, protocol.FinishedWork{Token: token, Outcome: e.outcome, Error: e.text})
			limit -= len(token) + 2*len(e.text) + 64
		}
	}
	return c
}

// held are the deliveries a worker runs.
func (m *memory) held(w *Worker) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var keys []string
	for key, n := range m.known {
		if n.number == 0 && n.worker == w {
			keys = append(keys, key)
		}
	}
	return keys
}

func (m *memory) inFlight() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.running
}
