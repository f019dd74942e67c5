package router

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/waybill-mq/waybill/internal/closing"
	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
	"github.com/waybill-mq/waybill/services/router/broker"
)

// remote is what a lane has on a broker outside of the mesh.
type remote struct {
	*remoteBroker
	store broker.RemoteStore
	words words
	can   broker.Capabilities
	// looking are the queues of which it is being found out whether they hold
	// anything; emptied those that have moved elsewhere, of which it does not; of
	// those that are resting nothing is taken meanwhile.
	looking, emptied, resting map[string]bool
	writing                   int // publishes that are on their way
	binding                   int // queues that are being bound to their topics
	// leaving: it is not used any more, and left when nothing of it is in hand,
	// or by leaveBy (Service.clock).
	leaving bool
	leaveBy int64
}

// words are what publish answers say of a broker.
type words struct {
	stream string // up to the sequence
	broker string // between the message id and the listeners
}

func wordsFor(name, durability string) words {
	return words{
		stream: `{"stream":"WAYBILL_` + name + `","seq":`,
		broker: `","broker":"` + name + `","durability":"` + durability + `","listeners":`,
	}
}

// attachRemotes has a store on each of the placement's brokers.
func (l *lane) attachRemotes() {
	for _, b := range l.placed.brokers {
		name := l.placed.nameOf(b.id)
		if r := l.remoteOf(b.id); r != nil && r.remoteBroker == b {
			r.words = wordsFor(name, b.Durability())
			continue
		}
		store, ok := b.Attach(l.ledger, l).(broker.RemoteStore)
		if !ok {
			l.s.log.Error("a broker's store is none", "broker", b.id)
			continue
		}
		b.lanes.Add(1)
		l.remotes = append(l.remotes, &remote{
			remoteBroker: b, store: store, words: wordsFor(name, b.Durability()), can: b.Capabilities(),
			looking: make(map[string]bool), emptied: make(map[string]bool), resting: make(map[string]bool),
		})
	}
	for _, r := range l.remotes {
		for name := range r.store.Queues() {
			l.queue(name)
		}
	}
}

// remoteOf is the broker of an id that is not left; nil: there is none.
func (l *lane) remoteOf(id string) *remote {
	for _, r := range l.remotes {
		if r.id == id && !r.leaving {
			return r
		}
	}
	return nil
}

func (l *lane) closeRemotes() {
	for _, r := range l.remotes {
		r.store.Close()
		r.lanes.Add(-1)
	}
	l.remotes = nil
}

// drain takes nothing more.
func (l *lane) drain() {
	l.draining = true
	for _, q := range l.queues {
		q.demand()
	}
}

// storeFor is where what is published to a queue goes.
func (l *lane) storeFor(q *queue) broker.Store {
	if len(l.remotes) == 0 {
		return l.store
	}
	r := l.remoteOf(l.placed.routing.Of(q.name))
	if r == nil || q.kind == scope.KindListener && !r.can.TopicsOnly {
		return l.store
	}
	return r.store
}

// keepsNothing says whether the queue is one of a broker that keeps no message for
// whoever is not there.
func (q *queue) keepsNothing() bool {
	r := q.remote()
	return r != nil && r.can.TopicsOnly
}

// isRemote says whether an entry is on a broker: its key tells.
func isRemote(e *broker.Entry) bool { return e.Key&broker.RemoteKey != 0 }

// isRemote says whether what is published to the queue goes to a broker.
func (q *queue) isRemote() bool { return q.lane != nil && q.store != broker.Store(q.lane.store) }

// storeOf is what keeps an entry.
func (l *lane) storeOf(e *broker.Entry) broker.Store {
	if !isRemote(e) {
		return l.store
	}
	if r := l.remoteWith(e); r != nil {
		return r.store
	}
	return gone{}
}

// remoteWith is the broker that has an entry; nil: none has.
func (l *lane) remoteWith(e *broker.Entry) *remote {
	if !isRemote(e) {
		return nil
	}
	for _, r := range l.remotes {
		if r.store.Entry(e.Key) == e {
			return r
		}
	}
	return nil
}

// gone is the store of an entry that its broker has back.
type gone struct{}

