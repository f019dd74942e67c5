package registry

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// directory is what this registry knows of the bucket's workers. The records
// in it are never changed, only replaced.
type directory struct {
	mu      sync.RWMutex
	workers map[string]*workerDoc
	byQueue map[string]map[string]*protocol.Subscription // by queue and subscription id
	ended   map[string]ending
}

// ending is the end of a worker's registration, which what is late on its way
// must not undo: an older record that is still being read, or a declaration.
type ending struct {
	revision uint64 // of the record
	left     uint64 // the newest declaration before a Bye
	at       time.Time
}

// endingKept is how long an ending is remembered, at least.
const endingKept = time.Minute

func newDirectory() *directory {
	return &directory{workers: map[string]*workerDoc{}, byQueue: map[string]map[string]*protocol.Subscription{}, ended: map[string]ending{}}
}

// apply takes a record if it is newer than what is known; one that says Gone
// takes the worker out.
func (d *directory) apply(doc *workerDoc) (changed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	old := d.workers[doc.ID]
	if old != nil && old.KVRevision >= doc.KVRevision || d.ended[doc.ID].revision >= doc.KVRevision {
		return false
	}
	d.removeLocked(old)
	if doc.Gone {
		d.ended[doc.ID] = ending{revision: doc.KVRevision, left: d.ended[doc.ID].left, at: time.Now()}
		return true
	}
	d.workers[doc.ID] = doc
	for i := range doc.Subscriptions {
		sub := &doc.Subscriptions[i]
		if d.byQueue[sub.Queue] == nil {
			d.byQueue[sub.Queue] = map[string]*protocol.Subscription{}
		}
		d.byQueue[sub.Queue][sub.ID] = sub
	}
	return true
}

// drop takes a worker out, unless it is known by a newer record.
func (d *directory) drop(id string, revision uint64) (dropped bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	old := d.workers[id]
	if old == nil || old.KVRevision > revision {
		return false
	}
	d.removeLocked(old)
	return true
}

// left says whether a declaration is one from before its worker's Bye.
func (d *directory) left(worker string, declaration uint64) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	last := d.ended[worker].left
	return last > 0 && declaration <= last
}

// leave notes a worker's Bye. Its record may be known from elsewhere already.
func (d *directory) leave(worker string, declaration uint64) {
	if declaration == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.ended[worker]
	e.left, e.at = max(e.left, declaration), time.Now()
	d.ended[worker] = e
}

// forgetEnded forgets the endings that nothing can be late for any more: all
// that was written before the time has been read.
func (d *directory) forgetEnded(before time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.ended, func(_ string, e ending) bool { return e.at.Before(before) && time.Since(e.at) > endingKept })
}

func (d *directory) removeLocked(doc *workerDoc) {
	if doc == nil {
		return
	}
	delete(d.workers, doc.ID)
	for i := range doc.Subscriptions {
		sub := &doc.Subscriptions[i]
		delete(d.byQueue[sub.Queue], sub.ID)
		if len(d.byQueue[sub.Queue]) == 0 {
			delete(d.byQueue, sub.Queue)
		}
	}
}

// worker is a worker's record, nil if it is not known.
func (d *directory) worker(id string) *workerDoc {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.workers[id]
}

// revisions are the workers and the revision each is known by.
func (d *directory) revisions() map[string]uint64 {
	d.mu.RLock()
	defer d.mu.RUnlock()
	revisions := make(map[string]uint64, len(d.workers))
	for id, doc := range d.workers {
		revisions[id] = doc.KVRevision
	}
	return revisions
}

// all are the workers, in order of id.
func (d *directory) all() []*workerDoc {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return slices.SortedFunc(maps.Values(d.workers), func(a, b *workerDoc) int { return strings.Compare(a.ID, b.ID) })
}

// isServed says whether somebody serves a function of that id, in any
// namespace.
func (d *directory) isServed(id string) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	for _, doc := range d.workers {
		if slices.ContainsFunc(doc.Functions, func(f protocol.ServedFunction) bool { return f.ID == id }) {
			return true
		}
	}
	return false
}

func (d *directory) size() (workers, subscriptions, functions int) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	for _, doc := range d.workers {
		subscriptions += len(doc.Subscriptions)
		functions += len(doc.Functions)
	}
	return len(d.workers), subscriptions, functions
}

// differences warns where a worker's subscription and another of the same
// queue ask for different policies.
func (d *directory) differences(w *protocol.Worker) []string {
	d.mu.RLock()
	defer d.mu.RUnlock()
	var warnings []string
	for i := range w.Subscriptions {
		sub := &w.Subscriptions[i]
		for _, other := range d.byQueue[sub.Queue] {
			if other.ID != sub.ID && policyOf(other) != policyOf(sub) {
				warnings = append(warnings, d.differenceLocked(sub, other))
				break
			}
		}
	}
	return warnings
}

func (d *directory) differenceLocked(sub, other *protocol.Subscription) string {
	newest, name := sub, "unknown"
	if other.Since.After(sub.Since) {
		newest = other
	}
	if w := d.workers[other.Worker]; w != nil {
		name = w.Name
	}
	return fmt.Sprintf("%s asks for %s on %s, but %s of worker %s for %s: the newest subscription's policy holds for the queue, which is %s; give all the same",
		sub.Name, sayPolicy(sub), sub.Queue, other.Name, name, sayPolicy(other), sayPolicy(newest))
}

func sayPolicy(sub *protocol.Subscription) string {
	return fmt.Sprintf("max_retries %d, backoff_ms %d, timeout_ms %d", sub.MaxRetries, sub.BackoffMs, sub.TimeoutMs) + sayOrder(policyOf(sub))
}
