package router

import (
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/tracing"
	"github.com/waybill-mq/waybill/services/router/broker"
)

const (
	verdictBatch   = 1024 // deliveries of a question
	verdictsOnce   = 4    // questions under way
	verdictTimeout = time.Second
	verdictMinWait = 50 * time.Millisecond // before asking again
	verdictMaxWait = 2 * time.Second

	// maxJudging bounds a queue's failed deliveries whose verdicts are awaited:
	// beyond it nothing more is dispatched from the queue. While the retry
	// service is away they are fewer, since what failed stays in memory.
	maxJudging     = 16384
	maxJudgingAway = 1024
)

// executable are the verdicts this router knows.
var executable = []protocol.Verdict{
	protocol.VerdictSettle, protocol.VerdictRetryAt, protocol.VerdictHold,
	protocol.VerdictDeadLetter, protocol.VerdictReturn,
}

// verdicts asks the retry service what becomes of a lane's failures, in
// batches. While that service is away they wait here, without room of their
// queue's window.
type verdicts struct {
	waiting []*delivery
	asked   []question
	number  uint64 // of the last question
	until   int64  // nothing is asked before
	wait    time.Duration
}

// question is one that is under way. What is the same in every respect is
// decided the same, so it is asked once: those that fail at once often are.
type question struct {
	number     uint64
	deliveries []*delivery
	items      []int // of the question, by delivery
	distinct   int   // items
	until      int64 // its answer counts until then
}

// judge gives a delivery that ended to the retry service.
func (l *lane) judge(d *delivery, what protocol.Outcome, text string) {
	d.stage, d.outcome, d.text, d.at = judged, what, text, l.wall
	d.endSpan(what, text)
	if d.c != nil {
		d.took = l.now - d.started
	}
	d.q.judging++
	l.open.Add(1)
	l.verdicts.waiting = append(l.verdicts.waiting, d)
}

// tick asks for what waits, once the registry is known: its policies matter.
func (v *verdicts) tick(l *lane) {
	for i := range slices.Backward(v.asked) {
		if l.now >= v.asked[i].until {
			v.failed(l, i, "no answer in time")
		}
	}
	if l.now < v.until || !l.s.directory.known.Load() || !l.s.next.known() {
		return
	}
	for len(v.waiting) > 0 && len(v.asked) < v.once() {
		v.ask(l)
	}
}

// once is how many questions may be under way: a service that was away is tried
// with one.
func (v *verdicts) once() int {
	if v.wait > 0 {
		return 1
	}
	return verdictsOnce
}

// most is how many of a queue's failures may wait for their verdicts.
func (v *verdicts) most() int {
	if v.wait > 0 {
		return maxJudgingAway
	}
	return maxJudging
}

// all are the deliveries whose verdicts are awaited.
func (v *verdicts) all() []*delivery {
	all := slices.Clone(v.waiting)
	for _, q := range v.asked {
		all = append(all, q.deliveries...)
	}
	return all
}

func (v *verdicts) ask(l *lane) {
	n := min(len(v.waiting), verdictBatch)
	v.number++
	q := question{number: v.number, deliveries: slices.Clone(v.waiting[:n]), until: l.now + int64(verdictTimeout)}
	v.waiting = slices.Delete(v.waiting, 0, n)
	request := q.request()
	v.asked = append(v.asked, q)
	if err := l.s.ask(protocol.SubjectDecide, l.inbox(askVerdicts, q.number), request); err != nil {
		v.failed(l, len(v.asked)-1, err.Error())
	}
}

// next is when tick has to be called.
func (v *verdicts) next(l *lane) int64 {
	next := l.now + int64(idle)
	if len(v.waiting) > 0 && len(v.asked) < v.once() {
		next = max(v.until, l.now+int64(verdictMinWait))
	}
	for _, q := range v.asked {
		next = min(next, q.until)
	}
	return next
}

