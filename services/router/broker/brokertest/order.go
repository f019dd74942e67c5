package brokertest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// fifo is a subscription that keeps order.
func (s *suite) fifo(route string) protocol.SubscriptionSpec {
	spec := s.on(route)
	spec.Type = protocol.TypeFIFO
	return spec
}

// fifoHolds: what fails comes again before what follows it, one at a time,
// however much the consumer would take at once.
func (s *suite) fifoHolds() { s.unhurried("a group that is held", 2*time.Second, s.holds) }

func (s *suite) holds(route string, wait time.Duration) bool {
	s.Helper()
	for _, name := range []string{"A", "B", "C"} {
		s.publish(route, []byte(name))
	}
	spec := s.fifo(route)
	spec.BackoffMs = wait.Milliseconds()
	w := s.worker(spec)
	d := w.next()
	equal(s, "first", string(d.Data), "A")
	s.stays("one at a time", func() bool { return len(w.deliveries) == 0 })
	began := time.Now()
	d.end(protocol.Failed)
	seen := s.meanwhile(w, route, "the group to be held", func(q protocol.QueueInfo) bool {
		return q.Type == protocol.TypeFIFO && q.HeldGroups == 1 && q.Waiting == 0
	})
	d = w.next()
	equal(s, "held message", string(d.Data), "A")
	equal(s, "attempt", d.attempt(), 2)
	if waited := d.arrived.Sub(began); waited < wait {
		s.Errorf("it came again after %v, before its delay of %v", waited, wait)
	}
	for _, name := range []string{"B", "C"} {
		d.end(protocol.Acknowledged)
		d = w.next()
		equal(s, "next", string(d.Data), name)
		equal(s, "attempt", d.attempt(), 1)
	}
	d.end(protocol.Acknowledged)
	q := s.awaitEmpty(route, 0)
	equal(s, "retried", q.Counters[protocol.CountRetried], 1)
	equal(s, "acknowledged", q.Counters[protocol.CountAcknowledged], 3)
	return seen
}

// fifoGroups: a group that is held, or busy, does not hold up another.
func (s *suite) fifoGroups() {
	spec := s.fifo("r")
	spec.BackoffMs = 3_600_000
	w := s.worker(spec)
	s.publish("r", []byte("stuck"), protocol.HeaderGroup, "a")
	d := w.next()
	equal(s, "group", d.Header.Get(protocol.HeaderGroup), "a")
	d.end(protocol.Failed)
	s.publish("r", []byte("busy"), protocol.HeaderGroup, "b")
	busy := w.next()
	for i := range 20 {
		s.publish("r", fmt.Append(nil, i), protocol.HeaderGroup, "c")
		s.publish("r", []byte("behind"), protocol.HeaderGroup, "a")
	}
	for i := range 20 {
		d := w.next()
		equal(s, "message", string(d.Data), strconv.Itoa(i))
		d.end(protocol.Acknowledged)
	}
	s.stays("the others wait", func() bool { return len(w.deliveries) == 0 })
	busy.end(protocol.Acknowledged)
	s.await("r", "what is held to be left", func(q protocol.QueueInfo) bool { return q.Groups == 1 && q.HeldGroups == 1 && q.Ready == 21 })
}

