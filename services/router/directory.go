package router

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// directory follows the registry: who works on what. Events are hints that
// carry a whole record each, the newer of two being the one with the higher
// revision; everything is read again at start, when a connection is back, and
// every refreshEvery.
type directory struct {
	s     *Service
	known atomic.Bool // everything was read once
	again chan struct{}

	mu      sync.Mutex
	workers map[string]*registration
	lanes   map[*slot]bool // attached
	ended   map[string]ending
	applied uint64 // counts changes, so that a read knows what is newer than it
	read    int64  // when the last reading of everything began (Service.clock); 0: there was none
}

// registration is a worker as the registry last described it.
type registration struct {
	worker  *worker
	record  protocol.Worker
	byLane  map[int][]protocol.Subscription // of record, by the lane of their queues
	jobs    []protocol.ServedFunction       // of record, those it takes jobs for
	applied uint64
}

// ending is what is remembered of a worker that left, so that a list which was
// made before does not bring it back.
type ending struct {
	revision uint64
	at       time.Time
}

const (
	rememberEnding = time.Minute // longer than any list is under way

	refreshEvery = 10 * time.Second
	refreshRetry = 250 * time.Millisecond
	readTimeout  = 5 * time.Second
)

func newDirectory(s *Service) *directory {
	return &directory{
		s: s, again: make(chan struct{}, 1),
		workers: make(map[string]*registration), lanes: make(map[*slot]bool), ended: make(map[string]ending),
	}
}

// run reads everything again and again until ctx ends.
func (d *directory) run(ctx context.Context) {
	for ctx.Err() == nil {
		wait := refreshEvery
		if err := d.refresh(ctx); err != nil {
			d.s.log.Debug("the registry could not be read", "error", err)
			wait = refreshRetry
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-d.again:
		case <-ctx.Done():
		}
		t.Stop()
	}
}

// refreshSoon makes run read again at once.
func (d *directory) refreshSoon() {
	select {
	case d.again <- struct{}{}:
	default:
	}
}

// refresh reads every worker. Who is missing has left, unless something newer
// was heard of it meanwhile.
func (d *directory) refresh(ctx context.Context) error {
	now := d.s.clock(time.Now())
	d.mu.Lock()
	began := d.applied
	d.mu.Unlock()
	there := make(map[string]bool)
	after := ""
	for more := true; more; {
		page, err := d.page(ctx, after)
		if err != nil {
			return err
		}
		d.s.set(page.Settings)
		for _, w := range page.Workers {
			there[w.ID] = true
			after = w.ID
			d.apply(w)
		}
		more = page.More && len(page.Workers) > 0
	}
	d.removeOthers(there, began)
	d.mu.Lock()
	d.read = now
	maps.DeleteFunc(d.ended, func(_ string, e ending) bool { return time.Since(e.at) > rememberEnding })
	d.mu.Unlock()
	if !d.known.Swap(true) {
		d.wakeLanes()
	}
	return nil
}

func (d *directory) page(ctx context.Context, after string) (protocol.WorkersPage, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return mesh.Request[protocol.WorkersPage](ctx, d.s.bulk, protocol.SubjectWorkers, protocol.WorkersRequest{After: after})
}

// removeOthers removes those that the registry did not list, except who showed
// lately that it is there: a registry may have to learn again who is.
func (d *directory) removeOthers(there map[string]bool, began uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	alive := d.s.clock(time.Now()) - probeSilence
	for id, r := range d.workers {
		if !there[id] && r.applied <= began && r.worker.seen.Load() <= alive {
			gone := r.record
			gone.Gone = true
			d.applyLocked(gone)
		}
	}
}

// wakeLanes lets lanes see that the registry is known now.
func (d *directory) wakeLanes() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for at := range d.lanes {
		at.send(call((*lane).toldAll))
	}
}

// changed takes an event.
func (d *directory) changed(m *nats.Msg) {
	var e protocol.WorkerChanged
	if err := json.Unmarshal(m.Data, &e); err != nil || e.Worker.ID == "" {
		d.s.log.Warn("an event of the registry cannot be read", "error", err)
		return
	}
	d.s.set(e.Settings)
	d.apply(e.Worker)
}

// readSince says whether everything has been read since then.
func (d *directory) readSince(then int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.read > then
}

// confirm takes a record and has the lane do f once it has taken it over;
// false if the lane is not told what the directory knows (any more, or yet).
func (d *directory) confirm(at *slot, w protocol.Worker, f func(l *lane)) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.lanes[at] {
		return false
	}
	d.applyNewer(w)
	return at.send(call(f))
}

// apply takes a record, unless a newer one is known.
func (d *directory) apply(w protocol.Worker) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.applyNewer(w)
}