func (q *question) request() protocol.DecideRequest {
	r := protocol.DecideRequest{Verdicts: executable}
	known := make(map[protocol.DecideItem]int)
	q.items = make([]int, len(q.deliveries))
	for i, d := range q.deliveries {
		item := d.item()
		n, is := known[item]
		if !is {
			n = len(r.Items)
			known[item] = n
			r.Items = append(r.Items, item)
		}
		q.items[i] = n
	}
	q.distinct = len(r.Items)
	return r
}

// item is what is asked about a delivery.
func (d *delivery) item() protocol.DecideItem {
	p := d.policy().on(d.q)
	return protocol.DecideItem{
		Outcome: d.outcome, At: d.at, Attempt: d.e.Attempt,
		Vanished: d.e.Vanished, Incomplete: d.e.Incomplete,
		MaxRetries: p.maxRetries, BackoffMs: p.backoffMs, BackoffType: p.BackoffType,
		FIFO: d.q.groups != nil, RetryAfterMs: d.afterMs,
	}
}

func (d *delivery) policy() policy {
	if d.c != nil {
		return d.c.policy()
	}
	return *d.q.policy
}

// failed puts a question back, to be asked again a little later.
func (v *verdicts) failed(l *lane, i int, why string) {
	if v.wait == 0 {
		l.s.log.Warn("the retry service does not answer; failed deliveries wait", "lane", l.slot.name, "error", why)
	}
	v.wait = min(max(2*v.wait, verdictMinWait), verdictMaxWait)
	v.until = l.now + int64(v.wait)
	v.waiting = append(v.asked[i].deliveries, v.waiting...)
	v.asked = slices.Delete(v.asked, i, i+1)
}

// answered executes an answer of the retry service. One to a question that was
// given up, and is asked again, changes nothing.
func (v *verdicts) answered(l *lane, number uint64, m *nats.Msg) {
	i := slices.IndexFunc(v.asked, func(q question) bool { return q.number == number })
	if i < 0 {
		return
	}
	q := v.asked[i]
	decisions, err := readDecisions(m, q.distinct)
	if err != nil {
		v.failed(l, i, err.Error())
		return
	}
	for k, d := range q.deliveries {
		l.execute(d, decisions[q.items[k]])
	}
	v.asked = slices.Delete(v.asked, i, i+1)
	v.until, v.wait = 0, 0
}

func readDecisions(m *nats.Msg, want int) ([]protocol.Decision, error) {
	if m.Header.Get(protocol.HeaderStatus) != "" {
		return nil, errors.New("nobody is there")
	}
	var reply protocol.DecideReply
	if err := json.Unmarshal(m.Data, &reply); err == nil && len(reply.Items) == want {
		return reply.Items, nil
	}
	if e := protocol.ParseErrorBody(m.Data); e != nil {
		return nil, e
	}
	return nil, errors.New("the answer is not one verdict for each question")
}

// execute records what becomes of a delivery.
func (l *lane) execute(d *delivery, v protocol.Decision) {
	e, q, what := d.e, d.q, d.outcome
	q.judging--
	if l.closed.Purged(q.name) {
		l.free(e)
		l.drop(e)
		l.countEnd(e, what)
		return
	}
	d.stage = recording
	meta := l.storeOf(e).Meta(e)
	meta.Attempt, meta.Vanished, meta.Incomplete, meta.Due = v.Attempt, v.Vanished, v.Incomplete, v.Due
	d.spanned(&meta)
	meta.Tell(d.event(v))
	if q.groups != nil && v.Verdict == protocol.VerdictRetryAt {
		v.Verdict = protocol.VerdictHold // whoever said it does not know of order
	}
	v.Verdict = l.feasible(e, v.Verdict)
	var done bool
	switch v.Verdict {
	case protocol.VerdictSettle:
		l.free(e)
		l.settle(e, q, ledger.Discarded)
		done = true
	case protocol.VerdictHold:
		d.failure(&meta)
		done = l.countIf(l.storeOf(e).Return(e, meta), e, ledger.Retried)
	case protocol.VerdictRetryAt:
		d.failure(&meta)
		done = l.countIf(l.wait(e, meta), e, ledger.Retried)
	case protocol.VerdictDeadLetter:
		d.failure(&meta)
		meta.Reason, meta.Due = v.Reason, 0
		done = l.deadLetter(q, e, meta)
	default: // return
		done = l.storeOf(e).Return(e, meta)
	}
	if !done && isRemote(e) && l.entry(e.Key) == nil {
		l.count(q, ledger.Superseded) // the broker has it back, and delivers it again
		l.free(e)
		q.end(e)
		return
	}
	if !done {
		l.about(e).Error("a verdict could not be recorded", "verdict", v.Verdict)
		l.count(q, ledger.Lost)
		l.free(e)
		return
	}
	l.countEnd(e, what)
	l.wake(q)
}

