package router

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// slot is the place of one lane in this router, whether it owns it or not.
type slot struct {
	name    string
	index   int
	current atomic.Pointer[openLane]
}

// openLane is a lane this router owns.
type openLane struct {
	at      *slot
	s       *Service
	lane    *lane
	running *ledger.Running[event]
	subs    []*mesh.Subscription
}

// publishSubject is what a publish passed on to the lane's owner is sent to,
// followed by the execution and the route.
func (at *slot) publishSubject() string { return protocol.SubjectLane + at.name + ".pub." }

// send gives the lane an event; false if it is not open here.
func (at *slot) send(e event) bool {
	if at == nil {
		return false
	}
	o := at.current.Load()
	return o != nil && o.running.Send(e)
}

// slots are the lanes there are, none before the first is opened: their number
// is settled by the first router that ever started.
func (s *Service) slots() []*slot {
	if all := s.places.Load(); all != nil {
		return *all
	}
	return nil
}

// makeSlots makes the places of all lanes, once.
func (s *Service) makeSlots(n int) {
	all := make([]*slot, n)
	for i := range all {
		all[i] = &slot{name: ledger.Name(serviceName, i), index: i}
	}
	s.places.CompareAndSwap(nil, &all)
}

// slot is the lane of that name, nil if there is none.
func (s *Service) slot(name string) *slot {
	for _, at := range s.slots() {
		if at.name == name {
			return at
		}
	}
	return nil
}

// eachLane has every lane that is open here do f.
func (s *Service) eachLane(f func(l *lane)) {
	for _, at := range s.slots() {
		at.send(call(f))
	}
}

// openLane takes a lane over: the keeper asks for it. Outcomes are listened to
// first, so that none is lost while the ledger is replayed.
func (s *Service) openLane(ctx context.Context, name string) (ledger.Handle, error) {
	s.makeSlots(s.keeper.Total())
	at := s.slot(name)
	if at == nil {
		return nil, errors.New("there is no lane " + name)
	}
	o := &openLane{at: at, s: s, lane: newLane(s, at)}
	running, err := ledger.Open[event](ctx, ledger.Options{
		Conn: s.logs, Stream: ledger.StreamOf(serviceName), Name: name, Owner: s.o.Instance,
		Bodies: s.bodies, AcceptLoss: s.o.AcceptLoss, Logger: s.log,
	}, o.lane)
	if err != nil {
		return nil, err
	}
	o.running = running
	at.current.Store(o)
	if err := o.listen(); err != nil {
		return nil, errors.Join(err, o.Stop(ctx))
	}
	s.directory.attach(at)
	s.lanes.Go(o.close)
	return o, nil
}

// listen takes outcomes and the publishes that other routers pass on. Neither
// is shared: a lane has one owner, and NATS reports "no responders" only to a
// subscription of its own.
func (o *openLane) listen() error {
	outcomes, err := o.s.mesh.Raw("outcome-"+o.at.name, o.lane.reply+"*", "", func(m *nats.Msg) {
		o.running.Send((*outcome)(m))
	})
	if err != nil {
		return err
	}
	o.subs = append(o.subs, outcomes)
	in := o.s.newIngress(o.at.publishSubject(), false)
	passed, err := o.s.mesh.Raw("publish-"+o.at.name, in.prefix+">", "", in.publish)
	if err != nil {
		return err
	}
	o.subs = append(o.subs, passed)
	return nil
}

// close withdraws the lane once its ledger has closed, by whatever cause.
func (o *openLane) close() {
	<-o.running.Done()
	o.at.current.CompareAndSwap(o, nil)
	o.s.directory.detach(o.at)
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	o.drain(ctx)
}

func (o *openLane) drain(ctx context.Context) {
	for _, sub := range o.subs {
		if err := sub.Drain(ctx); err != nil {
			o.s.log.Debug("a lane's subscription did not end", "lane", o.at.name, "error", err)
		}
	}
}

// Stop commits what is staged and gives the lane away. Deliveries in workers'
// hands go on: their outcomes are for whoever owns the lane then.
func (o *openLane) Stop(ctx context.Context) error { return o.running.Stop(ctx) }

// Done is closed when the lane has closed.
func (o *openLane) Done() <-chan struct{} { return o.running.Done() }

// Err is why it closed.
func (o *openLane) Err() error { return o.running.Err() }