func (gone) Publish(broker.Publish) error               { return errMoving }
func (gone) Demand(string, broker.Demand)               {}
func (gone) Message(*broker.Entry) *broker.Message      { return nil }
func (gone) Load([]*broker.Entry)                       {}
func (gone) Meta(e *broker.Entry) broker.Meta           { return broker.Meta{Queue: e.Queue.Name} }
func (gone) Settle(*broker.Entry, broker.Counter)       {}
func (gone) SettleNow(*broker.Entry, broker.Counter)    {}
func (gone) Return(*broker.Entry, broker.Meta) bool     { return false }
func (gone) Retry(*broker.Entry, broker.Meta) bool      { return false }
func (gone) DeadLetter(*broker.Entry, broker.Meta) bool { return false }

// entry is the live entry of that key, nil if there is none.
func (l *lane) entry(k ledger.Key) *broker.Entry {
	if k&broker.RemoteKey == 0 {
		return l.ledger.Entry(k)
	}
	for _, r := range l.remotes {
		if e := r.store.Entry(k); e != nil {
			return e
		}
	}
	return nil
}

// entriesIn are the live entries of some queues, wherever they are.
func (l *lane) entriesIn(in func(q *ledger.Queue) bool) iter.Seq[*broker.Entry] {
	return func(yield func(*broker.Entry) bool) {
		for e := range l.ledger.EntriesIn(in) {
			if !yield(e) {
				return
			}
		}
		for _, r := range l.remotes {
			for e := range r.store.Entries() {
				if in(e.Queue) && !yield(e) {
					return
				}
			}
		}
	}
}

// entriesOf are those of one queue.
func (l *lane) entriesOf(q *queue) iter.Seq[*broker.Entry] {
	return l.entriesIn(func(at *ledger.Queue) bool { return at.Name == q.name })
}

// far is how many of the queue's messages a broker has delivered here.
func (q *queue) far() int {
	n := 0
	if q.lane == nil {
		return 0
	}
	for _, r := range q.lane.remotes {
		n += r.store.Live(q.name)
	}
	return n
}

// isFar says whether a broker may hold messages of the queue.
func (l *lane) isFar(name string) bool {
	return slices.ContainsFunc(l.remotes, func(r *remote) bool { return r.store.Has(name) })
}

// countedFar are the counters of a queue of a broker's. No record of its messages
// is waited for, so that some of them are on their way to the log.
func (l *lane) countedFar(name string) map[string]uint64 { return ledger.Shown(l.counters(name)) }

func (l *lane) counters(name string) *[ledger.NumCounters]uint64 {
	sum := l.ledger.Uncommitted(name)
	if at := l.ledger.Queue(name); at != nil {
		for i, n := range at.Counters {
			sum[i] += n
		}
	}
	if q := l.queues[name]; q != nil && q.counts != nil {
		for i, n := range q.counts {
			sum[i] += n
		}
	}
	return &sum
}

// traced is what is kept of an entry's trace in memory.
func (l *lane) traced(e *broker.Entry) (spans string, lastFailure int64) {
	if !isRemote(e) {
		return l.ledger.Traced(e)
	}
	meta := l.storeOf(e).Meta(e)
	return meta.Spans, meta.LastFailure
}

// lookahead is how many messages more than its workers take a lane has of a
// queue in which one may have to wait for others.
const lookahead = 256

// demand tells the brokers that have messages of the queue what its consumers
// ask for. What nobody is there for goes back.
func (q *queue) demand() {
	l := q.lane
	if len(l.remotes) == 0 {
		return
	}
	d := broker.Demand{Window: q.window(), FIFO: q.policy.fifo, MaxPriority: q.policy.maxPriority}
	switch {
	case d.Window == 0 || l.draining:
		d.Window = 0
	case q.policy.Serial, q.policy.fifo: // always the same: to change it may change the order
		d.Window = q.most()
	case len(q.filters) > 0, q.jobs != nil, q.policy.maxPriority > 0:
		d.Window += lookahead
	}
	waits := l.waits(q)
	for _, r := range l.remotes {
		isNew := broker.Store(r.store) == q.store
		switch {
		case r.leaving, isNew && waits, r.resting[q.name]:
			r.store.Demand(q.name, broker.Demand{FIFO: d.FIFO, MaxPriority: d.MaxPriority})
		case isNew || r.store.Has(q.name):
			r.store.Demand(q.name, d)
		}
	}
	// What goes back once nothing is taken any more does not come again behind the others.
	l.giveBack(q, func(r *remote) bool { return d.Window == 0 || r.leaving })
}

