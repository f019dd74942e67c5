package harness

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// Audit is the book a test keeps beside a mesh: what the mesh has promised and
// what its workers have seen. At rest both must agree to the message.
type Audit struct {
	mu       sync.Mutex
	messages map[string]*message
}

// message is what is known of one message id.
type message struct {
	answered  bool // its publish was answered
	runs      []run
	discarded fate
}

// run is one delivery, as its handler ended it.
type run struct {
	generation, attempt int
	outcome             protocol.Outcome
	last                bool // the outcome used up what the message had
}

func (r run) String() string {
	return fmt.Sprintf("generation %d attempt %d %s", r.generation, r.attempt, r.outcome)
}

// fate says what is known of a request that may have been lost.
type fate int

const (
	never fate = iota
	perhaps
	surely
)

// NewAudit opens the book.
func NewAudit() *Audit { return &Audit{messages: make(map[string]*message)} }

func (a *Audit) of(id string) *message {
	m := a.messages[id]
	if m == nil {
		m = &message{}
		a.messages[id] = m
	}
	return m
}

// Published notes an answered publish.
func (a *Audit) Published(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.of(id).answered = true
}

// Ran notes how a handler ends a delivery, just before it does.
func (a *Audit) Ran(d *client.Delivery, o protocol.Outcome) {
	a.Told(Event{ID: d.ID, Attempt: d.Attempt, MaxRetries: d.MaxRetries, Generation: d.Generation, Outcome: o})
}

// Told is Ran for a worker process: what it told before it was killed counts,
// the mesh may have heard it.
func (a *Audit) Told(e Event) {
	if e.Outcome == "" {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	m := a.of(e.ID)
	last := e.Outcome == protocol.Rejected || e.Outcome == protocol.Failed && e.Attempt >= e.MaxRetries
	m.runs = append(m.runs, run{e.Generation, e.Attempt, e.Outcome, last})
}

// Discarding notes that a discard of the message is asked for.
func (a *Audit) Discarding(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.of(id).discarded = max(a.of(id).discarded, perhaps)
}

// Discarded notes that the mesh has said it discarded the message.
func (a *Audit) Discarded(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.of(id).discarded = surely
}

// Runs is how many deliveries have been handled.
func (a *Audit) Runs() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for _, m := range a.messages {
		n += len(m.runs)
	}
	return n
}

// Verdict is what an audit counted.
type Verdict struct {
	Answered     int // messages whose publish was answered
	Unanswered   int // that were stored all the same
	Runs         int // deliveries handled
	Repeated     int // of them a second time with the same attempt
	Acknowledged int // messages that ended so, or
	Dead         int
	Discarded    int
	Redriven     int // times
}

// Check compares the book with the mesh at rest: of each answered publish the
// message is exactly one of acknowledged, dead and discarded, came by it in the
// way the rules say, and the mesh has counted the same.
func (a *Audit) Check(t testing.TB, m *Mesh, execution string) Verdict {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	dead := make(map[string][]protocol.DeadLetter)
	for queue := range m.Queues(execution) {
		for _, letter := range m.Dead(queue) {
			dead[letter.MessageID] = append(dead[letter.MessageID], letter)
		}
	}
	var v Verdict
	for id, message := range a.messages {
		if fault := message.settle(&v, dead[id]); fault != "" {
			t.Errorf("message %s (answered: %v, runs: %v, dead letters: %+v): %s", id, message.answered, message.runs, dead[id], fault)
		}
		delete(dead, id)
	}
	for id, letters := range dead {
		t.Errorf("message %s is dead and was never handled: %+v", id, letters)
	}
	a.compare(t, v, m.Queues(execution))
	return v
}

// CheckKept is Check for a mesh on a broker whose connection was lost: what the
// broker had not heard of comes again, a dead letter too. It returns how many
// messages it looked at. Nothing is lost, and no try is skipped or spent by that.
func (a *Audit) CheckKept(t testing.TB, m *Mesh, execution string) (messages int) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	dead := make(map[string]bool)
	for queue := range m.Queues(execution) {
		for _, letter := range m.Dead(queue) {
			dead[letter.MessageID] = true
		}
	}
	for id, message := range a.messages {
		if fault := message.kept(dead[id]); fault != "" {
			t.Errorf("message %s (answered: %v, runs: %v, dead: %v): %s", id, message.answered, message.runs, dead[id], fault)
		}
	}
	return len(a.messages)
}

