package router

import (
	"context"
	"errors"
	"sync"
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

	passed passed
}

// openLane is a lane this router owns.
type openLane struct {
	at      *slot
	s       *Service
	lane    *lane
	running *ledger.Running[event]
	opened  chan struct{} // closed when running is there, or never will be
	subs    []*mesh.Subscription
}

// What others send to a lane's owner, in protocol.SubjectLane.
const (
	verbQueue   = "pub"   // followed by the execution and the route
	verbTopic   = "topic" // followed by the topic
	verbJob     = "job"   // followed by the named queue
	verbEnqueue = "enqueue"
	verbData    = "data"
	verbFollow  = "follow"
)

// subject is what the lane's owner takes, up to what follows the verb.
func (at *slot) subject(verb string) string { return protocol.SubjectLane + at.name + "." + verb }

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

// openLane takes a lane over: the keeper asks for it.
func (s *Service) openLane(ctx context.Context, name string) (ledger.Handle, error) {
	s.makeSlots(s.keeper.Total())
	at := s.slot(name)
	if at == nil {
		return nil, errors.New("there is no lane " + name)
	}
	o := &openLane{at: at, s: s, lane: newLane(s, at), opened: make(chan struct{})}
	if err := o.open(ctx); err != nil {
		return nil, err
	}
	at.current.Store(o)
	s.definitions.attach(at)
	s.directory.attach(at)
	s.lanes.Go(o.close)
	return o, nil
}

// open opens the ledger. Outcomes are listened to before: those that arrive
// while it is replayed are for this owner already.
func (o *openLane) open(ctx context.Context) error {
	opened := sync.OnceFunc(func() { close(o.opened) })
	defer opened()
	err := o.listen("outcome-", o.lane.reply+"*", o.outcome)
	if err != nil {
		return err
	}
	o.running, err = ledger.Open[event](ctx, ledger.Options{
		Conn: o.s.logs, Stream: ledger.StreamOf(serviceName), Name: o.at.name, Owner: o.s.o.Instance,
		Bodies: o.s.bodies, AcceptLoss: o.s.o.AcceptLoss, Logger: o.s.log,
	}, o.lane)
	opened()
	if err != nil {
		o.drain(ctx)
		return err
	}
	queues, topics := o.s.queueIngress(o.at.subject(verbQueue)+".", false), o.s.topicIngress(o.at.subject(verbTopic)+".", false)
	jobs := o.s.jobIngress(o.at.subject(verbJob)+".", false)
	err = errors.Join(
		o.listen("publish-", queues.prefix+">", queues.publish),
		o.listen("topic-", topics.prefix+">", topics.publish),
		o.listen("job-", jobs.prefix+">", jobs.publish),
		o.listen("enqueue-", o.at.subject(verbEnqueue), o.s.enqueueIngress(false).call),
		o.listen("data-", o.at.subject(verbData), o.s.dataIngress(false).call),
		o.listen("follow-", o.at.subject(verbFollow), o.follow),
		serve(o, protocol.VerbConfigure, o.configure),
		o.listen("owner-", o.at.subject(askOwner), o.isOwned), // after the others: who is told of the owner may ask it
	)
	if err != nil {
		o.drain(ctx)
		return errors.Join(err, o.running.Stop(ctx))
	}
	o.s.bereave(o.at)
	o.at.passed.owned()
	err = errors.Join(
		serve(o, protocol.VerbClose, o.tell),
		serve(o, protocol.VerbForget, o.forgetQueue),
		serve(o, protocol.VerbDefine, o.define),
		serve(o, protocol.VerbGrant, o.grant),
		serve(o, protocol.VerbAudit, o.audit),
		serve(o, protocol.VerbEntry, o.entry),
		o.serveLetters(),
	)
	if err != nil {
		o.drain(ctx)
		return errors.Join(err, o.running.Stop(ctx))
	}
	return nil
}

// serve answers what is asked of the lane's owner.
func serve[Q, R any](o *openLane, verb string, h func(context.Context, Q) (R, error)) error {
	sub, err := mesh.Serve(o.s.mesh, verb+"-"+o.at.name, o.at.subject(verb), h)
	if err == nil {
		o.subs = append(o.subs, sub)
	}
	return err
}

// ask has f look something up in the lane.
func ask[R any](ctx context.Context, o *openLane, f func(l *lane) R) (R, error) {
	var none R
	answers := make(chan R, 1)
	if !o.running.Send(call(func(l *lane) { answers <- f(l) })) {
		return none, errMoving
	}
	select {
	case r := <-answers:
		return r, nil
	case <-o.running.Done():
		return none, errMoving
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

func (o *openLane) outcome(m *nats.Msg) {
	<-o.opened
	if o.running != nil {
		o.running.Send((*outcome)(m))
	}
}

// listen subscribes for the lane. Neither of its subjects is shared: a lane
// has one owner, and NATS reports "no responders" only to a subscription of
// its own.
func (o *openLane) listen(name, subject string, h nats.MsgHandler) error {
	sub, err := o.s.mesh.Raw(name+o.at.name, subject, "", h)
	if err == nil {
		o.subs = append(o.subs, sub)
	}
	return err
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
// hands go on: their outcomes are for whoever owns the lane then. None is still
// on its way out of here when the next owner asks the workers what they hold.
func (o *openLane) Stop(ctx context.Context) error {
	err := o.running.Stop(ctx)
	if !o.s.bulk.IsConnected() {
		return err
	}
	return errors.Join(err, o.s.mesh.Flush(ctx))
}

// Forward writes forward what lies below a sequence of the log.
func (o *openLane) Forward(target uint64) { o.running.Forward(target) }

// Done is closed when the lane has closed.
func (o *openLane) Done() <-chan struct{} { return o.running.Done() }

// Err is why it closed.
func (o *openLane) Err() error { return o.running.Err() }
