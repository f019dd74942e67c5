package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

// Reconciliation says whether what the mesh has counted agrees with what it
// holds. It may be made while messages flow: each ledger is looked at in one
// place of its log, and what is said of two ledgers holds whatever happened
// between the looks at them.
type Reconciliation struct {
	Balanced bool      `json:"balanced"`
	At       time.Time `json:"at"`
	Ledgers  int       `json:"ledgers"`
	Queues   int       `json:"queues"`
	Messages int64     `json:"messages"` // looked at
	Gaps     []Gap     `json:"gaps"`
	MoreGaps int       `json:"more_gaps,omitempty"`
	// Unseen are ledgers whose owners did not answer: of these nothing is said.
	Unseen []string       `json:"unseen"`
	Routes []RouteBalance `json:"routes"` // in order of name
	// Brokers are queues on brokers, in order of name, and Away the brokers that
	// could not be looked at. Their messages are in no ledger, and their numbers
	// are no gap: see protocol.AuditOnBroker.
	Brokers []BrokerBalance `json:"brokers,omitempty"`
	Away    []string        `json:"away,omitempty"`
}

// BrokerBalance is what the mesh has counted of a queue on a broker, and what
// the broker holds.
type BrokerBalance struct {
	protocol.AuditOnBroker

	// Difference is In less Out and Held: what others have put there makes it
	// negative, what was not counted before a router was killed, either.
	Difference int64 `json:"difference"`
}

// Gap is an equation that does not hold.
type Gap struct {
	Where    string            `json:"where"`           // the ledger, or the two it is between
	Queue    string            `json:"queue,omitempty"` // or
	Route    string            `json:"route,omitempty"`
	Equation string            `json:"equation"`
	Left     int64             `json:"left"`
	Right    int64             `json:"right"`
	Counters map[string]uint64 `json:"counters,omitempty"`
	Look     string            `json:"look"` // where to look
}

// RouteBalance is what became of a route's messages. While messages flow, the
// services are looked at one after the other and Live may be off by those that
// moved meanwhile.
type RouteBalance struct {
	Route        string `json:"route"`
	Published    int64  `json:"published"`
	Acknowledged int64  `json:"acknowledged"`
	Filtered     int64  `json:"filtered"`
	Discarded    int64  `json:"discarded"`
	WrittenOff   int64  `json:"written_off"`
	Live         int64  `json:"live"` // ready, in workers' hands, waiting, dead or on their way
}

// maxAudits are under way at once: each has a ledger look at all it holds.
const maxAudits = 4

// Reconcile looks at every ledger, twice. UNAVAILABLE: no service has ever been
// started on this NATS.
func Reconcile(ctx context.Context, nc *nats.Conn) (Reconciliation, error) {
	ledgers, err := allLedgers(ctx, nc)
	if err != nil {
		return Reconciliation{}, err
	}
	r := Reconciliation{At: time.Now().UTC(), Ledgers: len(ledgers), Gaps: []Gap{}, Unseen: []string{}, Routes: []RouteBalance{}}
	first, err := audit(ctx, nc, ledgers, nil)
	if err != nil {
		return r, err
	}
	second, err := audit(ctx, nc, ledgers, first)
	if err != nil {
		return r, err
	}
	for _, l := range ledgers {
		if first[l.name] == nil || second[l.name] == nil {
			r.Unseen = append(r.Unseen, l.name)
		}
	}
	r.within(first)
	r.between(first, second)
	if len(r.Unseen) == 0 {
		r.alongRoutes(first, second)
	}
	r.Routes = balances(first)
	r.onBrokers(first)
	r.Balanced = len(r.Gaps) == 0 && r.MoreGaps == 0 && len(r.Unseen) == 0
	return r, nil
}

// aLedger is one to be looked at.
type aLedger struct{ name, subject string }

func allLedgers(ctx context.Context, nc *nats.Conn) ([]aLedger, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	var all []aLedger
	for _, of := range [][2]string{{"router", protocol.SubjectLane}, {"retry", protocol.SubjectWaitingLedger}, {"dlq", protocol.SubjectDeadLedger}} {
		n, err := ledger.Count(ctx, js, of[0])
		if protocol.CodeOf(err) == protocol.CodeNotFound {
			continue
		}
		if err != nil {
			return nil, err
		}
		for i := range n {
			name := ledger.Name(of[0], i)
			all = append(all, aLedger{name, of[1] + name + "." + protocol.VerbAudit})
		}
	}
	if len(all) == 0 {
		return nil, protocol.Errorf(protocol.CodeUnavailable, "no mesh has ever been started on this NATS")
	}
	return all, nil
}