func (m *message) kept(dead bool) (fault string) {
	if len(m.runs) == 0 {
		return "lost: it was answered and never came"
	}
	runs, _ := m.once()
	if fault := order(runs); fault != "" {
		return fault
	}
	if runs[len(runs)-1].outcome != protocol.Acknowledged && !dead && m.discarded == never {
		return "lost: its last delivery was not acknowledged, and it is not dead"
	}
	return ""
}

// settle counts the message and says what is wrong with it, if anything is.
func (m *message) settle(v *Verdict, letters []protocol.DeadLetter) (fault string) {
	if m.answered {
		v.Answered++
	} else {
		v.Unanswered++
	}
	v.Runs += len(m.runs)
	if len(m.runs) == 0 {
		return "lost: it was answered and never came"
	}
	runs, repeated := m.once()
	v.Repeated += repeated
	if fault := order(runs); fault != "" {
		return fault
	}
	last := runs[len(runs)-1]
	v.Redriven += last.generation
	return m.place(v, last, letters)
}

// place decides where the message has ended.
func (m *message) place(v *Verdict, last run, letters []protocol.DeadLetter) (fault string) {
	switch {
	case len(letters) > 1:
		return "twice dead"
	case last.outcome == protocol.Acknowledged && len(letters) > 0:
		return "dead although it was acknowledged"
	case last.outcome == protocol.Acknowledged && m.discarded == surely:
		return "handled after it was discarded"
	case last.outcome == protocol.Acknowledged:
		v.Acknowledged++
	case len(letters) > 0 && m.discarded == surely:
		return "dead although it was discarded"
	case len(letters) > 0:
		v.Dead++
		return agrees(letters[0], last)
	case m.discarded == never:
		return "lost: its last delivery was not acknowledged, and it is not dead"
	default:
		v.Discarded++
	}
	return ""
}

// agrees compares a dead letter with the last delivery.
func agrees(letter protocol.DeadLetter, last run) (fault string) {
	if int(letter.Generation) != last.generation || int(letter.Attempts) != last.attempt || !last.last {
		return "the dead letter is not of the last delivery"
	}
	return ""
}

// once leaves out deliveries that came again because their answer was lost.
func (m *message) once() (runs []run, repeated int) {
	for _, r := range m.runs {
		if r.outcome == protocol.Cancelled {
			continue // handed back: the same attempt comes again
		}
		if slices.Contains(runs, r) {
			repeated++
			continue
		}
		runs = append(runs, r)
	}
	return runs, repeated
}

// order says where a row of deliveries is not what the rules allow: attempts
// count up from 1, each after a failure, and so do generations, each after the
// last allowed failure or a rejection.
func order(runs []run) (fault string) {
	expected := run{generation: 0, attempt: 1}
	for i, r := range runs {
		if r.generation != expected.generation || r.attempt != expected.attempt {
			return fmt.Sprintf("delivery %d is generation %d attempt %d, want generation %d attempt %d",
				i+1, r.generation, r.attempt, expected.generation, expected.attempt)
		}
		switch {
		case r.last:
			expected = run{generation: r.generation + 1, attempt: 1}
		case r.outcome == protocol.Failed:
			expected = run{generation: r.generation, attempt: r.attempt + 1}
		default: // nothing may follow
			expected = run{}
		}
	}
	return ""
}

// compare checks the mesh's own counts.
func (a *Audit) compare(t testing.TB, v Verdict, queues map[string]protocol.QueueInfo) {
	t.Helper()
	count := make(map[string]int)
	for _, q := range queues {
		count["dead"] += int(q.Dead)
		for name, n := range q.Counters {
			count[name] += int(n)
		}
	}
	for name, want := range map[string]int{
		"dead":                     v.Dead,
		protocol.CountPublished:    v.Answered + v.Unanswered,
		protocol.CountAcknowledged: v.Acknowledged,
		protocol.CountDiscarded:    v.Discarded,
		protocol.CountRedriven:     v.Redriven,
	} {
		if count[name] != want {
			t.Errorf("the mesh has counted %d %s, the workers saw %d (all counts: %v)", count[name], name, want, count)
		}
	}
}