// fifoKeepsPlace: what comes back unspent, in whatever way, is first again, and
// a dead letter lets its group go on.
func (s *suite) fifoKeepsPlace() {
	for _, name := range []string{"A", "B", "C"} {
		s.publish("r", []byte(name))
	}
	spec := s.fifo("r")
	spec.MaxRetries = 2
	w := s.worker(spec)
	for _, o := range []protocol.Outcome{protocol.Cancelled, protocol.Pending, protocol.Failed, protocol.Cancelled, protocol.Failed} {
		d := w.next()
		equal(s, "message", string(d.Data), "A")
		d.end(o)
	}
	for _, name := range []string{"B", "C"} {
		d := w.next()
		equal(s, "message", string(d.Data), name)
		if name == "B" {
			d.end(protocol.Rejected)
			continue
		}
		s.awaitLetters("r", 2)
		equal(s, "redriven", s.act(protocol.SubjectDeadRedrive, protocol.DeadActRequest{MessageID: s.letters(s.execution, "r")[0].MessageID}), 1)
		s.stays("a redriven message is behind", func() bool { return len(w.deliveries) == 0 })
		d.end(protocol.Acknowledged)
	}
	d := w.next()
	equal(s, "redriven", string(d.Data), "A")
	equal(s, "generation", d.Header.Get(protocol.HeaderGeneration), "1")
	d.end(protocol.Acknowledged)
	s.awaitEmpty("r", 1)
}

// fifoComings: what goes back as its worker leaves comes in its turn to the next.
func (s *suite) fifoComings() {
	const all, each = 60, 7
	for i := range all {
		s.publish("r", fmt.Append(nil, i))
	}
	for i := 0; i < all; {
		w := s.worker(s.fifo("r"))
		for range min(each, all-i) {
			d := w.next()
			equal(s, "message", string(d.Data), strconv.Itoa(i))
			d.end(protocol.Acknowledged)
			i++
		}
		s.await("r", "these to be acknowledged", func(q protocol.QueueInfo) bool { return q.Counters[protocol.CountAcknowledged] == uint64(i) })
		w.bye()
	}
	s.awaitEmpty("r", 0)
}

// fifoTimeout: a call that is past its time keeps its group out of any other's
// hands until it has answered; that answer does not count.
func (s *suite) fifoTimeout() {
	spec := s.fifo("r")
	spec.TimeoutMs, spec.MaxRetries = 1000, 2
	w, other := s.worker(spec), s.worker(spec)
	s.publish("r", []byte("A"))
	s.publish("r", []byte("B"))
	both := func() int { return len(w.deliveries) + len(other.deliveries) }
	s.eventually("a delivery", func() bool { return both() == 1 })
	late := either(w, other)
	// Its worker says that it runs it, for several times its limit.
	end := time.NewTimer(4 * time.Second)
	defer end.Stop()
	for over := false; !over; {
		select {
		case <-end.C:
			over = true
		case d := <-w.deliveries:
			s.Fatalf("%q was delivered while it ran", d.Data)
		case d := <-other.deliveries:
			s.Fatalf("%q was delivered while it ran", d.Data)
		}
	}
	late.end(protocol.Acknowledged)
	s.eventually("another delivery", func() bool { return both() == 1 })
	d := either(w, other)
	equal(s, "message", string(d.Data), "A")
	equal(s, "attempt", d.attempt(), 2)
	spec.TimeoutMs = guard.Milliseconds() // of what follows
	w.hello(spec)
	other.hello(spec)
	d.w.forget(d) // it does not know of it any more
	s.eventually("what follows", func() bool { return both() == 1 })
	d = either(w, other)
	equal(s, "message", string(d.Data), "B")
	d.end(protocol.Acknowledged)
	equal(s, "reason", s.awaitLetters("r", 1)[0].Reason, protocol.ReasonTimeout)
	s.awaitEmpty("r", 1)
}

func either(a, b *worker) delivery {
	select {
	case d := <-a.deliveries:
		return d
	default:
		return b.next()
	}
}

// forget has the worker lose a delivery, as if it had never come.
func (w *worker) forget(d delivery) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, token, _ := protocol.SplitOutcome(d.Reply)
	delete(w.running, token)
}

// fifoVanished: the group of a worker that is gone goes on with the same
// message.
func (s *suite) fifoVanished() {
	w := s.worker(s.fifo("r"))
	s.publish("r", []byte("A"))
	s.publish("r", []byte("B"))
	w.next()
	w.die()
	heir := s.worker(s.fifo("r"))
	for _, name := range []string{"A", "B"} {
		d := heir.next()
		equal(s, "message", string(d.Data), name)
		equal(s, "attempt", d.attempt(), 1)
		d.end(protocol.Acknowledged)
	}
	s.awaitEmpty("r", 0)
}

