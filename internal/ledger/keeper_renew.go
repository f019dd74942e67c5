package ledger

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/waybill-mq/waybill/internal/document"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// renew rewrites the service's record with our beat, takes and frees ledgers
// there, and brings the open ones in line with it.
func (k *Keeper) renew(ctx context.Context) error {
	began := time.Now()
	closed, kept := k.closedOnes(), k.kept()
	var (
		now     leases
		surplus []string
	)
	err := k.rewrite(ctx, func(t *leases) {
		t.renew(k.o.Instance, k.seen.silent(time.Now(), k.o.Lease, t.Instances))
		for _, name := range closed {
			if t.Holders[name] == k.o.Instance {
				delete(t.Holders, name)
			}
		}
		surplus = t.share(k.o.Instance, k.all)
		for _, name := range surplus {
			if !kept[name] { // of an earlier life, which ended without leaving: there is nothing to stop
				delete(t.Holders, name)
			}
		}
		now = *t
	})
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.beaten = began
	for _, name := range closed {
		delete(k.leaving, name)
	}
	if len(closed) > 0 {
		k.hint()
	}
	k.others = k.seen.beating(k.o.Instance)
	k.follow(&now, surplus)
	return nil
}

// closedOnes are released ledgers that have closed and can be freed.
func (k *Keeper) closedOnes() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var names []string
	for name, s := range k.leaving {
		select {
		case <-s.done:
			names = append(names, name)
		default:
		}
	}
	return names
}

// kept are the ledgers that this process has, or has not closed yet.
func (k *Keeper) kept() map[string]bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	names := make(map[string]bool, len(k.slots)+len(k.leaving))
	for name := range k.slots {
		names[name] = true
	}
	for name := range k.leaving {
		names[name] = true
	}
	return names
}

// follow opens what the record gives us, and releases what it gives others or
// what is too much. A ledger that is still closing is not opened before it has
// closed.
func (k *Keeper) follow(t *leases, surplus []string) {
	held := t.held(k.o.Instance)
	for name, s := range k.slots {
		if held[name] && !slices.Contains(surplus, name) {
			continue
		}
		k.o.Logger.Info("ledger is released", "ledger", name, "holder", t.Holders[name])
		s.release(context.Background())
		k.leaving[name] = s
		delete(k.slots, name)
	}
	for name := range held {
		if k.slots[name] == nil && k.leaving[name] == nil && !slices.Contains(surplus, name) {
			k.slots[name] = newSlot(name, k.o, k.wakeUp)
		}
	}
	k.orphans = nil
	for _, name := range k.all {
		switch holder, ok := t.Holders[name]; {
		case !ok:
			k.orphans = append(k.orphans, name+" has no owner yet")
		case holder != k.o.Instance && !k.seen[holder].beating:
			k.orphans = append(k.orphans, fmt.Sprintf("%s belongs to %s, which is not heard of yet", name, holder))
		}
	}
}

// unwritten says why the record could not be written, and if it is for want of
// room, what to do.
func (k *Keeper) unwritten(err error) error {
	if noRoom(err) {
		return protocol.Errorf(protocol.CodeUnavailable, "NATS has no room for the leases of %s (%v): give its disk room and start it again", k.o.Service, err)
	}
	return fmt.Errorf("writing the leases of %s: %w", k.o.Service, err)
}

// wakeUp makes the beating goroutine look at once.
func (k *Keeper) wakeUp() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// rewrite changes the service's record, by compare and set, until no other
// instance was faster or ctx ends.
func (k *Keeper) rewrite(ctx context.Context, change func(*leases)) error {
	for {
		var t leases
		revision, err := k.read(ctx, &t)
		if err != nil {
			return fmt.Errorf("reading the leases of %s: %w", k.o.Service, err)
		}
		if err := k.checkTail(ctx, &t); err != nil {
			return err
		}
		change(&t)
		err = k.write(ctx, &t, revision)
		if err == nil {
			return nil
		}
		if !errors.Is(err, jetstream.ErrKeyExists) && !errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
			return k.unwritten(err)
		}
		wait(ctx, rand.N(20*time.Millisecond)) //nolint:gosec // spreads writers, is no secret
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// read reads the record and its revision, 0 if there is none.
func (k *Keeper) read(ctx context.Context, t *leases) (revision uint64, err error) {
	entry, err := k.kv.Get(ctx, k.o.Service)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return entry.Revision(), document.Unmarshal(entry.Value(), t)
}

// write writes the record, unless another was faster.
func (k *Keeper) write(ctx context.Context, t *leases, revision uint64) error {
	data, err := document.Marshal(t)
	if err != nil {
		return err
	}
	if revision == 0 {
		_, err = k.kv.Create(ctx, k.o.Service, data)
		return err
	}
	_, err = k.kv.Update(ctx, k.o.Service, data, revision)
	return err
}

// checkTail compares the stream's end with the highest that was ever seen, and
// remembers it. The record was read before, so the stream can only have grown.
func (k *Keeper) checkTail(ctx context.Context, t *leases) error {
	info, err := k.stream.Info(ctx)
	if err != nil {
		return fmt.Errorf("reading the stream of %s: %w", k.o.Service, err)
	}
	if info.Config.Storage == jetstream.MemoryStorage { // it may begin anew with NATS
		t.Tail = 0
		return nil
	}
	last := info.State.LastSeq
	if last < t.Tail && !k.o.AcceptLoss {
		return lostTail(info.Config.Name, last, t.Tail)
	}
	if last < t.Tail {
		k.o.Logger.Warn("the stream has lost its end; going on without, as told", "stream", info.Config.Name, "last", last, "seen", t.Tail)
	}
	t.Tail = last
	return nil
}

func lostTail(stream string, last, seen uint64) *DamageError {
	return &DamageError{
		Ledger: stream,
		What:   fmt.Sprintf("the stream ends at sequence %d, but was seen to reach %d: what was committed after %d is lost", last, seen, last),
	}
}

// view is what this instance has seen of the others' beats, by its own
// monotonic clock.
type view map[string]sighting

type sighting struct {
	beat    uint64
	at      time.Time // of the last new beat
	looked  time.Time // the last time anybody looked
	beating bool      // more than one beat was seen
}

// beating counts the instances beside self that are known to live.
func (v view) beating(self string) (n int) {
	for id, s := range v {
		if id != self && s.beating {
			n++
		}
	}
	return n
}

// silent are the instances whose beat has been the same for lease. Only time
// in which we looked counts: after a gap in our own looking everybody begins
// anew.
func (v view) silent(now time.Time, lease time.Duration, instances map[string]lessee) map[string]bool {
	silent := map[string]bool{}
	for id, l := range instances {
		s, known := v[id]
		switch {
		case !known:
			s = sighting{beat: l.Beat, at: now}
		case s.beat != l.Beat:
			s = sighting{beat: l.Beat, at: now, beating: true}
		case now.Sub(s.looked) > lease/2:
			s.at = now
		}
		s.looked = now
		v[id] = s
		silent[id] = now.Sub(s.at) >= lease
	}
	for id := range v {
		if _, ok := instances[id]; !ok {
			delete(v, id)
		}
	}
	return silent
}
