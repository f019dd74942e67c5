package router

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker"
)

// Where publishes of a queue go may change while it is used. What is there already is
// delivered from where it is. In a FIFO queue nothing of the new place is delivered
// before the old one holds nothing of it any more.

const (
	lookAgain = int64(200 * time.Millisecond)
	// noticed is how long a broker may take to notice that the connections of the lane's
	// last owner are dead, and to have again what was unsettled there.
	noticed = int64(10 * time.Second)
	// unbindAfter is how long a queue receives its topic where it was before: publishes
	// are on their way there.
	unbindAfter = int64(10 * time.Second)
	// leaveMost is how long a broker that is left may have deliveries in hand.
	leaveMost = int64(time.Minute)
)

// moves is what a lane has to do for queues that have moved.
type moves struct {
	waiting   map[*queue]bool     // queues whose new place waits for the old ones, or that are to go on: whether these are looked at
	unbinding map[unbinding]int64 // when (Service.clock)
	leaving   bool                // brokers are left
	retired   []string            // ids of brokers of which notes are to be forgotten
	lookAt    int64               // Service.clock
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
	l.moves.retire(l.placed, p)
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
	l.forgetRetired()
}

// move has a queue's publishes go where they are to.
func (l *lane) move(q *queue) {
	switch now := l.storeFor(q); {
	case now != q.store && (!l.isUsed(q.store) || !l.movesStill(q) || l.isStranded(q)):
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
	if q.bound != nil && !q.bound.Ended && !l.leaveUnattended(q) {
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

// isStranded says whether a queue is where nothing new is taken, and nobody is there to
// bring it to the end of its move. Should it turn out to be in order, only what is
// published from then on is kept behind the rest.
func (l *lane) isStranded(q *queue) bool {
	r := l.remoteAt(q.store)
	if r == nil || q.topic != "" || q.policy.fifo || len(q.consumers) > 0 {
		return false
	}
	at := l.placed.place(r.id)
	return at == nil || at.State != protocol.BrokerActive
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
	if waits {
		l.moves.wait(q)
	}
	return waits
}

// wait has it looked at soon whether a queue can go on.
func (m *moves) wait(q *queue) {
	if _, known := m.waiting[q]; known {
		return
	}
	if m.waiting == nil {
		m.waiting = make(map[*queue]bool)
	}
	m.waiting[q] = false
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
		_, waits := q.lane.moves.waiting[q]
		return q.isRemote() && waits && q.lane.storeOf(e) == q.store
	}
	return q.transit.lasts() && !q.isRemote() && e.Key >= q.transit.From
}

// unpark delivers it when it has not to wait any more.
func (l *lane) unpark(q *queue) {
	if !q.transit.lasts() && len(q.parked) == 0 || l.waits(q) || len(q.consumers) == 0 && q.jobs == nil {
		return
	}
	l.endMove(q)
	if l.storeFor(q) != q.store { // it was to go elsewhere meanwhile
		l.moves.wait(q)
	}
	parked := q.parked
	q.parked = nil
	for _, e := range parked {
		q.add(e)
	}
}

// remembering is where a publish goes that is to go to a store: if another has taken the
// same before, under its id, that answers it.
func (l *lane) remembering(p broker.Publish, to broker.Store) broker.Store {
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

func remembers(s broker.Store, p broker.Publish) bool {
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
	for q, looking := range m.waiting {
		if looking {
			continue
		}
		if !l.waits(q) {
			delete(m.waiting, q)
			l.unpark(q)
			l.moveOn(q)
			continue
		}
		l.lookBehind(q)
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

// lookBehind looks whether brokers that have had the queue hold anything of it. It is
// known that they do not when they say so while nobody takes anything from it, and
// nothing of it is here.
func (l *lane) lookBehind(q *queue) {
	behind := l.behind(q)
	if len(behind) == 0 || !l.nothingHere(q, behind) {
		return
	}
	l.moves.waiting[q] = true
	l.seeBehind(q, behind, false, func(empty bool) {
		if empty && l.nothingHere(q, behind) {
			l.lookAlone(q, behind)
			return
		}
		l.lookLater(q)
	})
}

// behind are the brokers that may hold what comes before.
func (l *lane) behind(q *queue) (all []*remote) {
	for _, r := range l.remotes {
		if !r.emptied[q.name] && l.isElsewhere(q, r) {
			all = append(all, r)
		}
	}
	return all
}

// nothingHere says whether nothing of those brokers' is on its way here, or there. What
// the lane's last owner had comes back in a while.
func (l *lane) nothingHere(q *queue, behind []*remote) bool {
	if q.before > 0 || !l.hasEndedAll(q) && l.now < l.bindings.since+noticed {
		return false
	}
	return !slices.ContainsFunc(behind, func(r *remote) bool { return r.store.Live(q.name)+r.store.Comes(q.name) > 0 })
}

// hasEndedAll says whether, by the counters, all has that was published before the
// queue moved: they miss what a killed owner had not written yet. While a queue waits
// nothing of its new place ends.
func (l *lane) hasEndedAll(q *queue) bool {
	return q.transit.lasts() && q.transit.Until > 0 && ledger.Out(l.counters(q.name)) >= q.transit.Until
}

// lookAlone looks once more with nobody taking anything.
func (l *lane) lookAlone(q *queue, behind []*remote) {
	left, still := len(behind), true
	for _, r := range behind {
		r.resting[q.name] = true
		r.store.Rest(q.name, func(nothingCame bool) {
			still = still && nothingCame
			left--
			switch {
			case left > 0:
				return
			case !still:
				l.lookedAlone(q, behind, false)
				return
			}
			l.seeBehind(q, behind, true, func(empty bool) { l.lookedAlone(q, behind, empty && l.nothingHere(q, behind)) })
		})
	}
}

// lookedAlone has what waited for empty places go on, or those be taken from again.
func (l *lane) lookedAlone(q *queue, behind []*remote, empty bool) {
	for _, r := range behind {
		delete(r.resting, q.name)
		if empty && broker.Store(r.store) != q.store {
			r.emptied[q.name] = true
		}
	}
	l.lookLater(q)
	if q.lane == l { // it is still there
		l.unpark(q)
		q.demand()
	}
}

func (l *lane) lookLater(q *queue) {
	if _, waits := l.moves.waiting[q]; waits {
		l.moves.waiting[q] = false
	}
}

// seeBehind asks the brokers themselves whether they hold nothing of a queue, and if
// that is the question, whether nobody has anything of it either.
func (l *lane) seeBehind(q *queue, behind []*remote, alone bool, f func(empty bool)) {
	delays := make([][]int64, len(behind))
	for i, r := range behind {
		delays[i] = r.delays(q.name)
	}
	l.s.lanes.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), lookTimeout)
		defer cancel()
		empty := true
		for i, r := range behind {
			depth, err := r.Depth(ctx, q.name, delays[i])
			empty = empty && err == nil && depth.Ready+depth.Waiting == 0 && (!alone || depth.Taken == 0)
		}
		l.Post(func() { f(empty) })
	})
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
		l.bindings.binding -= r.binding
		l.bindings.answerReady()
		return true
	})
	if len(l.remotes) < before {
		for _, q := range l.queues {
			l.move(q)
		}
		l.forgetRetired()
	}
}

func isIdle(s broker.RemoteStore) bool { return len(entriesAt(s)) == 0 }

func entriesAt(s broker.RemoteStore) (all []*broker.Entry) {
	for e := range s.Entries() {
		all = append(all, e)
	}
	return all
}
