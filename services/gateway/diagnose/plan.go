package diagnose

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/waybill-mq/waybill/internal/config"
	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

// ownRoute is tried if nobody subscribes to anything, and for topics of a broker
// that keeps messages: there a subscriber that comes and goes leaves nothing.
const ownRoute = "diagnosis"

// subject is a route or a topic that is to be tried, and where its queues are.
type subject struct {
	number       int
	route, topic string
	queues       int
	spots        []spot
	all          int      // the number of lanes there are
	unmet        []string // what the brokers of its queues cannot do of what is asked for
}

// spot is a lane, and the broker where it keeps the messages.
type spot struct {
	lane int
	at   site
}

// site is a broker, or the mesh itself.
type site struct {
	name       string
	mark       string // in the names of what is tried there; empty: the mesh itself
	topicsOnly bool
}

// find asks who subscribes to what, diagnoses aside.
func find(ctx context.Context, nc *nats.Conn) ([]*subject, error) {
	if !nc.IsConnected() {
		return nil, protocol.Errorf(protocol.CodeUnavailable, "NATS cannot be reached, and nothing gets through: see whether it is running")
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	found := finder{seen: map[string]bool{}, subjects: map[[2]string]*subject{}}
	if found.total, err = ledger.Count(ctx, js, "router"); err != nil {
		return nil, unavailable(err)
	}
	stored, err := mesh.Request[protocol.StoredConfig](ctx, nc, protocol.SubjectConfig, protocol.ConfigRequest{})
	if err != nil {
		return nil, err
	}
	found.placement = config.PlacementOfStored(&stored)
	if found.routing, err = config.NewRouting(&found.placement); err != nil {
		return nil, err
	}
	for offset := 0; ; {
		page, err := mesh.Request[protocol.SubscriptionsPage](ctx, nc, protocol.SubjectSubscription, protocol.SubscriptionsRequest{Offset: offset, Effective: true})
		if err != nil {
			return nil, err
		}
		for i := range page.Subscriptions {
			found.add(&page.Subscriptions[i])
		}
		if offset += len(page.Subscriptions); !page.More || len(page.Subscriptions) == 0 {
			return found.list(), nil
		}
	}
}

// unavailable is err with the code it has for whoever asks for a diagnosis.
func unavailable(err error) error {
	if protocol.CodeOf(err) != "" {
		return protocol.Errorf(protocol.CodeUnavailable, "%s", protocol.AsError(err).Message)
	}
	return protocol.Errorf(protocol.CodeUnavailable, "how many lanes there are is not known: %v", err)
}

type finder struct {
	total     int
	placement protocol.Placement
	routing   *config.Routing
	seen      map[string]bool // queues
	subjects  map[[2]string]*subject
}

func (f *finder) add(sub *protocol.SubscriptionInfo) {
	if f.seen[sub.Queue] || scope.OfDiagnosis(sub.Queue) {
		return
	}
	f.seen[sub.Queue] = true
	key := [2]string{sub.Route, sub.Topic}
	s := f.subjects[key]
	if s == nil {
		s = &subject{route: sub.Route, topic: sub.Topic, all: f.total}
		f.subjects[key] = s
	}
	s.queues++
	at := spot{ledger.Of(sub.Queue, f.total), f.site(f.routing.Of(sub.Queue))}
	if !slices.Contains(s.spots, at) {
		s.spots = append(s.spots, at)
	}
	if e := sub.Effective; e != nil && e.Unmet != "" && len(s.unmet) < mostUnmet {
		s.unmet = append(s.unmet, e.Unmet)
	}
}

// mostUnmet bounds what a line says of its queues.
const mostUnmet = 5

// site is the broker of an id.
func (f *finder) site(id string) site {
	for _, b := range f.placement.Brokers {
		if b.ID == id {
			return site{b.Name, scope.DiagnosisMark(id), config.IsTopicsOnly(b.Adapter.Name)}
		}
	}
	return site{name: config.AdapterBuiltin}
}

// list are the subjects, routes before topics; if there is none, one that has
// every lane.
func (f *finder) list() []*subject {
	if len(f.subjects) == 0 {
		return []*subject{f.own()}
	}
	all := make([]*subject, 0, len(f.subjects))
	for _, s := range f.subjects {
		slices.SortFunc(s.spots, func(a, b spot) int {
			return cmp.Or(cmp.Compare(a.lane, b.lane), cmp.Compare(a.at.name, b.at.name))
		})
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *subject) int {
		return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.route, b.route))
	})
	for i, s := range all {
		s.number = i
	}
	return all
}

// own is what is tried if nobody subscribes to anything: every lane, where messages
// go that no route names.
func (f *finder) own() *subject {
	s := &subject{all: f.total}
	at := f.site(f.placement.Adapter)
	if at.topicsOnly {
		s.topic = ownRoute
	} else {
		s.route = ownRoute
	}
	for lane := range f.total {
		s.spots = append(s.spots, spot{lane, at})
	}
	return s
}

// plan is a probe for each lane of each subject; of fewer lanes, turn by turn, if
// those were too many.
func (r *run) plan(subjects []*subject) []*probe {
	var probes []*probe
	perSubject := max(most/len(subjects), 1)
	for _, s := range subjects {
		n := min(len(s.spots), perSubject)
		for i := range n {
			probes = append(probes, r.probe(s, s.spots[(s.number+i)%len(s.spots)]))
		}
	}
	return probes
}

// probe is one in a lane, and on a broker: in an execution, or on a topic, whose name
// is in that lane.
func (r *run) probe(s *subject, to spot) *probe {
	p := &probe{subject: s, lane: ledger.Name("router", to.lane), at: to.at, route: cmp.Or(s.route, ownRoute)}
	for i := 0; ; i++ {
		name := r.name + "-" + strconv.Itoa(i)
		if to.at.mark != "" {
			name += "-" + to.at.mark
		}
		switch {
		case s.topic != "" && (to.at.topicsOnly || to.at.mark == ""):
			// Each has its own: what is published to a topic is for all who are there.
			name += "." + strconv.Itoa(s.number)
			if p.topic = name; ledger.OfTopic(name, s.all) == to.lane {
				return p
			}
		default:
			if p.execution = name; ledger.Of(scope.ScopedName(name, p.route), s.all) == to.lane {
				return p
			}
		}
	}
}

// newName is one that no other run has: with the time and random letters.
func newName(at time.Time) string {
	return fmt.Sprintf("%s%x-%s", scope.DiagnosisPrefix, at.Unix(), rand.Text()[:10])
}

// NewExecution is the id of an execution to try the mesh out in; Remove removes
// it.
func NewExecution() string { return newName(time.Now()) + "-0" }

// begun is when the run began whose name a name begins with; false for a name of
// something else.
func begun(name string) (time.Time, bool) {
	rest, found := strings.CutPrefix(name, scope.DiagnosisPrefix)
	parts := strings.Split(rest, "-")
	if !found || len(parts) < 3 || len(parts) > 4 || len(parts[1]) != 10 {
		return time.Time{}, false
	}
	seconds, err := strconv.ParseInt(parts[0], 16, 64)
	if err != nil {
		return time.Time{}, false
	}
	return time.Unix(seconds, 0), true
}
