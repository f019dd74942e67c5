package mesh

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
)

// Service is one instance of a NATS micro service: its subscriptions, and the
// answers to what stock tools ask of it (nats micro ls, info, stats).
//
// The library's own micro.Service is not used because it hides the
// subscriptions of its endpoints: nobody could wait until what has arrived is
// answered, as a graceful stop must, and every message would take a lock. The
// documents on the wire are the library's.
type Service struct {
	nc      *nats.Conn
	o       ServiceOptions
	id      string
	started time.Time

	ctx      context.Context // of handlers; ends when Stop gives them up
	cancel   context.CancelFunc
	requests sync.WaitGroup // handlers that run in goroutines of their own

	mu      sync.Mutex
	subs    []*Subscription
	stopped bool
	verbs   []*Subscription
	stop    Lifecycle
}

// ServiceOptions of NewService.
type ServiceOptions struct {
	// Name is router, retry, dlq, registry or gateway; the micro service is
	// waybill-<name>.
	Name string
	// Instance tells this instance from the others of the service; default a
	// random one.
	Instance string
	// Version of the program; default 0.0.0. What is not a semantic version
	// becomes the build part of 0.0.0.
	Version string
	// Logger; default none.
	Logger *slog.Logger
}

// NewService makes the service visible to NATS micro tools; its endpoints are
// added with Endpoint, EveryInstance and Raw. It fails if the connection is
// closed.
func NewService(nc *nats.Conn, o ServiceOptions) (*Service, error) {
	o.Instance = cmp.Or(o.Instance, nuid.Next())
	o.Version = semanticVersion(o.Version)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Service{nc: nc, o: o, id: nuid.Next(), started: time.Now().UTC()}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.stop.Add("handlers", s.waitForHandlers)
	s.stop.Add("endpoints", func(ctx context.Context) error { return drain(ctx, s.takeSubs()) })
	if err := s.discoverable(); err != nil {
		s.cancel()
		return nil, err
	}
	return s, nil
}

// Instance is the instance's id.
func (s *Service) Instance() string { return s.o.Instance }

// Flush returns when NATS has taken every subscription made so far: from then
// on no request finds nobody there. It fails if that takes until ctx ends, or
// 10 s.
func (s *Service) Flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout) // the library refuses a context without a deadline
	defer cancel()
	return s.nc.FlushWithContext(ctx)
}

const flushTimeout = 10 * time.Second

// Stop stops taking requests, answers those that have arrived, and waits for
// them, at most until ctx ends; their own context ends then. The connection
// stays open. A further call waits for the first.
func (s *Service) Stop(ctx context.Context) error { return s.stop.Stop(ctx) }

// waitForHandlers ends the handlers' context when they have returned or ctx
// has ended, and returns when they have.
func (s *Service) waitForHandlers(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		s.requests.Wait()
		close(done)
	}()
	defer s.cancel()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		s.cancel()
		<-done
		return ctx.Err()
	}
}

// takeSubs ends the time in which subscriptions can be added and returns them.
func (s *Service) takeSubs() []*Subscription {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	return append(slices.Clone(s.subs), s.verbs...)
}

// Subscription is one endpoint of a service.
type Subscription struct {
	name, subject, queue string

	nc      *nats.Conn
	sub     *nats.Subscription
	running sync.WaitGroup // handlers in goroutines of their own
	ended   chan struct{}  // closed after the last handler returned
	end     func()
	counts  counts
}

// Drain takes no more messages, lets the handler have those that arrived, and
// returns when it has returned from the last, or with ctx's error. It may be
// called again.
func (e *Subscription) Drain(ctx context.Context) error { return drain(ctx, []*Subscription{e}) }

// drain drains all at once: each takes a round trip.
func drain(ctx context.Context, subs []*Subscription) error {
	var errs []error
	for _, e := range subs {
		err := e.drain()
		if err != nil && !errors.Is(err, nats.ErrConnectionClosed) && !errors.Is(err, nats.ErrBadSubscription) {
			errs = append(errs, err)
		}
	}
	for _, e := range subs {
		select {
		case <-e.ended:
		case <-ctx.Done():
			return errors.Join(append(errs, ctx.Err())...)
		}
	}
	return errors.Join(errs...)
}

// drain begins the end of the subscription. Without a connection nothing more
// can arrive, and waiting for the server to say so would only take long.
func (e *Subscription) drain() error {
	if e.nc.IsConnected() {
		return e.sub.Drain()
	}
	return e.sub.Unsubscribe()
}

// Raw subscribes h to subject, shared over queue unless that is empty, as an
// endpoint that micro tools see. h is called for one message after the other,
// in order, and has to be quick; it answers, or not, as it likes. The
// subscription ends with the service, or before by its Drain. It fails after
// Stop.
func (s *Service) Raw(name, subject, queue string, h nats.MsgHandler) (*Subscription, error) {
	e := &Subscription{name: name, subject: subject, queue: queue}
	if err := s.subscribe(e, &s.subs, e.counted(h)); err != nil {
		return nil, err
	}
	return e, nil
}

// subscribe starts e and appends it to list.
func (s *Service) subscribe(e *Subscription, list *[]*Subscription, h nats.MsgHandler) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return errors.New("the service is stopped: " + e.subject + " is not served")
	}
	e.nc, e.ended = s.nc, make(chan struct{})
	e.end = sync.OnceFunc(func() {
		go func() { // whoever drains waits for it
			e.running.Wait()
			close(e.ended)
		}()
	})
	if e.queue == "" {
		e.sub, err = s.nc.Subscribe(e.subject, h)
	} else {
		e.sub, err = s.nc.QueueSubscribe(e.subject, e.queue, h)
	}
	if err != nil {
		return err
	}
	e.sub.SetClosedHandler(func(string) { e.end() })
	if !e.sub.IsValid() { // closed before it had a handler to tell
		e.end()
	}
	*list = append(slices.DeleteFunc(*list, (*Subscription).over), e)
	return nil
}

// over says whether the subscription has ended.
func (e *Subscription) over() bool {
	select {
	case <-e.ended:
		return true
	default:
		return false
	}
}

// semanticVersion makes v acceptable where NATS micro asks for one.
func semanticVersion(v string) string {
	v = strings.TrimPrefix(v, "v")
	if semver.MatchString(v) {
		return v
	}
	build := notInBuild.ReplaceAllString(v, "-")
	if build == "" {
		return "0.0.0"
	}
	return "0.0.0+" + build
}
