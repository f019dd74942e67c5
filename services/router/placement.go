package router

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/waybill-mq/waybill/internal/config"
	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker"
)

const (
	configureAgain = 250 * time.Millisecond
	// earlierLooks is how often in a row a registry must be there that does not
	// know the configuration, to be one of an earlier version: one that starts may
	// be so for a moment.
	earlierLooks = 4

	prepareTime  = 6 * time.Second        // for brokers to be connected to
	preparedKept = 30 * time.Second       // what was prepared, and nobody decided for
	tendEvery    = 500 * time.Millisecond // look after brokers
	tryAgain     = 3 * time.Second        // what could not be reached
)

// placement says where this router keeps messages, and what it is connected to for
// that. It is replaced and never changed.
type placement struct {
	protocol.Placement

	order   uint64 // rises with each that this router makes
	routing *config.Routing
	brokers []*remoteBroker // in the order of Placement.Brokers
	absent  []absent
}

// absent is a draining broker that could not be reached yet.
type absent struct {
	protocol.PlacedBroker

	err   error
	since time.Time
}

// remoteBroker is a broker outside of the mesh that was connected to.
type remoteBroker struct {
	broker.Remote
	id      string
	adapter protocol.Adapter
	known   sightings

	lanes     atomic.Int64 // that have a store on it
	awaySince atomic.Int64 // since when, ns since the epoch; 0: it is not
	prepared  time.Time    // when somebody last asked whether it could be used
}

// brokers are what a router is connected to, beside what its placement says.
type brokers struct {
	mu    sync.Mutex // held while a placement is made
	open  []*remoteBroker
	order uint64
	soon  chan struct{} // the placement may be another
	now   atomic.Pointer[placement]
}

// placed is what holds now.
func (s *Service) placed() *placement { return s.brokers.now.Load() }

// place is what is known of a broker by its id; nil: it is none of these.
func (p *placement) place(id string) *protocol.PlacedBroker {
	for i := range p.Brokers {
		if p.Brokers[i].ID == id {
			return &p.Brokers[i]
		}
	}
	return nil
}

// nameOf is how a broker is called.
func (p *placement) nameOf(id string) string {
	if at := p.place(id); at != nil {
		return at.Name
	}
	return id
}

// fixedPlacement is that of the options, for a mesh whose configuration says
// nothing of brokers.
func (s *Service) fixedPlacement() error {
	p := &placement{Placement: protocol.Placement{Adapter: cmp.Or(s.o.Adapter, s.builtin.Name())}}
	for _, b := range s.o.Brokers {
		name := b.Name()
		if name == s.builtin.Name() || p.place(name) != nil {
			return protocol.Errorf(protocol.CodeInvalidArgs, "two brokers are called %s: each has a name of its own", name)
		}
		p.brokers = append(p.brokers, &remoteBroker{Remote: b, id: name})
		p.Brokers = append(p.Brokers, protocol.PlacedBroker{ID: name, Name: name, Adapter: protocol.Adapter{Name: name}, State: protocol.BrokerActive})
	}
	if p.Adapter != s.builtin.Name() && p.place(p.Adapter) == nil {
		return protocol.Errorf(protocol.CodeInvalidArgs, "no broker is called %s, which is to have the queues", p.Adapter)
	}
	var err error
	p.routing, err = config.NewRouting(&p.Placement)
	s.brokers.now.Store(p)
	return err
}

// openBrokers connects to the brokers of the options: one that cannot be reached
// fails the start.
func (s *Service) openBrokers(ctx context.Context) error {
	s.lifecycle.Add("brokers", s.closeBrokers)
	for _, r := range s.placed().brokers {
		if err := r.Open(ctx); err != nil {
			return err
		}
		s.brokers.open = append(s.brokers.open, r)
	}
	return nil
}

func (s *Service) closeBrokers(ctx context.Context) error {
	s.brokers.mu.Lock()
	defer s.brokers.mu.Unlock()
	errs := make([]error, 0, len(s.brokers.open))
	for _, r := range s.brokers.open {
		errs = append(errs, r.Close(ctx))
	}
	s.brokers.open = nil
	return errors.Join(errs...)
}