// most is how many messages of a queue in order a lane has at once.
func (q *queue) most() int {
	if q.policy.Serial {
		return 1
	}
	return 2 * lookahead
}

// giveBack returns to its broker what is in nobody's hands, if it is one of these.
func (l *lane) giveBack(q *queue, of func(r *remote) bool) {
	for _, r := range l.remotes {
		if !of(r) {
			continue
		}
		var back []*broker.Entry
		for e := range r.store.Entries() {
			if e.Queue.Name == q.name && e.Slot == nil {
				back = append(back, e)
			}
		}
		slices.SortFunc(back, func(a, b *broker.Entry) int { return int(a.Key) - int(b.Key) })
		for _, e := range back {
			q.remove(e)
			q.end(e)
			r.store.GiveBack(e)
		}
	}
}

// received has an entry of a broker's say what its queue makes of its message.
func (l *lane) received(q *queue, e *broker.Entry, m *broker.Message) {
	if field := q.policy.GroupField; field != "" {
		e.Group = ledger.GroupOf(l.document.Input(m.Body).Member(field))
	}
	if q.policy.DelayMs == 0 || e.Attempt > 1 || e.Generation > 0 || !scheduled(e) {
		return
	}
	due := m.PublishedAt + q.policy.DelayMs*int64(time.Millisecond)
	if q.policy.fifo {
		due = max(due, q.lastDue)
		q.lastDue = due
	}
	e.Due = max(e.Due, due)
}

// staysInOrder says that a delayed entry waits where it is, lest it is passed.
func (l *lane) staysInOrder(e *broker.Entry) bool { return isRemote(e) && l.queueOf(e).groups != nil }

// maxDiverted bounds the groups of which it is remembered that a letter was
// followed: they are forgotten together.
const maxDiverted = 1 << 14

// divertArrivals has what a broker still holds of e's group follow it too.
func (l *lane) divertArrivals(q *queue, e *broker.Entry) {
	if !isRemote(e) {
		return
	}
	if l.divertedUntil == nil || len(l.divertedUntil) >= maxDiverted {
		l.divertedUntil = make(map[groupName]int64)
	}
	l.divertedUntil[groupName{q.name, q.groupOf(e)}] = l.wall
}

// follows says whether an entry was published before a dead letter of its group
// that it is to follow.
func (l *lane) follows(q *queue, e *broker.Entry, m *broker.Message) bool {
	if len(l.divertedUntil) == 0 || !isRemote(e) || q.groups == nil || e.Generation > 0 {
		return false
	}
	return m.PublishedAt <= l.divertedUntil[groupName{q.name, q.groupOf(e)}]
}

// storeOfPublish is where a publish goes: what is not due waits in the mesh.
func (q *queue) storeOfPublish(due int64) broker.Store {
	if due > 0 {
		return q.lane.store
	}
	return q.store
}

// wordsOf are those of who took a publish, or would have: nothing was stored of it.
func (l *lane) wordsOf(p *publication) *words {
	by := p.by
	if by == nil && len(l.remotes) > 0 && p.route.topic != "" {
		if r := l.remoteOf(l.placed.routing.OfTopic(p.route.topic)); r != nil {
			return &r.words
		}
	}
	for _, r := range l.remotes {
		if broker.Store(r.store) == by {
			return &r.words
		}
	}
	return &l.s.words
}

// tells is the broker that a publish to a topic goes to though nobody here wants it:
// others may. nil: none does.
func (l *lane) tells(topic string) *remote {
	if len(l.remotes) == 0 {
		return nil
	}
	r := l.remoteOf(l.placed.routing.OfTopic(topic))
	if r == nil || !r.can.TopicsOnly {
		return nil
	}
	return r
}

// part is what of a publish to a topic goes to one store.
type part struct {
	store broker.Store
	to    []broker.Copy
}

