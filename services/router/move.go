package router

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/services/router/broker"
)

// Where publishes of a queue go may change while it is used. What is there already is
// delivered from where it is. In a FIFO queue nothing of the new place is delivered
// before the old one holds nothing of it any more.

const (
	lookAgain = int64(200 * time.Millisecond)
	// emptySights is how often a broker has to hold nothing of a queue, with nothing come
	// from it meanwhile, when as many of its messages have ended as were published before
	// it moved. unsureSights is it when fewer have, by the counters: they miss what a
	// killed owner had not written yet. What is on its way to the lane is seen nowhere.
	emptySights  = 5
	unsureSights = 25
	// trusted is how fast a broker has to say that a queue is empty to be believed: one
	// that is busy says so, as RabbitMQ does, of what it could not look at in time.
	trusted = 200 * time.Millisecond
	// unbindAfter is how long a queue receives its topic where it was before: publishes
	// are on their way there.
	unbindAfter = int64(10 * time.Second)
	// leaveMost is how long a broker that is left may have deliveries in hand.
	leaveMost = int64(time.Minute)
)

// moves is what a lane has to do for queues that have moved.
type moves struct {
	waiting   map[*queue]*sight   // FIFO queues whose new place waits for the old ones
	unbinding map[unbinding]int64 // when (Service.clock)
	leaving   bool                // brokers are left
	lookAt    int64               // Service.clock
}

// sight is what was seen of the old places of a queue.
type sight struct {
	looking bool
	empty   int // looks that have found nothing since one has found something
	arrived int64
}

// unbinding is a queue that is not to receive its topic at a broker any more.
type unbinding struct {
	q *queue
	r *remote
}

// place has the lane keep messages where p says. What an older one says comes too late.
func (l *lane) place(p *placement) {
	if p.order <= l.placed.order {
		return
	}
	l.placed = p
	for _, r := range l.remotes {
		r.leaving = !slices.Contains(p.brokers, r.remoteBroker)
		switch {
		case !r.leaving:
			r.leaveBy = 0
		case r.leaveBy == 0:
			r.leaveBy = l.now + leaveMost
		}
		l.moves.leaving = l.moves.leaving || r.leaving
	}
	l.attachRemotes()
	for _, q := range l.queues {
		l.move(q)
	}
}

// move has a queue's publishes go where they are to.
func (l *lane) move(q *queue) {
	switch now := l.storeFor(q); {
	case now != q.store && (!l.isUsed(q.store) || !l.movesStill(q)):
		l.moveTo(q, now)
	case q.transit == nil: // the last owner did not come to note it
		l.beginMove(q)
	default:
		l.forgetMove(q)
	}
	l.unbindElsewhere(q)
	if len(q.consumers) > 0 || q.jobs != nil {
		q.demand()
	}
	l.unpark(q)
}

func (l *lane) moveTo(q *queue, to broker.Store) {
	last := q.transit
	q.store, q.before, q.transit = to, q.staged, nil
	l.beginMove(q)
	if last != nil && q.transit == nil {
		l.noteMove(q)
	}
	q.renew() // another broker may have other defaults
	if q.bound != nil && !q.bound.Ended {
		l.bindRemote(q)
		l.rebound(q)
	}
	if r := l.remoteAt(to); r != nil {
		delete(r.emptied, q.name)
	}
}

// movesStill says whether a queue has not come to the end of an earlier move. Those of
// a topic move together: what is published to it reaches all that are at its broker.
func (l *lane) movesStill(q *queue) bool {
	t := l.topics[q.topic]
	if q.topic == "" || t == nil {
		return l.isMoving(q)
	}
	return slices.ContainsFunc(t.queues, l.isMoving)
}

func (l *lane) isMoving(q *queue) bool { return q.transit.lasts() || l.waits(q) }

// transit is the move of a queue that is in order, or of which nobody has said whether
// it is: a note in the lane's ledger, so that the next owner goes on with it. It is
// kept while a broker has the queue that had it before: where what came first is cannot
// be seen from what the brokers hold.
type transit struct {
	To string `json:"to"` // the broker's id
	// From is the first that comes after what is elsewhere, of what is in the mesh.
	From ledger.Key `json:"from,omitempty"`
	// Until is how many messages of the queue have ended when all have that were published
	// before; 0: nobody knows.
	Until int64 `json:"until,omitempty"`
	// Emptied are the ids of brokers that held nothing any more of what comes before
	// when the move had Ended.
	Emptied []string `json:"emptied,omitempty"`
	Ended   bool     `json:"ended,omitempty"`
}