// configure finds out from the registry on which brokers queues are, and connects
// to them: an active one that cannot be reached fails the start. It waits for the
// registry: a message must not be stored where nobody looks for it.
func (s *Service) configure(ctx context.Context) error {
	if !s.o.Configured {
		return nil
	}
	t := time.NewTicker(configureAgain)
	defer t.Stop()
	for earlier := 0; ; {
		stored, err := mesh.Request[protocol.StoredConfig](ctx, s.bulk, protocol.SubjectConfig, protocol.ConfigRequest{})
		if err == nil {
			return cmp.Or(s.runIn(ctx, &stored.Config), wayOut(s.begin(ctx, config.PlacementOfStored(&stored))))
		}
		earlier++
		if protocol.CodeOf(err) != protocol.CodeUnavailable || !s.hasRegistry(ctx) {
			earlier = 0
		}
		if earlier == earlierLooks {
			return nil // with it there is no adapter but the built-in one
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return protocol.Errorf(protocol.CodeUnavailable, "the registry does not tell the mesh's configuration (%v): start it", err)
		}
	}
}

// wayOut says what to do about a broker without which a router does not start.
func wayOut(err error) error {
	if protocol.CodeOf(err) != protocol.CodeUnavailable {
		return err
	}
	return protocol.Errorf(protocol.CodeUnavailable, "%s; bring it back, or have it drain and lead its routes elsewhere: waybill config apply, with --data DIR if the whole mesh is stopped", protocol.AsError(err).Message)
}

// begin works by the first placement.
func (s *Service) begin(ctx context.Context, p protocol.Placement) error {
	s.brokers.mu.Lock()
	defer s.brokers.mu.Unlock()
	if err := s.replace(ctx, p); err != nil {
		return err
	}
	for _, same := range s.placed().same(ctx) {
		s.log.Warn("two brokers of the configuration are one and the same: name it once", "broker", same.ID, "other", same.Other)
	}
	return nil
}

// hasRegistry says whether any registry answers.
func (s *Service) hasRegistry(ctx context.Context) bool {
	_, err := mesh.Request[protocol.WorkersPage](ctx, s.bulk, protocol.SubjectWorkers, protocol.WorkersRequest{Limit: 1})
	return err == nil
}

// prepare connects to the brokers of a placement that somebody may decide for.
func (s *Service) prepare(ctx context.Context, p protocol.Placement) (protocol.Prepared, error) {
	ctx, cancel := context.WithTimeout(ctx, prepareTime)
	defer cancel()
	s.brokers.mu.Lock()
	defer s.brokers.mu.Unlock()
	made, err := s.make(ctx, &p)
	if err == nil {
		err = s.checkNames(ctx, made)
	}
	if err != nil {
		return protocol.Prepared{}, err
	}
	return protocol.Prepared{Instance: s.o.Instance, Same: made.same(ctx)}, nil
}

// same are those of the brokers that are one and the same. Of one that is away now
// nobody knows.
func (p *placement) same(ctx context.Context) (all []protocol.SameBroker) {
	for i, a := range p.brokers {
		c, compares := a.Remote.(broker.Comparing)
		for _, b := range p.brokers[i+1:] {
			if !compares || a.adapter.Name != b.adapter.Name {
				continue
			}
			if is, err := c.Same(ctx, b.Remote); err == nil && is {
				all = append(all, protocol.SameBroker{ID: a.id, Other: b.id})
			}
		}
	}
	return all
}

// follow has this router work by a placement of that number, or a later one.
func (s *Service) follow(ctx context.Context, number uint64) error {
	if !s.o.Configured || s.placed().Number >= number {
		return nil
	}
	s.brokers.mu.Lock()
	defer s.brokers.mu.Unlock()
	if s.placed().Number >= number {
		return nil
	}
	stored, err := mesh.Request[protocol.StoredConfig](ctx, s.bulk, protocol.SubjectConfig, protocol.ConfigRequest{})
	if err != nil {
		return err
	}
	if stored.Placement.Number < number {
		return protocol.Errorf(protocol.CodeUnavailable, "the registry has not heard of the last change of the configuration: try again")
	}
	return s.replace(ctx, config.PlacementOfStored(&stored))
}

// replace has this router work by a placement. The brokers' lock is held.
func (s *Service) replace(ctx context.Context, to protocol.Placement) error {
	p, err := s.make(ctx, &to)
	if err == nil {
		s.use(p)
	}
	return err
}

// use makes p the placement, and tells the lanes. The brokers' lock is held.
func (s *Service) use(p *placement) {
	s.brokers.order++
	p.order = s.brokers.order
	s.brokers.now.Store(p)
	s.eachLane(func(l *lane) { l.place(p) })
}