const auditAgain = 250 * time.Millisecond

// audit asks the owners of ledgers, and for some seconds again those that have
// none. Of what is not in seen, if that is there, nobody is asked.
func audit(ctx context.Context, nc *nats.Conn, ledgers []aLedger, seen map[string]*protocol.LedgerAudit) (map[string]*protocol.LedgerAudit, error) {
	answers := make([]*protocol.LedgerAudit, len(ledgers))
	until := time.Now().Add(ownerTime)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxAudits)
	for i, l := range ledgers {
		if seen != nil && seen[l.name] == nil {
			continue
		}
		group.Go(func() error {
			a, err := auditOne(ctx, nc, l, until)
			if errors.Is(err, errUnseen) {
				return nil
			}
			answers[i] = &a
			return err
		})
	}
	err := group.Wait()
	found := map[string]*protocol.LedgerAudit{}
	for i, l := range ledgers {
		if answers[i] != nil {
			found[l.name] = answers[i]
		}
	}
	return found, err
}

// ownerTime is how long ledgers may be without an owner.
const ownerTime = 10 * time.Second

// errUnseen: a ledger has no owner that answers.
var errUnseen = errors.New("unseen")

func auditOne(ctx context.Context, nc *nats.Conn, l aLedger, until time.Time) (protocol.LedgerAudit, error) {
	again := time.NewTicker(auditAgain)
	defer again.Stop()
	for {
		a, err := mesh.Request[protocol.LedgerAudit](ctx, nc, l.subject, protocol.Empty{})
		switch {
		case err == nil:
			return a, nil
		case ctx.Err() != nil:
			return a, err
		case protocol.CodeOf(err) != protocol.CodeUnavailable:
			return a, err
		case time.Now().After(until):
			return a, errUnseen
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return a, err
		}
	}
}

// maxGaps bounds a reconciliation.
const maxGaps = 1000

func (r *Reconciliation) gap(g Gap) {
	if len(r.Gaps) >= maxGaps {
		r.MoreGaps++
		return
	}
	r.Gaps = append(r.Gaps, g)
}

// within takes what each ledger says of its queues.
func (r *Reconciliation) within(audits map[string]*protocol.LedgerAudit) {
	for _, name := range slices.Sorted(maps.Keys(audits)) {
		a := audits[name]
		r.Queues += a.Queues
		r.Messages += a.Entries
		r.MoreGaps += a.MoreGaps
		for _, g := range a.Gaps {
			r.gap(Gap{
				Where: name, Queue: g.Queue, Equation: g.Equation, Left: g.Left, Right: g.Right, Counters: g.Counters,
				Look: fmt.Sprintf("the records of %s up to sequence %d (subject %s)", name, a.Seq, ledger.Subject(serviceOf(name), name)),
			})
		}
	}
}

// between compares what ledgers handed over with what others took. What one
// says was done had been taken before; nothing is taken that was not given.
func (r *Reconciliation) between(first, second map[string]*protocol.LedgerAudit) {
	for _, name := range slices.Sorted(maps.Keys(first)) {
		for _, sent := range first[name].Sending {
			to := second[sent.Ledger]
			if to == nil {
				continue
			}
			if missing := notThere(sent, received(to, name)); len(missing) > 0 {
				r.gap(Gap{
					Where: name + " → " + sent.Ledger, Equation: "what is handed over has come", Left: count(missing), Right: 0,
					Look: fmt.Sprintf("handovers %v, which %s takes for done and %s has never had", missing, name, sent.Ledger),
				})
			}
		}
		for _, got := range first[name].Receiving {
			from := second[got.Ledger]
			if from == nil {
				continue
			}
			if given, highest := nextOf(from, name), highestOf(got); highest >= given {
				r.gap(Gap{
					Where: got.Ledger + " → " + name, Equation: "what has come was handed over", Left: int64(highest), Right: int64(given) - 1,
					Look: fmt.Sprintf("handover %d, which %s has and %s never gave", highest, name, got.Ledger),
				})
			}
		}
	}
}