// publishTopic stores a publish for its topic's queues. What goes to brokers is
// stored first, and the rest once that is.
func (l *lane) publishTopic(p *publication, copies []broker.Copy) error {
	if len(l.remotes) == 0 {
		p.by = l.store
		return l.publishPart(p, part{l.store, copies})
	}
	var own []broker.Copy
	for i, q := range p.to {
		at := q.storeOfPublish(p.due)
		if at == broker.Store(l.store) {
			own = append(own, copies[i])
			continue
		}
		k := slices.IndexFunc(p.parts, func(x part) bool { return x.store == at })
		if k < 0 {
			k = len(p.parts)
			p.parts = append(p.parts, part{store: at})
		}
		p.parts[k].to = append(p.parts[k].to, copies[i])
	}
	if len(own) > 0 {
		p.parts = append(p.parts, part{l.store, own})
	}
	repeat := broker.Publish{Topic: p.route.topic, Dedup: p.dedup}
	if at := l.remembering(repeat, p.parts[0].store); at != p.parts[0].store {
		p.parts = []part{{at, copies}}
	}
	p.by = p.parts[0].store
	return l.nextPart(p)
}

func (l *lane) nextPart(p *publication) error {
	next := p.parts[0]
	p.parts = p.parts[1:]
	return l.publishPart(p, next)
}

func (l *lane) publishPart(p *publication, x part) error {
	p.at = x.store
	err := x.store.Publish(broker.Publish{
		Message: &p.message, Topic: p.route.topic, To: x.to, Due: p.due, Spans: p.spans(l.s.tracer), Dedup: p.dedup, Tag: p,
	})
	if err == nil {
		l.wrote(x.store, 1)
	}
	return err
}

// storedPart goes on with what is not stored yet.
func (l *lane) storedPart(p *publication, r broker.Receipt) {
	if len(p.parts) == 0 {
		l.storedTopic(p, r)
		return
	}
	if err := l.nextPart(p); err != nil {
		p.at = nil
		l.Refused(p, err)
	}
}

// bindRemote has a broker's queue receive its topic. What asks whether that is
// so is answered when it is.
func (l *lane) bindRemote(q *queue) {
	r := l.remoteAt(q.store)
	if r == nil {
		return
	}
	r.binding++
	l.bindings.binding++
	r.store.Bind(q.name, q.topic, func() {
		if !slices.Contains(l.remotes, r) {
			return // it was left meanwhile
		}
		r.binding--
		l.bindings.binding--
		l.bindings.answerReady()
	})
}

func (l *lane) unbindRemote(q *queue) {
	for _, r := range l.remotes {
		r.store.Unbind(q.name, q.topic)
	}
}

// purgeRemotes removes the queues of an execution.
func (l *lane) purgeRemotes(execution string) {
	for _, r := range l.remotes {
		var all []string
		for name := range r.store.Queues() {
			if closing.ExecutionOf(name) == execution {
				all = append(all, name)
			}
		}
		for _, name := range all {
			l.forgetRemote(name)
		}
	}
}

// forgetRemote removes a queue from the brokers that have it, with all it holds.
func (l *lane) forgetRemote(name string) {
	far := false
	for _, r := range l.remotes {
		far = far || r.store.Has(name)
		r.store.Forget(name)
	}
	if far {
		l.closeBooks(name, ledger.Discarded)
	}
}

// closeBooks counts what was on brokers, and is not there any more, as ended in
// that way, so that the ledger's counters say again what the ledger holds.
func (l *lane) closeBooks(name string, how ledger.Counter) {
	kept := int64(0)
	for e := range l.ledger.EntriesIn(func(q *ledger.Queue) bool { return q.Name == name }) {
		if !e.Decided {
			kept++
		}
	}
	c := l.counters(name)
	switch left := ledger.In(c) - ledger.Out(c) - kept; {
	case left > 0:
		l.ledger.Count(name, how, uint64(left))
	case left < 0:
		l.ledger.Count(name, ledger.Published, uint64(-left))
	}
}

// emptying says whether a broker has the queue. One that holds nothing any more
// is removed, which takes a moment.
func (l *lane) emptying(name string) bool {
	far := false
	for _, r := range l.remotes {
		if !r.store.Has(name) {
			continue
		}
		far = true
		if !r.looking[name] {
			r.looking[name] = true
			l.removeIfEmpty(r, name)
		}
	}
	return far
}

const lookTimeout = 5 * time.Second

// keyEpoch is where the lane's epoch is in the key of an entry that is on a broker, so
// that no owner of the lane uses another's keys.
const keyEpoch = 40

