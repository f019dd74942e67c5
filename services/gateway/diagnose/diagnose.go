// Package diagnose proves that messages get through: for every route and topic
// that somebody subscribes to it publishes and consumes a message of its own, on
// the same lanes and brokers. That is done in executions and topics that nobody else uses, so
// no handler is called, and nothing of them is left.
package diagnose

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// Bounds of one run.
const (
	// DefaultTimeout is how long Run may try; tidying up comes after.
	DefaultTimeout = 25 * time.Second
	// probeTime is how long a subscription may take, and then its message, there and
	// back.
	probeTime = 10 * time.Second
	// together is the number of messages that are tried at once.
	together = 256
	// most is about the number of messages of one run: with more lanes of more
	// routes than that, each route is tried on fewer of its lanes.
	most = 4096
)

// Options of Run.
type Options struct {
	// NC asks the services.
	NC *nats.Conn
	// Connect makes a connection that works for the mesh; Run closes it.
	Connect func(ctx context.Context) (*client.Client, error)
	Logger  *slog.Logger // default none
	// Timeout is DefaultTimeout if it is 0. What was not tried by then has failed
	// with TIMEOUT.
	Timeout time.Duration
}

// Report is what a run found out.
type Report struct {
	OK bool `json:"ok"` // every line is
	// Lines has one for each route, then one for each topic.
	Lines []Line `json:"lines" nullable:"false"`
	// Brokers are those outside of the mesh. One that is not used for anything new may
	// be away with the report OK.
	Brokers []protocol.BrokerInfo `json:"brokers,omitempty"`
	TookMs  float64               `json:"took_ms"`
}

// Line is what was found out of one route or topic.
type Line struct {
	Route string `json:"route,omitempty"`
	Topic string `json:"topic,omitempty"`
	// Queues is the number of queues it stands for: of a route one an execution,
	// of a topic one a subscriber.
	Queues int `json:"queues"`
	// Lanes are those of its queues that were tried.
	Lanes []string `json:"lanes" nullable:"false"`
	// Broker is what took the message that was published last.
	Broker string `json:"broker,omitempty"`
	// On are the brokers outside of the mesh that its queues are on.
	On []string `json:"on,omitempty"`
	OK bool     `json:"ok"`
	// PublishMs is the time until a message was stored, ConsumeMs from its publish
	// until a consumer had it; of the slowest lane.
	PublishMs float64 `json:"publish_ms"`
	ConsumeMs float64 `json:"consume_ms"`
	// Unmet is what the brokers of its queues cannot do of what subscribers ask for, of
	// some of them: a route was changed since they subscribed.
	Unmet []string `json:"unmet,omitempty"`
	// Error is why it is not OK, of the first lane that failed.
	Error *protocol.Error `json:"error,omitempty"`
}

// ms is a duration in milliseconds, to the microsecond.
func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Run tries every route and topic that is subscribed to, and, if there is none,
// one of its own. It fails if it cannot be found out what is subscribed to
// (UNAVAILABLE, TIMEOUT); what does not get through is in the report.
func Run(ctx context.Context, o Options) (*Report, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	began := time.Now()
	trying, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	subjects, err := find(trying, o.NC)
	if err != nil {
		return nil, err
	}
	r := &run{o: o, name: newName(began), executions: map[string]bool{}}
	probes := r.plan(subjects)
	for first := 0; first < len(probes); first += together {
		r.try(trying, probes[first:min(first+together, len(probes))])
	}
	r.tidy(context.WithoutCancel(ctx))
	report := &Report{Lines: lines(subjects, probes), Brokers: brokers(context.WithoutCancel(ctx), o), TookMs: ms(time.Since(began))}
	report.missed()
	report.OK = allOK(report.Lines) && !slices.ContainsFunc(report.Brokers, isMissing)
	return report, nil
}

// Known is what Run would try, untried.
func Known(ctx context.Context, nc *nats.Conn) (*Report, error) {
	subjects, err := find(ctx, nc)
	if err != nil {
		return nil, err
	}
	report := &Report{Lines: lines(subjects, nil)}
	for i, s := range subjects {
		for _, to := range s.spots {
			report.Lines[i].at(ledger.Name("router", to.lane), to.at)
		}
	}
	return report, nil
}

// Unreachable is earlier with every line failed with err: what Run is good for when
// it cannot be asked any more who subscribes to what.
func Unreachable(earlier *Report, err error) *Report {
	report := &Report{Lines: slices.Clone(earlier.Lines)}
	for i := range report.Lines {
		l := &report.Lines[i]
		l.OK, l.PublishMs, l.ConsumeMs, l.Error = false, 0, 0, protocol.AsError(err)
	}
	return report
}

func allOK(lines []Line) bool {
	for i := range lines {
		if !lines[i].OK {
			return false
		}
	}
	return true
}

// run is one diagnosis.
type run struct {
	o    Options
	name string // begins the names of its executions and topics

	mu         sync.Mutex
	executions map[string]bool // in which something was done
}

// at notes where a queue of it is.
func (l *Line) at(lane string, broker site) {
	if !slices.Contains(l.Lanes, lane) {
		l.Lanes = append(l.Lanes, lane)
	}
	if broker.mark != "" && !slices.Contains(l.On, broker.name) {
		l.On = append(l.On, broker.name)
		slices.Sort(l.On)
	}
}

// lines sums up the probes of each subject.
func lines(subjects []*subject, probes []*probe) []Line {
	byNumber := make([]Line, len(subjects))
	for i, s := range subjects {
		byNumber[i] = Line{Route: s.route, Topic: s.topic, Queues: s.queues, Lanes: []string{}, OK: true, Unmet: s.unmet}
	}
	for _, p := range probes {
		l := &byNumber[p.subject.number]
		l.at(p.lane, p.at)
		if p.broker != "" {
			l.Broker = p.broker
		}
		l.PublishMs, l.ConsumeMs = max(l.PublishMs, ms(p.published)), max(l.ConsumeMs, ms(p.consumed))
		if p.err != nil && l.Error == nil {
			l.OK, l.Error = false, p.err
		}
	}
	return byNumber
}