func received(a *protocol.LedgerAudit, from string) protocol.AuditHandovers {
	for _, h := range a.Receiving {
		if h.Ledger == from {
			return h
		}
	}
	return protocol.AuditHandovers{Below: 1}
}

func nextOf(a *protocol.LedgerAudit, to string) uint64 {
	for _, h := range a.Sending {
		if h.Ledger == to {
			return h.Below
		}
	}
	return 1
}

func highestOf(h protocol.AuditHandovers) uint64 {
	highest := h.Below - 1
	for _, s := range h.Spans {
		highest = max(highest, s.Last)
	}
	return highest
}

// notThere are the numbers that are done at the sender and have not come.
func notThere(sent, got protocol.AuditHandovers) (missing []protocol.AuditSpan) {
	known := append(slices.Clone(sent.Spans), got.Spans...)
	if got.Below > 1 {
		known = append(known, protocol.AuditSpan{First: 1, Last: got.Below - 1})
	}
	slices.SortFunc(known, func(a, b protocol.AuditSpan) int { return cmp.Compare(a.First, b.First) })
	next := uint64(1)
	for _, k := range append(known, protocol.AuditSpan{First: sent.Below, Last: sent.Below}) {
		if first := min(k.First, sent.Below); first > next {
			missing = append(missing, protocol.AuditSpan{First: next, Last: first - 1})
		}
		next = max(next, k.Last+1)
	}
	return missing
}

func count(spans []protocol.AuditSpan) (n int64) {
	for _, s := range spans {
		n += int64(s.Last - s.First + 1)
	}
	return n
}

// flow is what one kind of service has sent along a route and another has taken.
type flow struct {
	from     []string
	equation string
	sent     func(sums) int64
	taken    func(sums) int64
}

// sums are a route's, by service.
type sums map[string]*protocol.AuditRoute

func (s sums) of(service, counter string) int64 {
	if s[service] == nil {
		return 0
	}
	return int64(s[service].Counters[counter])
}

// onBroker says whether some of the route's messages are in no ledger.
func (s sums) onBroker() bool {
	for _, sum := range s {
		if sum.OnBroker {
			return true
		}
	}
	return false
}

func (s sums) moving(services ...string) (n int64) {
	for _, service := range services {
		if s[service] != nil {
			n += s[service].Moving
		}
	}
	return n
}

// How many are dead-lettered does not come into them: some may have been on a broker that
// nothing is known of any more.
var flows = []flow{
	{
		from:     []string{"router"},
		equation: "router sent = retry taken + dlq taken, but for those on their way",
		sent:     func(s sums) int64 { return s.of("router", protocol.CountSent) },
		taken:    func(s sums) int64 { return s.of("retry", protocol.CountTaken) + s.of("dlq", protocol.CountTaken) },
	},
	{
		from:     []string{"retry", "dlq"},
		equation: "retry sent + dlq sent = router taken, but for those on their way",
		sent:     func(s sums) int64 { return s.of("retry", protocol.CountSent) + s.of("dlq", protocol.CountSent) },
		taken:    func(s sums) int64 { return s.of("router", protocol.CountTaken) },
	},
}

// alongRoutes compares what was sent with what was taken, route by route. Where
// an operator wrote something off it is not known what was lost.
func (r *Reconciliation) alongRoutes(first, second map[string]*protocol.LedgerAudit) {
	one, two := byRoute(first), byRoute(second)
	for _, route := range slices.Sorted(maps.Keys(one)) {
		a, b := one[route], two[route]
		if b == nil || b.of("router", protocol.CountWrittenOff)+b.of("retry", protocol.CountWrittenOff)+b.of("dlq", protocol.CountWrittenOff) > 0 {
			continue
		}
		for _, f := range flows {
			if a.onBroker() || b.onBroker() {
				continue
			}
			if least := f.sent(a) - a.moving(f.from...); f.taken(b) < least {
				r.gap(Gap{Route: route, Where: "between the services", Equation: f.equation, Left: least, Right: f.taken(b), Look: "the counters of the route's queues, with --json"})
			}
			if f.taken(a) > f.sent(b) {
				r.gap(Gap{Route: route, Where: "between the services", Equation: f.equation, Left: f.sent(b), Right: f.taken(a), Look: "the counters of the route's queues, with --json"})
			}
		}
	}
}