// lasts says whether there may be something that comes before.
func (t *transit) lasts() bool { return t != nil && !t.Ended }

const movingNote = "moving/" // followed by the queue's name

// beginMove notes a move, if there is anything elsewhere that comes before.
func (l *lane) beginMove(q *queue) {
	unknown := len(q.consumers) == 0 && (q.jobs == nil || q.jobs.definition == nil)
	if !q.policy.fifo && !unknown || !l.isBehind(q) {
		return
	}
	m := &transit{To: l.s.builtin.Name(), Until: ledger.In(l.counters(q.name)) + q.before}
	if r := l.remoteAt(q.store); r != nil {
		m.To = r.id
	} else {
		for e := range l.ledger.EntriesIn(func(of *ledger.Queue) bool { return of.Name == q.name }) {
			m.From = max(m.From, e.Key+1)
		}
	}
	q.transit = m
	l.noteMove(q)
}

// noteMove notes what q.transit says.
func (l *lane) noteMove(q *queue) {
	var value []byte
	var err error
	if q.transit != nil {
		value, err = json.Marshal(q.transit)
	}
	if err == nil {
		err = l.ledger.PutNote(movingNote+q.name, value, nil)
	}
	if err != nil {
		l.s.log.Error("the move of a queue cannot be noted", "queue", q.name, "error", err)
	}
}

// resumeMove has a queue be where it was with the lane's last owner, and goes on with
// its move.
func (l *lane) resumeMove(q *queue) {
	if len(l.remotes) == 0 {
		return
	}
	value := l.ledger.Note(movingNote + q.name)
	if value == nil {
		return
	}
	m := new(transit)
	if err := json.Unmarshal(value, m); err != nil {
		l.s.log.Warn("a note about a queue's move cannot be read", "queue", q.name, "error", err)
		return
	}
	r := l.remoteOf(m.To)
	switch {
	case r != nil:
		q.transit, q.store = m, r.store
	case m.To == l.s.builtin.Name():
		q.transit, q.store = m, l.store
	}
	for _, id := range m.Emptied {
		if r := l.remoteOf(id); r != nil {
			r.emptied[q.name] = true
		}
	}
}

// endMove ends a move when nothing comes before any more.
func (l *lane) endMove(q *queue) {
	if !q.transit.lasts() || l.waits(q) {
		return
	}
	q.transit.Ended = true
	for _, r := range l.remotes {
		if r.emptied[q.name] {
			q.transit.Emptied = append(q.transit.Emptied, r.id)
		}
	}
	l.noteMove(q)
	l.forgetMove(q)
}

// forgetMove forgets a move that has ended when no broker has the queue that had it
// before.
func (l *lane) forgetMove(q *queue) {
	elsewhere := func(r *remote) bool { return l.isElsewhere(q, r) }
	if q.transit == nil || !q.transit.Ended || slices.ContainsFunc(l.remotes, elsewhere) {
		return
	}
	q.transit = nil
	l.noteMove(q)
}

// isUsed says whether the lane has that store still.
func (l *lane) isUsed(s broker.Store) bool { return s == broker.Store(l.store) || l.remoteAt(s) != nil }

// remoteAt is whose store it is; nil: the mesh's own.
func (l *lane) remoteAt(s broker.Store) *remote {
	for _, r := range l.remotes {
		if broker.Store(r.store) == s {
			return r
		}
	}
	return nil
}

// isElsewhere says whether a broker has had the queue that is not the one it is on.
func (l *lane) isElsewhere(q *queue, r *remote) bool {
	if broker.Store(r.store) == q.store || !r.store.Has(q.name) {
		return false
	}
	at := l.remoteAt(q.store)
	return at == nil || at.id != r.id
}

// rebound has the time that a queue receives its topic without a consumer begin anew
// where that ends.
func (l *lane) rebound(q *queue) {
	if q.bound.DetachedAt.IsZero() {
		return
	}
	delete(l.bindings.retained, q)
	if q.isRemote() {
		return
	}
	settings := l.s.setting()
	q.bound.Until = time.Unix(0, l.wall).UTC().Add(settings.SubscriberRetention())
	l.bindings.retain(q)
	l.noteBinding(q)
}