// fifoObserved: an observer, and the members of a group, of a topic have each of
// its message groups in order and in one hand, whoever is told to fail, beside an
// observer that takes them as they come.
func (s *suite) fifoObserved() {
	const groups, each = 3, 15
	seed := uint64(time.Now().UnixNano())
	s.Logf("seed %d", seed)
	topic := s.topic()
	var handlers sync.WaitGroup
	checkers := map[string]*orderChecker{}
	defer func() {
		for _, c := range checkers {
			c.stop()
		}
		handlers.Wait()
	}()
	for id, members := range map[string]int{"one": 1, "@several": 3} {
		c := newOrderChecker(s)
		checkers[id] = c
		for i := range members {
			spec := observe(topic, id)
			spec.Type, spec.MaxRetries, spec.Concurrency = protocol.TypeFIFO, 1000, new(2+i)
			w, rng := s.worker(spec), rand.New(rand.NewPCG(seed, uint64(i)))
			handlers.Go(func() { c.work(w, rng) })
		}
	}
	plain := s.worker(observe(topic, "plain"))
	plain.each(func(delivery) protocol.Outcome { return protocol.Acknowledged })
	for n := range each {
		for g := range groups {
			s.publishTopic(topic, []byte(strconv.Itoa(n)), protocol.HeaderGroup, strconv.Itoa(g))
		}
	}
	for id, queue := range map[string]string{
		"one": observerQueue(topic, "one"), "@several": groupQueue(topic, "several"), "plain": observerQueue(topic, "plain"),
	} {
		q := s.settled(queue, 0)
		equal(s, "acknowledged by "+id, q.Counters[protocol.CountAcknowledged], groups*each)
		for g := range groups {
			if c := checkers[id]; c != nil {
				equal(s, "handled in order by "+id, c.done(strconv.Itoa(g)), each)
			}
		}
	}
}

// fifoObservedBlocks: what waits for a dead letter waits in its own observer's
// queue, and nowhere else.
func (s *suite) fifoObservedBlocks() {
	topic := s.topic()
	strict, other := observe(topic, "strict"), observe(topic, "other")
	strict.Type, strict.OnDeadLetter = protocol.TypeFIFO, protocol.DeadLetterBlock
	other.Type = protocol.TypeFIFO
	blocked, free := s.worker(strict), s.worker(other)
	for _, name := range []string{"A", "B"} {
		s.publishTopic(topic, []byte(name), protocol.HeaderGroup, "g")
	}
	blocked.next().end(protocol.Rejected)
	for _, name := range []string{"A", "B"} {
		d := free.next()
		equal(s, "message", string(d.Data), name)
		d.end(protocol.Acknowledged)
	}
	queue := observerQueue(topic, "strict")
	s.eventually("the group to be blocked", func() bool { return s.queueNamed(queue).BlockedGroups == 1 && s.queueNamed(queue).Dead == 1 })
	s.stays("the group waits", func() bool { return len(blocked.deliveries) == 0 })
	equal(s, "redriven", s.act(protocol.SubjectDeadRedrive, protocol.DeadActRequest{Topic: topic}), 1)
	for _, name := range []string{"A", "B"} {
		d := blocked.next()
		equal(s, "message", string(d.Data), name)
		d.end(protocol.Acknowledged)
	}
	s.settled(queue, 0)
	equal(s, "delivered to the other", s.settled(observerQueue(topic, "other"), 0).Counters[protocol.CountDelivered], 2)
}