func (d *directory) applyNewer(w protocol.Worker) {
	if e, over := d.ended[w.ID]; over && w.KVRevision <= e.revision {
		return
	}
	if w.Gone {
		d.ended[w.ID] = ending{revision: w.KVRevision, at: time.Now()}
	}
	if r := d.workers[w.ID]; r != nil && (w.KVRevision < r.record.KVRevision || w.KVRevision == r.record.KVRevision && !w.Gone) {
		r.applied = d.tick(r.applied, w.KVRevision == r.record.KVRevision)
		return
	}
	d.applyLocked(w)
}

// tick is the count of a change; what is only confirmed keeps its own.
func (d *directory) tick(was uint64, confirmed bool) uint64 {
	if !confirmed {
		return was
	}
	d.applied++
	return d.applied
}

func (d *directory) applyLocked(w protocol.Worker) {
	d.applied++
	r := d.workers[w.ID]
	if r == nil {
		if w.Gone {
			return
		}
		r = &registration{worker: &worker{id: w.ID, name: w.Name, told: ledger.Worker{ID: w.ID, Name: w.Name}}}
		r.worker.seen.Store(d.s.clock(time.Now()))
		d.workers[w.ID] = r
	}
	before, served := r.byLane, r.server()
	r.record, r.byLane, r.jobs, r.applied = w, d.byLane(w), takesJobs(&w), d.applied
	if w.Gone {
		delete(d.workers, w.ID)
		d.s.presence.left(r.worker)
	}
	for at := range d.lanes {
		d.tell(at, r, before)
		d.tellJobs(at, r, &served)
	}
}

// server is the worker as one who takes jobs.
func (r *registration) server() server {
	return server{worker: r.worker, namespace: cmp.Or(r.record.Namespace, protocol.DefaultNamespace), since: r.record.Since, frames: r.record.Frames, functions: r.jobs}
}

// tellJobs sends a lane what a worker takes jobs for, if that is not what it was
// before.
func (d *directory) tellJobs(at *slot, r *registration, before *server) {
	now := r.server()
	if before != nil && before.frames == now.frames && slices.Equal(before.functions, now.functions) || before == nil && len(now.functions) == 0 {
		return
	}
	at.send(call(func(l *lane) { l.serve(now) }))
}

// byLane sorts a worker's subscriptions by the lanes of their queues.
func (d *directory) byLane(w protocol.Worker) map[int][]protocol.Subscription {
	if w.Gone {
		return nil
	}
	n := len(d.s.slots())
	byLane := make(map[int][]protocol.Subscription)
	for _, sub := range w.Subscriptions {
		i := ledger.Of(sub.Queue, n)
		byLane[i] = append(byLane[i], sub)
	}
	return byLane
}

// tell sends a lane what a worker has in it, if it has or had anything.
func (d *directory) tell(at *slot, r *registration, before map[int][]protocol.Subscription) {
	subs := r.byLane[at.index]
	if len(subs) == 0 && len(before[at.index]) == 0 {
		return
	}
	w, since, frames := r.worker, r.record.Since, r.record.Frames
	at.send(call(func(l *lane) { l.follow(w, since, frames, subs) }))
}

// attach tells a lane everything, and from then on every change.
func (d *directory) attach(at *slot) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lanes[at] = true
	for _, r := range d.workers {
		d.tell(at, r, nil)
		d.tellJobs(at, r, nil)
	}
	if d.known.Load() {
		at.send(call((*lane).toldAll))
	}
}

func (d *directory) detach(at *slot) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.lanes, at)
}

// worker is the worker of that id, nil if it is not known.
func (d *directory) worker(id string) *worker {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r := d.workers[id]; r != nil {
		return r.worker
	}
	return nil
}

// all are the workers there are.
func (d *directory) all() []*worker {
	d.mu.Lock()
	defer d.mu.Unlock()
	ws := make([]*worker, 0, len(d.workers))
	for _, r := range d.workers {
		ws = append(ws, r.worker)
	}
	return ws
}

// follow makes a worker's consumers in the lane what the registry says.
func (l *lane) follow(w *worker, since time.Time, frames string, subs []protocol.Subscription) {
	before := l.consumers[w]
	now := make(map[string]*consumer, len(subs))
	for _, sub := range subs {
		c := before[sub.ID]
		if c == nil || c.Queue != sub.Queue {
			c = newConsumer(l.queue(sub.Queue), w, since, sub)
		} else {
			c.update(since, sub)
			c.proven()
		}
		c.frames = frames
		now[sub.ID] = c
		c.q.attach(c)
		c.q.demand()
		l.attended(c.q)
		l.tuned(c.q)
		l.wake(c.q)
	}
	for id, c := range before {
		if now[id] != c {
			c.q.detach(c)
			c.q.demand()
			l.unattended(c.q)
		}
	}
	if len(now) == 0 {
		delete(l.consumers, w)
		return
	}
	l.consumers[w] = now
}