// Key is one for an entry that has arrived from a broker.
func (l *lane) Key() ledger.Key {
	l.arrived++
	return l.arrived
}

func (l *lane) removeIfEmpty(r *remote, name string) {
	l.lookAt(r, name, func(depth broker.Depth, err error) {
		delete(r.looking, name)
		if err == nil && depth.Ready+depth.Waiting+depth.Dead == 0 && r.store.Live(name)+r.store.Comes(name) == 0 {
			r.store.Forget(name)
			if !l.isFar(name) {
				l.closeBooks(name, ledger.WrittenOff)
			}
		}
	})
}

// lookAt has f called with what the broker has of a queue.
func (l *lane) lookAt(r *remote, name string, f func(broker.Depth, error)) {
	delays := r.delays(name)
	l.s.lanes.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), lookTimeout)
		defer cancel()
		depth, err := r.Depth(ctx, name, delays)
		l.Post(func() { f(depth, err) })
	})
}

func (r *remote) delays(name string) []int64 {
	for queue, delays := range r.store.Queues() {
		if queue == name {
			return delays
		}
	}
	return nil
}

// askFar looks for a group's dead letter on the broker that has it; false: the dlq
// service is to be asked. The group goes on when it is not there any more, nor among
// what the broker has to deliver yet: it may have been redriven.
func (l *lane) askFar(name groupName, x *block) bool {
	if !l.isFar(name.queue) {
		return false
	}
	if x.asking {
		return true
	}
	x.asking = true
	step := x.step
	var coming []farQueue
	if q := l.queues[name.queue]; q != nil && q.far() < q.most() {
		coming = l.farQueues(func(queue string) bool { return queue == name.queue })
	}
	l.s.lanes.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), lookTimeout)
		defer cancel()
		there := false
		for _, r := range l.s.placed().brokers {
			found, err := r.Browse(ctx, name.queue, 1, x.letter)
			there = there || err != nil || len(found) > 0
		}
		for i := 0; i < len(coming) && !there; i++ {
			depth, err := coming[i].look(ctx)
			there = err != nil || depth.Ready > 0
		}
		l.Post(func() {
			x.asking = false
			if l.blocks.all[name] == x && x.step == step && !there {
				l.blocks.remove(l, name)
			}
		})
	})
	return true
}

// farQueue is a queue of a lane's that a broker has.
type farQueue struct {
	*remoteBroker
	queue  string
	delays []int64
	live   int64 // delivered to the lane
	comes  int64 // may be on their way to the queue
	// refused: its execution is closed, so that nothing may be redriven.
	refused bool
	// consumed: the broker delivers its messages to the lane.
	consumed bool
}

// farQueues are the lane's that are wanted.
func (l *lane) farQueues(wanted func(queue string) bool) (all []farQueue) {
	for _, r := range l.remotes {
		for queue, delays := range r.store.Queues() {
			if wanted(queue) {
				q := l.queues[queue]
				all = append(all, farQueue{
					r.remoteBroker, queue, delays, int64(r.store.Live(queue)), int64(r.store.Comes(queue)), l.closed.Refuses(queue) != nil, q != nil && q.window() > 0 && !l.draining,
				})
			}
		}
	}
	return all
}

// look says how much the broker has of it. A message that is between two of the
// broker's queues is in none of its counts.
func (f *farQueue) look(ctx context.Context) (broker.Depth, error) {
	d, err := f.Depth(ctx, f.queue, f.delays)
	d.Waiting = max(d.Waiting, f.comes-d.Ready)
	return d, err
}

// errAway marks why a broker cannot be asked.
var errAway = errors.New("the broker is away")

// lookIfThere is look, with no waiting for a broker that is known to be away.
func (f *farQueue) lookIfThere(ctx context.Context) (broker.Depth, error) {
	if away := f.unheard(); away != nil {
		return broker.Depth{}, fmt.Errorf("%w: %w", errAway, away)
	}
	return f.look(ctx)
}

// farHeld is a queue on a broker, and what that has of it.
type farHeld struct {
	farQueue
	broker.Depth
}

// looksHeld is how often a lane looks at most for a count in which nothing moved.
const looksHeld = 5