// blocked: after a dead letter its group waits, and no other, until the letter
// is redriven and handled, or discarded.
func (s *suite) blocked() {
	spec := s.fifo("r")
	spec.OnDeadLetter = protocol.DeadLetterBlock
	w := s.worker(spec)
	publish := func(names ...string) {
		for _, name := range names {
			s.publish("r", []byte(name), protocol.HeaderGroup, "g")
		}
	}
	expect := func(name string, o protocol.Outcome) {
		s.Helper()
		d := w.next()
		equal(s, "message", string(d.Data), name)
		d.end(o)
	}
	block := func() string {
		s.Helper()
		s.await("r", "the group to be blocked", func(q protocol.QueueInfo) bool { return q.BlockedGroups == 1 && q.Dead == 1 })
		s.publish("r", []byte("free"), protocol.HeaderGroup, "another")
		expect("free", protocol.Acknowledged)
		s.stays("the group waits", func() bool { return len(w.deliveries) == 0 })
		return s.awaitLetters("r", 1)[0].MessageID
	}
	publish("A", "B", "C")
	expect("A", protocol.Rejected)
	letter := block()
	equal(s, "redriven", s.act(protocol.SubjectDeadRedrive, protocol.DeadActRequest{MessageID: letter}), 1)
	expect("A", protocol.Rejected) // it dies again
	equal(s, "the same letter", block(), letter)
	equal(s, "redriven", s.act(protocol.SubjectDeadRedrive, protocol.DeadActRequest{MessageID: letter}), 1)
	expect("A", protocol.Acknowledged) // first, although it came last
	expect("B", protocol.Rejected)
	letter = block()
	equal(s, "discarded", s.act(protocol.SubjectDeadDiscard, protocol.DeadActRequest{MessageID: letter}), 1)
	expect("C", protocol.Acknowledged)
	q := s.awaitEmpty("r", 0)
	equal(s, "blocked groups", q.BlockedGroups, 0)
}

// diverted: what waits behind a dead letter in its group follows it, with a
// reason of its own; another group, and what is published after, does not.
func (s *suite) diverted() {
	spec := s.fifo("r")
	spec.OnDeadLetter = protocol.DeadLetterDivert
	for i := range 50 {
		s.publish("r", fmt.Append(nil, i), protocol.HeaderGroup, "g")
	}
	s.publish("r", []byte("other"), protocol.HeaderGroup, "h")
	w := s.worker(spec)
	for range 2 {
		d := w.next()
		if d.Header.Get(protocol.HeaderGroup) == "h" {
			d.end(protocol.Acknowledged)
			continue
		}
		equal(s, "message", string(d.Data), "0")
		d.end(protocol.Rejected)
	}
	s.await("r", "dead letters", func(q protocol.QueueInfo) bool { return q.Dead == 50 && q.Moving == 0 })
	all := s.letters(s.execution, "r")
	equal(s, "letters", len(all), 50)
	for i, letter := range all {
		equal(s, "letter", string(letter.Payload), strconv.Itoa(i))
		equal(s, "reason", letter.Reason, map[bool]protocol.Reason{true: protocol.ReasonRejected, false: protocol.ReasonDiverted}[i == 0])
		equal(s, "group", letter.Group, "g")
	}
	s.publish("r", []byte("after"), protocol.HeaderGroup, "g")
	d := w.next()
	equal(s, "message", string(d.Data), "after")
	d.end(protocol.Acknowledged)
	q := s.awaitEmpty("r", 50)
	equal(s, "dead-lettered", q.Counters[protocol.CountDeadLettered], 50)
	equal(s, "delivered", q.Counters[protocol.CountDelivered], 3)
}