// unbindElsewhere ends that a queue receives its topic where it is not any more.
func (l *lane) unbindElsewhere(q *queue) {
	if q.bound == nil || q.topic == "" {
		return
	}
	for _, r := range l.remotes {
		u := unbinding{q, r}
		if _, known := l.moves.unbinding[u]; known || !l.isElsewhere(q, r) {
			continue
		}
		if l.moves.unbinding == nil {
			l.moves.unbinding = make(map[unbinding]int64)
		}
		l.moves.unbinding[u] = l.now + unbindAfter
	}
}

// waits says whether what is published to a queue now is not delivered yet: it is in
// order, and what was published before is elsewhere still.
func (l *lane) waits(q *queue) bool {
	if !q.policy.fifo || len(l.remotes)+len(l.placed.absent) == 0 {
		return false
	}
	waits := l.isBehind(q)
	if waits && l.moves.waiting[q] == nil {
		if l.moves.waiting == nil {
			l.moves.waiting = make(map[*queue]*sight)
		}
		l.moves.waiting[q] = &sight{}
	}
	return waits
}

// isBehind says whether there may be anything elsewhere that was published before.
func (l *lane) isBehind(q *queue) bool {
	if q.before > 0 {
		return true
	}
	for _, r := range l.remotes {
		if !r.emptied[q.name] && l.isElsewhere(q, r) {
			return true
		}
	}
	for _, b := range l.placed.absent { // of which nobody knows what it holds
		if l.ledger.Note(broker.PlaceNote(b.ID, q.name)) != nil {
			return true
		}
	}
	return false
}

// park keeps what is at a queue's new place from being delivered while it has to wait,
// and until all that came there before it goes on; false: it has not.
func (q *queue) park(e *broker.Entry) bool {
	if !q.isNew(e) || len(q.parked) == 0 && !q.lane.waits(q) {
		return false
	}
	q.parked = append(q.parked, e)
	return true
}

// isNew says whether an entry came to the new place of a queue that moves. A broker that
// had the queue before may deliver what is new until its consumer has ended.
func (q *queue) isNew(e *broker.Entry) bool {
	if isRemote(e) {
		return q.isRemote() && q.lane.moves.waiting[q] != nil && q.lane.storeOf(e) == q.store
	}
	return q.transit.lasts() && !q.isRemote() && e.Key >= q.transit.From
}

// unpark delivers it when it has not to wait any more.
func (l *lane) unpark(q *queue) {
	if !q.transit.lasts() && len(q.parked) == 0 || l.waits(q) || len(q.consumers) == 0 && q.jobs == nil {
		return
	}
	l.endMove(q)
	parked := q.parked
	q.parked = nil
	for _, e := range parked {
		q.add(e)
	}
}

// remembering is where a publish goes that is to go to a store: if another has taken the
// same before, under its id, that answers it.
func (l *lane) remembering(p *broker.Publish, to broker.Store) broker.Store {
	if p.Dedup == "" || len(l.remotes) == 0 || remembers(to, p) {
		return to
	}
	if remembers(l.store, p) {
		return l.store
	}
	for _, r := range l.remotes {
		if remembers(r.store, p) {
			return r.store
		}
	}
	return to
}

func remembers(s broker.Store, p *broker.Publish) bool {
	r, can := s.(broker.Remembering)
	return can && r.Remembers(p)
}

// wrote keeps account of publishes that are on their way to a store.
func (l *lane) wrote(at broker.Store, n int) {
	for _, r := range l.remotes {
		if broker.Store(r.store) == at {
			r.writing += n
		}
	}
}

// landed says that a publish to a queue is stored, or refused.
func (l *lane) landed(p *publication, q *queue) {
	if q.before > 0 && p.by != q.store {
		q.before--
	}
}

// tick looks whether what new places wait for is over.
func (m *moves) tick(l *lane) {
	if l.now < m.lookAt || len(m.waiting)+len(m.unbinding) == 0 && !m.leaving {
		return
	}
	m.lookAt = l.now + lookAgain
	for q, x := range m.waiting {
		if x.looking {
			continue
		}
		if !l.waits(q) {
			delete(m.waiting, q)
			l.unpark(q)
			l.moveOn(q)
			continue
		}
		l.lookBehind(q, x)
	}
	for u, at := range m.unbinding {
		if l.unbindAt(u, at) {
			delete(m.unbinding, u)
		}
	}
	if m.leaving {
		l.letGo()
	}
}

// moveOn has a queue that has come to the end of a move go where it was to meanwhile,
// and others of its topic with it.
func (l *lane) moveOn(q *queue) {
	l.move(q)
	if t := l.topics[q.topic]; q.topic != "" && t != nil {
		for _, other := range t.queues {
			l.move(other)
		}
	}
}

