package router

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

// definitions are those of the named queues, as this router knows them. They are
// read from the registry as the workers are; a change of one is also brought to
// the queue's lane by whoever makes it, who waits until the lane has it.
type definitions struct {
	s     *Service
	again chan struct{}

	mu       sync.Mutex
	queues   map[string]definition // by name
	known    bool                  // everything was read once
	revision uint64                // there is such a configuration, or a newer one
}

// definition is one queue's.
type definition struct {
	config   *protocol.QueueDefinition // nil: it was removed
	revision uint64                    // of the configuration that has it so
}

func newDefinitions(s *Service) *definitions {
	return &definitions{s: s, again: make(chan struct{}, 1), queues: make(map[string]definition)}
}

var (
	errNotDefined   = protocol.Errorf(protocol.CodeUnavailable, "this router has not read how the queues are defined: enqueue again")
	errDefinedLater = protocol.Errorf(protocol.CodeConflict, "the queue was defined anew meanwhile")
)

// of is a queue's definition. NOT_FOUND: there is no such queue.
func (d *definitions) of(name string) (*protocol.QueueDefinition, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if config := d.queues[name].config; config != nil {
		return config, nil
	}
	if !d.known {
		return nil, errNotDefined
	}
	return nil, notDefined(name)
}

func notDefined(name string) error {
	return protocol.Errorf(protocol.CodeNotFound, "no queue is called %s: define it (waybill queue define %s), or see which there are (waybill queue ls)", name, name)
}

// run reads the definitions again and again until ctx ends.
func (d *definitions) run(ctx context.Context) {
	for ctx.Err() == nil {
		wait := refreshEvery
		if err := d.read(ctx); err != nil {
			d.s.log.Debug("the definitions of queues could not be read", "error", err)
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

// readSoon makes run read again at once.
func (d *definitions) readSoon() {
	select {
	case d.again <- struct{}{}:
	default:
	}
}

// changed takes an event.
func (d *definitions) changed(m *nats.Msg) {
	var e protocol.ConfigChanged
	if err := json.Unmarshal(m.Data, &e); err != nil {
		d.s.log.Warn("an event of the registry cannot be read", "error", err)
		return
	}
	d.mu.Lock()
	d.revision = max(d.revision, e.Revision)
	d.mu.Unlock()
	d.readSoon()
}

// read reads all definitions, and those of one revision: pages between which
// something was changed do not belong together.
func (d *definitions) read(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	var all protocol.DefinitionsPage
	after := ""
	for more := true; more; {
		page, err := mesh.Request[protocol.DefinitionsPage](ctx, d.s.bulk, protocol.SubjectDefinitions, protocol.DefinitionsRequest{After: after})
		if protocol.CodeOf(err) == protocol.CodeUnavailable && d.s.directory.known.Load() && !d.isKnown() {
			break // a registry of before there were any
		}
		if err != nil {
			return err
		}
		if after != "" && page.Revision != all.Revision {
			return errDefinedLater
		}
		all.Revision = page.Revision
		all.Queues = append(all.Queues, page.Queues...)
		if more = page.More && len(page.Queues) > 0; more {
			after = page.Queues[len(page.Queues)-1].Queue
		}
	}
	return d.takeAll(&all)
}

// takeAll takes what was read. It is an error if that is older than what is
// known to be there.
func (d *definitions) takeAll(all *protocol.DefinitionsPage) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.ContainsFunc(all.Queues, func(q protocol.DefinedQueue) bool { return q.Queue == protocol.DefaultQueue }) {
		all.Queues = append(all.Queues, protocol.DefinedQueue{Queue: protocol.DefaultQueue, Config: protocol.DefaultQueueDefinition()})
	}
	there := make(map[string]bool, len(all.Queues))
	for i := range all.Queues {
		q := &all.Queues[i]
		there[q.Queue] = true
		d.takeLocked(q.Queue, definition{config: &q.Config, revision: all.Revision})
	}
	for name := range d.queues {
		if !there[name] {
			d.takeLocked(name, definition{revision: all.Revision})
		}
	}
	d.known = true
	if all.Revision < d.revision {
		return errDefinedLater
	}
	return nil
}

// takeLocked takes a definition that is not older than the known one, and tells
// the queue's lane if it is another.
func (d *definitions) takeLocked(name string, now definition) {
	before, known := d.queues[name]
	if known && now.revision < before.revision {
		return
	}
	d.queues[name] = now
	if before.config == now.config || before.config != nil && now.config != nil && *before.config == *now.config {
		return
	}
	d.tell(name, now.config)
}

func (d *definitions) tell(name string, config *protocol.QueueDefinition) {
	d.s.slotOf(scope.JobsQueue(name)).send(call(func(l *lane) { l.define(name, config) }))
}

// take takes one definition from whoever makes it.
func (d *definitions) take(name string, now definition) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.revision = max(d.revision, now.revision)
	d.takeLocked(name, now)
}

// attach tells a lane all definitions of its queues.
func (d *definitions) attach(at *slot) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, x := range d.queues {
		if x.config != nil && d.s.slotOf(scope.JobsQueue(name)) == at {
			d.tell(name, x.config)
		}
	}
}

// isKnown says whether all definitions were read once.
func (d *definitions) isKnown() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.known
}

// slotOf is the lane of a queue.
func (s *Service) slotOf(queue string) *slot {
	all := s.slots()
	if len(all) == 0 {
		return nil
	}
	return all[ledger.Of(queue, len(all))]
}

// define takes what a named queue of the lane is to be from whoever makes it so,
// and answers when the lane does so.
func (o *openLane) define(ctx context.Context, q protocol.LaneDefinition) (protocol.LaneDefined, error) {
	if err := scope.CheckQueue(q.Queue); err != nil {
		return protocol.LaneDefined{}, err
	}
	if q.Config != nil {
		if err := q.Config.Validate(); err != nil {
			return protocol.LaneDefined{}, err
		}
	}
	if !q.Check {
		o.s.definitions.take(q.Queue, definition{config: q.Config, revision: q.Revision})
	}
	told, err := ask(ctx, o, func(l *lane) protocol.LaneDefined { return l.defined(&q) })
	if err == nil {
		err = o.definedFar(ctx, &q, &told)
	}
	return told, err
}

// defined answers how many jobs of a queue the lane has, once those are
// discarded that are to be.
func (l *lane) defined(q *protocol.LaneDefinition) (told protocol.LaneDefined) {
	at := l.ledger.Queue(scope.JobsQueue(q.Queue))
	if at == nil {
		return told
	}
	for e := range l.ledger.EntriesIn(func(of *ledger.Queue) bool { return of == at }) {
		if q.Purge && !q.Check && l.drop(e) {
			told.Discarded++
		}
		if e.Slot != settled {
			told.Jobs++
		}
	}
	return told
}