// blockedOverRestart: a group that waits for its dead letter does so when the
// mesh starts again, also when the letter comes back in between.
func (s *suite) blockedOverRestart() {
	spec := s.fifo("r")
	spec.OnDeadLetter = protocol.DeadLetterBlock
	w := s.worker(spec)
	s.publish("r", []byte("A"))
	s.publish("r", []byte("B"))
	w.next().end(protocol.Rejected)
	letter := s.awaitLetters("r", 1)[0].MessageID
	s.Restart(s.T)
	s.await("r", "the group to be blocked", func(q protocol.QueueInfo) bool { return q.BlockedGroups == 1 && q.Consumers == 1 })
	s.stays("the group waits", func() bool { return len(w.deliveries) == 0 })
	equal(s, "redriven", s.act(protocol.SubjectDeadRedrive, protocol.DeadActRequest{MessageID: letter}), 1)
	d := w.next()
	equal(s, "message", string(d.Data), "A")
	s.Restart(s.T)
	s.await("r", "the letter to be known again", func(q protocol.QueueInfo) bool { return q.InFlight == 1 })
	if !s.Capabilities.Resumes {
		d = w.next()
		equal(s, "message again", string(d.Data), "A")
	}
	s.stays("the group waits", func() bool { return len(w.deliveries) == 0 })
	d.end(protocol.Acknowledged)
	d = w.next()
	equal(s, "message", string(d.Data), "B")
	d.end(protocol.Acknowledged)
	s.awaitEmpty("r", 0)
}

// fifoRandom: whatever becomes of deliveries, each group is handled in the order
// of publishing, and never twice at once.
func (s *suite) fifoRandom() {
	const groups, each = 7, 30
	seed := uint64(time.Now().UnixNano())
	s.Logf("seed %d", seed)
	c := newOrderChecker(s)
	var handlers sync.WaitGroup
	for i := range 3 {
		spec := s.fifo("r")
		spec.MaxRetries, spec.Concurrency = 1000, new(2+i)
		w := s.worker(spec)
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		handlers.Go(func() { c.work(w, rng) })
	}
	for n := range each {
		for g := range groups {
			s.publish("r", []byte(strconv.Itoa(n)), protocol.HeaderGroup, strconv.Itoa(g))
		}
	}
	q := s.awaitEmpty("r", 0)
	equal(s, "acknowledged", q.Counters[protocol.CountAcknowledged], groups*each)
	c.stop()
	handlers.Wait()
	for g := range groups {
		equal(s, "handled in order", c.done(strconv.Itoa(g)), each)
	}
}

// orderChecker watches the handlers of a FIFO queue.
type orderChecker struct {
	s    *suite
	quit chan struct{}
	stop func()

	mu      sync.Mutex
	next    map[string]int // by group: what is to be done
	running map[string]bool
}

func newOrderChecker(s *suite) *orderChecker {
	c := &orderChecker{s: s, quit: make(chan struct{}), next: make(map[string]int), running: make(map[string]bool)}
	c.stop = sync.OnceFunc(func() { close(c.quit) })
	s.Cleanup(c.stop)
	return c
}

// work ends each delivery in a random way.
func (c *orderChecker) work(w *worker, rng *rand.Rand) {
	var handlers sync.WaitGroup
	defer handlers.Wait()
	for {
		select {
		case d := <-w.deliveries:
			pause := time.Duration(rng.IntN(3)) * time.Millisecond
			outcome := []protocol.Outcome{
				protocol.Acknowledged, protocol.Acknowledged, protocol.Acknowledged, protocol.Failed, protocol.Cancelled,
			}[rng.IntN(5)]
			handlers.Go(func() { c.handle(d, pause, outcome) })
		case <-c.quit:
			return
		}
	}
}

func (c *orderChecker) handle(d delivery, pause time.Duration, outcome protocol.Outcome) {
	group := d.Header.Get(protocol.HeaderGroup)
	c.mu.Lock()
	if c.running[group] {
		c.s.Errorf("two of group %s are handled at once", group)
	}
	if want := strconv.Itoa(c.next[group]); string(d.Data) != want {
		c.s.Errorf("%s of group %s is handled, want %s", d.Data, group, want)
	}
	c.running[group] = true
	c.mu.Unlock()
	<-time.After(pause)
	c.mu.Lock()
	delete(c.running, group)
	if outcome == protocol.Acknowledged {
		c.next[group]++
	}
	c.mu.Unlock()
	d.end(outcome)
}