// make connects to what a placement needs. Active brokers have to be there; of the
// others those that are not are tried again later. The brokers' lock is held.
func (s *Service) make(ctx context.Context, to *protocol.Placement) (*placement, error) {
	p := &placement{Placement: *to}
	var err error
	if p.routing, err = config.NewRouting(to); err != nil {
		return nil, err
	}
	for _, b := range to.Brokers {
		r, err := s.broker(ctx, b)
		switch {
		case err == nil:
			p.brokers = append(p.brokers, r)
		case b.State == protocol.BrokerActive:
			return nil, err
		default:
			p.absent = append(p.absent, absent{b, err, s.absentSince(b.ID)})
		}
	}
	return p, nil
}

// absentSince is when a broker that cannot be reached was first missed.
func (s *Service) absentSince(id string) time.Time {
	if now := s.placed(); now != nil {
		for _, b := range now.absent {
			if b.ID == id {
				return b.since
			}
		}
	}
	return time.Now().UTC()
}

// broker is a broker that is connected to, or is now.
func (s *Service) broker(ctx context.Context, b protocol.PlacedBroker) (*remoteBroker, error) {
	for _, r := range s.brokers.open {
		if r.id == b.ID && r.adapter.Name == b.Adapter.Name && bytes.Equal(r.adapter.Config, b.Adapter.Config) {
			r.prepared = time.Now()
			return r, nil
		}
	}
	made, err := makeBroker(b, s.log)
	if err != nil {
		return nil, err
	}
	if err := made.Open(ctx); err != nil {
		return nil, errors.Join(err, made.Close(ctx))
	}
	r := &remoteBroker{Remote: made, id: b.ID, adapter: b.Adapter, prepared: time.Now()}
	s.brokers.open = append(s.brokers.open, r)
	return r, nil
}

// placementChanged has this router look whether its placement is still what the
// configuration says.
func (s *Service) placementChanged() {
	select {
	case s.brokers.soon <- struct{}{}:
	default:
	}
}

// tendBrokers follows the configuration, connects to what was not there, and leaves
// what is not used any more.
func (s *Service) tendBrokers(ctx context.Context) {
	t := time.NewTicker(tendEvery)
	defer t.Stop()
	var failed time.Time
	for {
		select {
		case <-s.brokers.soon:
		case <-t.C:
		case <-ctx.Done():
			return
		}
		if time.Since(failed) > tryAgain && !s.keepUp(ctx) {
			failed = time.Now()
		}
		s.tidyBrokers(ctx)
	}
}

// keepUp has the placement be what the configuration says, with all brokers there.
func (s *Service) keepUp(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, prepareTime)
	defer cancel()
	if err := s.follow(ctx, s.setting().Placed); err != nil {
		s.log.Warn("messages are not kept yet where the configuration says; trying again", "error", err)
		return false
	}
	s.fetchAbsent(ctx)
	return len(s.placed().absent) == 0
}

// fetchAbsent tries those that could not be reached.
func (s *Service) fetchAbsent(ctx context.Context) {
	if len(s.placed().absent) == 0 {
		return
	}
	s.brokers.mu.Lock()
	defer s.brokers.mu.Unlock()
	before := s.placed()
	p, err := s.make(ctx, &before.Placement)
	if err == nil && len(p.absent) < len(before.absent) {
		s.use(p)
	}
}

// tidyBrokers closes what nothing uses, and notes since when the others are away.
func (s *Service) tidyBrokers(ctx context.Context) {
	s.brokers.mu.Lock()
	defer s.brokers.mu.Unlock()
	p := s.placed()
	s.brokers.open = slices.DeleteFunc(s.brokers.open, func(r *remoteBroker) bool {
		r.noteAway()
		if slices.Contains(p.brokers, r) || r.lanes.Load() > 0 || time.Since(r.prepared) < preparedKept {
			return false
		}
		ctx, cancel := context.WithTimeout(ctx, closeTimeout)
		defer cancel()
		if err := r.Close(ctx); err != nil {
			s.log.Warn("a broker that is not used any more did not close in time", "broker", r.id, "error", err)
		}
		return true
	})
}

// noteAway notes since when the broker is away.
func (r *remoteBroker) noteAway() {
	switch {
	case r.Away() == nil:
		r.awaySince.Store(0)
	case r.awaySince.Load() == 0:
		r.awaySince.Store(time.Now().UnixNano())
	}
}