// held looks at queues on brokers, which have to answer. What the lane gives back
// meanwhile would count in both places, and what it takes in none: then it looks again.
func (o *openLane) held(ctx context.Context, wanted func(queue string) bool) (all []farHeld, err error) {
	list := func(l *lane) []farQueue { return l.farQueues(wanted) }
	before, err := ask(ctx, o, list)
	for range looksHeld {
		all = all[:0]
		for i := 0; i < len(before) && err == nil; i++ {
			at := farHeld{farQueue: before[i]}
			if !at.Capabilities().TopicsOnly { // which keeps nothing
				at.Depth, err = at.lookIfThere(ctx)
			}
			all = append(all, at)
		}
		if err != nil {
			return nil, err
		}
		var after []farQueue
		if after, err = ask(ctx, o, list); err != nil || inHand(after) == inHand(before) {
			break
		}
		before = after
	}
	return all, err
}

// inHand is how many messages of these the lane has.
func inHand(far []farQueue) (n int64) {
	for i := range far {
		n += far[i].live
	}
	return n
}

// lookFar adds what brokers have of queues, or that it is not known.
func (s *Service) lookFar(ctx context.Context, queues []protocol.QueueInfo) error {
	if !s.hasBrokers() || len(queues) == 0 {
		return nil
	}
	at := make(map[string]*protocol.QueueInfo, len(queues))
	for i := range queues {
		at[queues[i].Queue] = &queues[i]
	}
	found, err := gather(ctx, s, func(l *lane) []farQueue {
		return l.farQueues(func(queue string) bool { return at[queue] != nil })
	})
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var looks errgroup.Group
	looks.SetLimit(looksAtOnce)
	for _, f := range slices.Concat(found...) {
		if f.Capabilities().TopicsOnly {
			continue // it keeps nothing
		}
		looks.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, lookTimeout)
			defer cancel()
			depth, err := f.look(ctx)
			if away := f.Away(); err != nil && away != nil {
				err = away
			}
			mu.Lock()
			defer mu.Unlock()
			q := at[f.queue]
			if err != nil {
				q.Unknown = protocol.AsError(err).Message
				return nil
			}
			q.Ready += depth.Ready
			q.Waiting += depth.Waiting
			q.Dead += depth.Dead
			return nil
		})
	}
	return looks.Wait()
}

// looksAtOnce is how many queues are looked at together.
const looksAtOnce = 8

// hasBrokers says whether messages may be outside of the mesh.
func (s *Service) hasBrokers() bool { return len(s.placed().brokers) > 0 }

// addFar adds what brokers hold of an execution. What a lane has of it twice, since
// it is on its way, only keeps it open a little longer.
func (o *openLane) addFar(ctx context.Context, execution string, reply *protocol.CloseReply) error {
	if !o.s.hasBrokers() {
		return nil
	}
	far, err := o.held(ctx, func(queue string) bool { return closing.ExecutionOf(queue) == execution })
	if errors.Is(err, errAway) {
		reply.Live, reply.Unknown = reply.Live+1, protocol.AsError(err).Message
		return nil
	}
	for i := range far {
		reply.Live += far[i].live + far[i].Ready + far[i].Waiting + far[i].Dead
	}
	return err
}

// definedFar adds what brokers hold of a named queue, and removes it if it is to
// be.
func (o *openLane) definedFar(ctx context.Context, q *protocol.LaneDefinition, told *protocol.LaneDefined) error {
	if !o.s.hasBrokers() {
		return nil
	}
	name := scope.JobsQueue(q.Queue)
	far, err := o.held(ctx, func(queue string) bool { return queue == name })
	if err != nil {
		return err
	}
	purge := q.Purge && !q.Check
	for i := range far {
		if purge {
			told.Discarded += far[i].live + far[i].Ready + far[i].Waiting
		} else {
			told.Jobs += far[i].live + far[i].Ready // what waits is told by who lists it
		}
	}
	if !purge || len(far) == 0 {
		return nil
	}
	_, err = ask(ctx, o, func(l *lane) bool { return l.purgeFar(name) })
	return err
}

// purgeFar discards what a broker has of a queue, and the queue with it.
func (l *lane) purgeFar(name string) bool {
	for _, r := range l.remotes {
		for e := range r.store.Entries() {
			if e.Queue.Name == name {
				l.drop(e)
			}
		}
	}
	l.forgetRemote(name)
	return true
}