func (c *orderChecker) done(group string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.next[group]
}

// fifoOverRestart: the place, the attempt and the wait of a failed message
// survive, and what runs meanwhile keeps its group.
func (s *suite) fifoOverRestart() {
	s.unhurried("a group that is held over a restart", 2*time.Second, s.heldOverRestart)
}

func (s *suite) heldOverRestart(route string, wait time.Duration) bool {
	s.Helper()
	spec := s.fifo(route)
	spec.BackoffMs, spec.MaxRetries = wait.Milliseconds(), 5
	w := s.worker(spec)
	for _, name := range []string{"A", "B"} {
		s.publish(route, []byte(name), protocol.HeaderGroup, "held")
		s.publish(route, []byte(name), protocol.HeaderGroup, "runs")
	}
	first := map[string]delivery{}
	for range 2 {
		d := w.next()
		equal(s, "message", string(d.Data), "A")
		first[d.Header.Get(protocol.HeaderGroup)] = d
	}
	first["held"].end(protocol.Failed)
	if !s.meanwhile(w, route, "the group to be held", func(q protocol.QueueInfo) bool { return q.HeldGroups == 1 }) {
		return false
	}
	s.Restart(s.T)
	s.publish(route, []byte("C"), protocol.HeaderGroup, "runs")
	if !s.Capabilities.Resumes {
		s.groupsAgain(w, route)
		first["runs"].end(protocol.Acknowledged)
		return true
	}
	d := w.next()
	equal(s, "message", string(d.Data)+d.Header.Get(protocol.HeaderGroup), "Aheld")
	equal(s, "attempt", d.attempt(), 2)
	d.end(protocol.Acknowledged)
	d = w.next()
	equal(s, "message", string(d.Data)+d.Header.Get(protocol.HeaderGroup), "Bheld")
	d.end(protocol.Acknowledged)
	first["runs"].end(protocol.Acknowledged)
	for _, name := range []string{"Bruns", "Cruns"} {
		d := w.next()
		equal(s, "message", string(d.Data)+d.Header.Get(protocol.HeaderGroup), name)
		equal(s, "attempt", d.attempt(), 1)
		d.end(protocol.Acknowledged)
	}
	q := s.awaitEmpty(route, 0)
	equal(s, "acknowledged", q.Counters[protocol.CountAcknowledged], 5)
	equal(s, "delivered", q.Counters[protocol.CountDelivered], 6)
	return true
}

// groupsAgain is the end of fifoOverRestart where what ran is delivered again:
// nothing is passed, and the attempts are those of before.
func (s *suite) groupsAgain(w *worker, route string) {
	s.Helper()
	got := map[string][]string{}
	for range 5 {
		d := w.next()
		group := d.Header.Get(protocol.HeaderGroup)
		got[group] = append(got[group], fmt.Sprint(string(d.Data), d.attempt()))
		d.end(protocol.Acknowledged)
	}
	equal(s, "the group that waited", fmt.Sprint(got["held"]), "[A2 B1]")
	equal(s, "the group that ran", fmt.Sprint(got["runs"]), "[A1 B1 C1]")
	equal(s, "acknowledged", s.awaitEmpty(route, 0).Counters[protocol.CountAcknowledged], 5)
}

// priority: the highest first, and in order within one; what is above the
// queue's highest is that.
func (s *suite) priority() {
	if !s.Capabilities.Priorities {
		s.withoutPriorities()
		return
	}
	for i, p := range []string{"1", "9", "5", "0", "200", "9"} {
		s.publish("r", []byte(p+"-"+strconv.Itoa(i)), protocol.HeaderPriority, p)
	}
	s.publish("r", []byte("none-6"))
	spec := s.on("r")
	spec.Concurrency, spec.MaxPriority = new(1), 9
	w := s.worker(spec)
	got := make([]string, 0, 7)
	for range cap(got) {
		d := w.next()
		if len(got) == 0 { // it comes back to its place, before what is less urgent
			d.end(protocol.Cancelled)
			d = w.next()
		}
		published, _, _ := strings.Cut(string(d.Data), "-")
		if published == "0" || published == "none" {
			published = ""
		}
		equal(s, "priority", d.Header.Get(protocol.HeaderPriority), published)
		got = append(got, string(d.Data))
		d.end(protocol.Acknowledged)
	}
	if want := []string{"9-1", "200-4", "9-5", "5-2", "1-0", "0-3", "none-6"}; !slices.Equal(got, want) {
		s.Errorf("handled %v, want %v", got, want)
	}
}