// byRoute adds the ledgers of each service up. If one has too many routes to
// tell them apart, all of them are one.
func byRoute(audits map[string]*protocol.LedgerAudit) map[string]sums {
	together := false
	for _, a := range audits {
		_, many := a.Routes[protocol.OtherRoutes]
		together = together || many
	}
	all := map[string]sums{}
	for name, a := range audits {
		for route, part := range a.Routes {
			if together {
				route = protocol.OtherRoutes
			}
			if all[route] == nil {
				all[route] = sums{}
			}
			all[route].add(serviceOf(name), part)
		}
	}
	return all
}

func (s sums) add(service string, part protocol.AuditRoute) {
	sum := s[service]
	if sum == nil {
		sum = &protocol.AuditRoute{Counters: map[string]uint64{}}
		s[service] = sum
	}
	for name, n := range part.Counters {
		sum.Counters[name] += n
	}
	sum.Kept += part.Kept
	sum.Moving += part.Moving
	sum.OnBroker = sum.OnBroker || part.OnBroker
}

// balances say what became of each route's messages. One on its way is counted
// where it is decided until the next owner has it.
func balances(audits map[string]*protocol.LedgerAudit) []RouteBalance {
	routes := byRoute(audits)
	all := make([]RouteBalance, 0, len(routes))
	for _, name := range slices.Sorted(maps.Keys(routes)) {
		b := RouteBalance{Route: name}
		sent, taken := int64(0), int64(0)
		for service, sum := range routes[name] {
			of := func(counter string) int64 { return routes[name].of(service, counter) }
			b.Published += of(protocol.CountPublished)
			b.Acknowledged += of(protocol.CountAcknowledged)
			b.Filtered += of(protocol.CountFiltered)
			b.Discarded += of(protocol.CountDiscarded)
			b.WrittenOff += of(protocol.CountWrittenOff)
			sent, taken = sent+of(protocol.CountSent), taken+of(protocol.CountTaken)
			b.Live += sum.Kept
		}
		b.Live += sent - taken
		all = append(all, b)
	}
	return all
}

// onBrokers tells of the queues on brokers.
func (r *Reconciliation) onBrokers(audits map[string]*protocol.LedgerAudit) {
	at := make(map[string]int, len(r.Routes))
	for i := range r.Routes {
		at[r.Routes[i].Route] = i
	}
	for _, a := range audits {
		for _, one := range a.OnBrokers {
			r.Brokers = append(r.Brokers, BrokerBalance{AuditOnBroker: one, Difference: one.Difference()})
			if i, known := at[scope.Template(one.Queue)]; known {
				r.Routes[i].Live += one.Held
			}
		}
		for _, name := range a.Away {
			if !slices.Contains(r.Away, name) {
				r.Away = append(r.Away, name)
			}
		}
	}
	slices.Sort(r.Away)
	slices.SortFunc(r.Brokers, func(a, b BrokerBalance) int {
		return cmp.Or(strings.Compare(a.Queue, b.Queue), strings.Compare(a.Broker, b.Broker))
	})
}

// serviceOf is the service that a ledger belongs to.
func serviceOf(name string) string {
	return name[:max(strings.LastIndexByte(name, '-'), 0)]
}

// ErrGap says that a reconciliation found a gap.
var ErrGap = errors.New("the books do not balance")

// Err is nil if all is well, ErrGap if there is a gap, and UNAVAILABLE if only
// something could not be looked at.
func (r *Reconciliation) Err() error {
	switch {
	case len(r.Gaps)+r.MoreGaps > 0:
		return ErrGap
	case len(r.Unseen) > 0:
		return protocol.Errorf(protocol.CodeUnavailable, "%d of %d ledgers have no owner that answers: of what they hold nothing is said", len(r.Unseen), r.Ledgers)
	case len(r.Away) > 0:
		return protocol.Errorf(protocol.CodeUnavailable, "of what is on the broker %s nothing is said: it is away", strings.Join(r.Away, ", "))
	}
	return nil
}