func (m *moves) next(l *lane) int64 {
	if len(m.waiting) > 0 || len(m.unbinding) > 0 || m.leaving {
		return max(m.lookAt, l.now)
	}
	return l.now + int64(idle)
}

// lookBehind looks whether brokers that have had the queue hold anything of it.
func (l *lane) lookBehind(q *queue, x *sight) {
	var behind []*remote
	for _, r := range l.remotes {
		if r.emptied[q.name] || !l.isElsewhere(q, r) {
			continue
		}
		if r.store.Live(q.name) > 0 || r.store.Comes(q.name) > 0 || x.arrived != q.arrived || q.before > 0 {
			x.empty, x.arrived = 0, q.arrived
			return
		}
		behind = append(behind, r)
	}
	delays := make([][]int64, len(behind))
	for i, r := range behind {
		delays[i] = r.delays(q.name)
	}
	x.looking = true
	l.s.lanes.Go(func() {
		saw := seeBehind(q.name, behind, delays)
		l.Post(func() { l.looked(q, x, behind, saw) })
	})
}

// seen is what a look has found.
type seen int

const (
	unsure seen = iota
	nothing
	something
)

// seeBehind asks the brokers themselves.
func seeBehind(name string, behind []*remote, delays [][]int64) seen {
	ctx, cancel := context.WithTimeout(context.Background(), lookTimeout)
	defer cancel()
	saw := nothing
	for i, r := range behind {
		began := time.Now()
		depth, err := r.Depth(ctx, name, delays[i])
		switch {
		case err == nil && depth.Ready+depth.Waiting > 0:
			return something
		case err != nil || time.Since(began) >= trusted:
			saw = unsure
		}
	}
	return saw
}

func (l *lane) looked(q *queue, x *sight, behind []*remote, saw seen) {
	x.looking = false
	switch {
	case saw == something || x.arrived != q.arrived:
		x.empty, x.arrived = 0, q.arrived
		return
	case saw == unsure: // says nothing of the looks before it
		return
	}
	x.empty++
	if x.empty < l.sightsFor(q) {
		return
	}
	for _, r := range behind {
		if broker.Store(r.store) != q.store {
			r.emptied[q.name] = true
		}
	}
	l.unpark(q)
}

// sightsFor is how many looks have to find nothing. While a queue waits nothing of its
// new place ends, so that its counter says whether all of before have.
func (l *lane) sightsFor(q *queue) int {
	if m := q.transit; m.lasts() && m.Until > 0 && ledger.Out(l.counters(q.name)) >= m.Until {
		return emptySights
	}
	return unsureSights
}

// unbindAt unbinds when the time has come; true: there is nothing more to do.
func (l *lane) unbindAt(u unbinding, at int64) bool {
	switch {
	case !slices.Contains(l.remotes, u.r) || !l.isElsewhere(u.q, u.r):
		return true // it is there again, or the broker is not
	case l.now < at || u.r.writing > 0 && l.now < at+leaveMost:
		return false
	}
	u.r.store.Unbind(u.q.name, u.q.topic)
	return true
}

// busyAt is how much there is to be done at a broker beside its messages.
func (l *lane) busyAt(id string) (n int64) {
	for _, r := range l.remotes {
		if r.id == id {
			n += int64(r.writing)
		}
	}
	for u := range l.moves.unbinding {
		if u.r.id == id {
			n++
		}
	}
	return n
}

// letGo leaves the brokers of which nothing is in hand any more.
func (l *lane) letGo() {
	l.moves.leaving = false
	before := len(l.remotes)
	l.remotes = slices.DeleteFunc(l.remotes, func(r *remote) bool {
		if !r.leaving {
			return false
		}
		if l.now < r.leaveBy && (r.writing > 0 || !isIdle(r.store)) {
			l.moves.leaving = true
			return false
		}
		for _, e := range entriesAt(r.store) {
			l.Lost(e)
		}
		r.store.Close()
		r.lanes.Add(-1)
		return true
	})
	if len(l.remotes) < before {
		for _, q := range l.queues {
			l.move(q)
		}
	}
}

func isIdle(s broker.RemoteStore) bool { return len(entriesAt(s)) == 0 }

func entriesAt(s broker.RemoteStore) (all []*broker.Entry) {
	for e := range s.Entries() {
		all = append(all, e)
	}
	return all
}