// withoutPriorities: who asks for them is told that there are none, and has the
// messages all the same.
func (s *suite) withoutPriorities() {
	s.Helper()
	for _, p := range []string{"1", "9"} {
		s.publish("r", []byte(p), protocol.HeaderPriority, p)
	}
	spec := s.on("r")
	spec.MaxPriority = 9
	w := s.worker(spec)
	equal(s, "warnings", len(w.warnings), 1)
	for range 2 {
		d := w.next()
		equal(s, "priority", d.Header.Get(protocol.HeaderPriority), string(d.Data))
		d.end(protocol.Acknowledged)
	}
	s.awaitEmpty("r", 0)
}

// priorityIgnored: a queue without priorities, and one that keeps order, has
// none, and the latter's worker is told.
func (s *suite) priorityIgnored() {
	for _, spec := range []protocol.SubscriptionSpec{s.on("plain"), s.fifo("fifo")} {
		s.publish(spec.Route, []byte("low"), protocol.HeaderPriority, "1")
		s.publish(spec.Route, []byte("high"), protocol.HeaderPriority, "9")
		spec.Concurrency = new(1)
		if spec.Type == protocol.TypeFIFO {
			spec.MaxPriority = 9
		}
		w := s.worker(spec)
		if warned := len(w.warnings) > 0; warned != (spec.MaxPriority > 0) {
			s.Errorf("warnings on %s: %q", spec.Route, w.warnings)
		}
		for _, want := range []string{"low", "high"} {
			d := w.next()
			equal(s, "message", string(d.Data), want)
			d.end(protocol.Acknowledged)
		}
	}
}

// orderRefused: what no group or priority can be, and orders there are not.
func (s *suite) orderRefused() {
	for _, headers := range [][]string{
		{protocol.HeaderGroup, ""}, {protocol.HeaderGroup, strings.Repeat("g", protocol.MaxGroup+1)},
		{protocol.HeaderPriority, "256"}, {protocol.HeaderPriority, "-1"}, {protocol.HeaderPriority, "high"}, {protocol.HeaderPriority, ""},
		{protocol.HeaderGroup, "a", "waybill-group", "b"}, {protocol.HeaderPriority, "1", "WAYBILL-PRIORITY", "1"},
	} {
		_, refused := s.tryPublish(protocol.PublishQueueSubject(s.execution, "r"), []byte("x"), pairs(headers))
		if refused == nil || refused.Code != protocol.CodeInvalidArgs {
			s.Errorf("%q: %v", headers, refused)
		}
	}
	for _, change := range []func(*protocol.SubscriptionSpec){
		func(p *protocol.SubscriptionSpec) { p.Type = "lifo" },
		func(p *protocol.SubscriptionSpec) { p.Type, p.OnDeadLetter = protocol.TypeFIFO, "explode" },
		func(p *protocol.SubscriptionSpec) { p.OnDeadLetter = protocol.DeadLetterBlock },
	} {
		spec := s.on("r")
		change(&spec)
		if refused := s.unregistered().tryHello(spec); refused == nil || refused.Code != protocol.CodeInvalidArgs {
			s.Errorf("%+v: %v", spec, refused)
		}
	}
	equal(s, "stored", s.queue(s.execution, "r").Counters[protocol.CountPublished], 0)
}