// feasible is what the broker that has an entry can do of a verdict: where nothing is
// tried again, and nothing is kept that failed, a failure is a message's end.
func (l *lane) feasible(e *broker.Entry, v protocol.Verdict) protocol.Verdict {
	r := l.remoteWith(e)
	if r == nil {
		return v
	}
	if !r.can.Retries && (v == protocol.VerdictRetryAt || v == protocol.VerdictHold) {
		v = protocol.VerdictDeadLetter
	}
	if !r.can.DeadLetters && v == protocol.VerdictDeadLetter {
		v = protocol.VerdictSettle
	}
	return v
}

// deadLetter gives a message up. What that means for its group is recorded with
// it, first.
func (l *lane) deadLetter(q *queue, e *broker.Entry, meta broker.Meta) bool {
	if q.groups == nil {
		return l.giveUp(e, meta)
	}
	switch q.policy.onDeadLetter {
	case protocol.DeadLetterBlock:
		l.blocks.add(l, q, e)
	case protocol.DeadLetterDivert:
		return l.divert(q, e, meta)
	case protocol.DeadLetterContinue, "":
	}
	return l.giveUp(e, meta)
}

// giveUp hands an entry over to the dead letters, to those of the mesh if its broker
// takes no copy of it; false: it has left already, or nobody knows where they are.
func (l *lane) giveUp(e *broker.Entry, meta broker.Meta) bool {
	return l.countIf(l.storeOf(e).DeadLetter(e, meta) || l.takeOver(l.remoteWith(e), e, meta), e, ledger.DeadLettered)
}

// countIf counts what was staged, if it was.
func (l *lane) countIf(staged bool, e *broker.Entry, c ledger.Counter) bool {
	if staged {
		l.countWith(e, c)
	}
	return staged
}

// countEnd counts a delivery, and how it ended.
func (l *lane) countEnd(e *broker.Entry, what protocol.Outcome) {
	l.countWith(e, ledger.Delivered)
	switch what {
	case protocol.Failed, protocol.Timeout:
		l.countWith(e, ledger.Failed)
	case protocol.Rejected:
		l.countWith(e, ledger.Rejected)
	case protocol.Vanished:
		l.countWith(e, ledger.Vanished)
	default:
		l.countWith(e, ledger.Incomplete)
	}
}

// event is the delivery in its message's story.
func (d *delivery) event(v protocol.Decision) ledger.Event {
	e := ledger.Event{
		Kind: ledger.Attempted, At: d.at, Generation: d.e.Generation, Attempt: d.e.Attempt,
		Outcome: d.outcome, Took: d.took, Error: d.text, Due: v.Due,
	}
	if d.c != nil {
		e.Worker, e.WorkerID, e.Subscription = d.c.worker.name, d.c.worker.id, d.c.ID
	}
	if d.span != nil {
		e.Trace = []byte(tracing.Ref(d.span.SpanContext()))
	}
	return e
}

// failure writes the delivery's end into its message's story.
func (d *delivery) failure(meta *ledger.Meta) {
	meta.LastFailure = d.at
	if meta.FirstFailure == 0 {
		meta.FirstFailure = d.at
	}
	meta.Error = d.text
	meta.Source = ""
	if d.c != nil {
		meta.Source = d.c.ID
	}
	if d.text == "" && d.outcome != protocol.Failed && d.outcome != protocol.Rejected {
		meta.Error = "the answer was " + string(d.outcome)
	}
}
