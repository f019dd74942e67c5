package gateway

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/internal/operate"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// collector asks every service for its counters at each scrape. They are kept
// in the ledgers, so a restart does not begin them anew, and are summed over a
// service's instances, since ledgers move between those. No label is an
// execution or a worker: there may be very many.
type collector struct {
	nc    *nats.Conn
	log   *slog.Logger
	books *books

	routes routeNames
	mu     sync.Mutex
	steady map[series]*steadyCounter
}

// series is of a service, or of a route.
type series struct{ service, route, name string }

func newCollector(nc *nats.Conn, log *slog.Logger, b *books) *collector {
	return &collector{nc: nc, log: log, books: b, steady: map[series]*steadyCounter{}}
}

var (
	connectedDesc = prometheus.NewDesc("waybill_nats_connected", "Whether the gateway is connected to NATS.", nil, nil)
	readyDesc     = prometheus.NewDesc("waybill_instances_ready", "Instances that answered, and are ready.", []string{"service"}, nil)
	instancesDesc = prometheus.NewDesc("waybill_instances", "Instances that answered.", []string{"service"}, nil)
	brokerUp      = brokerDesc("up", "Whether every router can use the broker.")
	brokerReady   = brokerDesc("ready", "Messages that were ready on the broker when it was last looked at.")
	brokerWaiting = brokerDesc("waiting", "Messages that waited on the broker for another try.")
	brokerDead    = brokerDesc("dead", "Dead letters on the broker.")
	brokerUnknown = brokerDesc("unknown_queues", "Queues on the broker that could not be looked at the last time, or have not been yet.")
	metricName    = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
)

func brokerDesc(name, text string) *prometheus.Desc {
	return prometheus.NewDesc("waybill_broker_"+name, text, []string{"broker"}, nil)
}

// own are names of gauges that are the gateway's.
var own = map[string]bool{"nats_connected": true, "instances": true, "instances_ready": true}

// newCalls counts the calls of webhooks that this gateway makes: each has its
// own, unlike what is kept in ledgers.
func newCalls() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "waybill_webhook_calls_total",
		Help: "Calls of webhooks by this gateway since its start, by what came of them.",
	}, []string{"webhook", "result"})
}

// Describe says nothing, which tells Prometheus' client that the metrics are
// known only when they are collected.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	connected := 0.0
	if c.nc.IsConnected() {
		connected = 1
	}
	out <- prometheus.MustNewConstMetric(connectedDesc, prometheus.GaugeValue, connected)
	c.books.collect(out)
	all, ready := c.ask()
	instances, counters, gauges := sum(all)
	for service, n := range instances {
		out <- prometheus.MustNewConstMetric(instancesDesc, prometheus.GaugeValue, n, service)
		out <- prometheus.MustNewConstMetric(readyDesc, prometheus.GaugeValue, ready[service], service)
	}
	maps.Copy(counters, c.routes.add(all))
	for s, value := range counters {
		emit(out, s, "_total", prometheus.CounterValue, float64(c.hold(s, value, time.Now())))
	}
	for name, b := range operate.BrokerStats(all) {
		emitBroker(out, name, b)
	}
	for s, value := range gauges {
		if own[s.name] {
			continue
		}
		emit(out, s, "", prometheus.GaugeValue, value)
	}
}

// ask asks all instances for what they have counted, and which are ready, at
// once.
func (c *collector) ask() (stats []protocol.Stats, ready map[string]float64) {
	ctx, cancel := context.WithTimeout(context.Background(), gatherTimeout)
	defer cancel()
	var asking sync.WaitGroup
	asking.Go(func() {
		ready = map[string]float64{}
		all, err := mesh.Gather[protocol.Ready](ctx, c.nc, protocol.SubjectReady, protocol.Empty{}, 0)
		for _, r := range all {
			if r.Ready {
				ready[r.Service]++
			}
		}
		if err != nil {
			c.log.Warn("some services did not tell whether they are ready", "error", err)
		}
	})
	stats, missing, err := operate.Stats(ctx, c.nc)
	if err = cmp.Or(err, missing.Err()); err != nil {
		c.log.Warn("some services did not tell their counters", "error", err)
	}
	asking.Wait()
	return stats, ready
}

// sum adds up what the instances of each service say.
func sum(all []protocol.Stats) (instances map[string]float64, counters map[series]uint64, gauges map[series]float64) {
	instances, counters, gauges = map[string]float64{}, map[series]uint64{}, map[series]float64{}
	for _, s := range all {
		instances[s.Service]++
		for name, value := range s.Counters {
			counters[series{service: s.Service, name: name}] += value
		}
		for name, value := range s.Gauges {
			at := series{service: s.Service, name: name}
			if strings.HasSuffix(name, "_seconds") || strings.HasSuffix(name, "_ratio") {
				gauges[at] = max(gauges[at], value)
				continue
			}
			gauges[at] += value
		}
	}
	return instances, counters, gauges
}

// emitBroker leaves out what a broker that is away was seen to hold before: it is not
// known.
func emitBroker(out chan<- prometheus.Metric, name string, b protocol.BrokerStats) {
	if !b.Up {
		out <- prometheus.MustNewConstMetric(brokerUp, prometheus.GaugeValue, 0, name)
		return
	}
	out <- prometheus.MustNewConstMetric(brokerUp, prometheus.GaugeValue, 1, name)
	out <- prometheus.MustNewConstMetric(brokerReady, prometheus.GaugeValue, float64(b.Ready), name)
	out <- prometheus.MustNewConstMetric(brokerWaiting, prometheus.GaugeValue, float64(b.Waiting), name)
	out <- prometheus.MustNewConstMetric(brokerDead, prometheus.GaugeValue, float64(b.Dead), name)
	out <- prometheus.MustNewConstMetric(brokerUnknown, prometheus.GaugeValue, float64(b.Unknown), name)
}

func emit(out chan<- prometheus.Metric, s series, suffix string, kind prometheus.ValueType, value float64) {
	if !metricName.MatchString(s.name) {
		return // of a later version; its own gateway knows it
	}
	prefix, label, of := "waybill_", "service", s.service
	if s.route != "" {
		prefix, label, of = "waybill_route_", "route", s.route
	}
	desc := prometheus.NewDesc(prefix+s.name+suffix, help[s.name], []string{label}, nil)
	out <- prometheus.MustNewConstMetric(desc, kind, value, of)
}

// steadyCounter holds a counter that seems to go back. While a ledger changes
// hands nobody tells its part of the sum; Prometheus would take that for a
// reset, and count everything once more when it is back.
type steadyCounter struct {
	value uint64
	since time.Time // when it was last reached
}

// holdFor is longer than a ledger is without an owner. What is lower after
// that is lower for good: queues were removed.
const holdFor = time.Minute

func (c *collector) hold(s series, value uint64, now time.Time) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	held := c.steady[s]
	if held == nil {
		held = &steadyCounter{}
		c.steady[s] = held
	}
	if value >= held.value || now.Sub(held.since) > holdFor {
		held.value, held.since = value, now
	}
	return held.value
}

// help of metrics whose names do not say all. One name has one help, whichever
// services tell it.
var help = map[string]string{
	protocol.CountPublished:    "Messages published and committed.",
	protocol.CountDeduplicated: "Publishes that repeated an earlier one's Nats-Msg-Id.",
	protocol.CountDelivered:    "Deliveries handed to a worker.",
	protocol.CountAcknowledged: "Deliveries that were acknowledged.",
	protocol.CountFiltered:     "Messages a subscription's filter left out.",
	protocol.CountFailed:       "Deliveries that failed, timeouts included.",
	protocol.CountRejected:     "Deliveries that were rejected.",
	protocol.CountIncomplete:   "Deliveries that ended without an outcome.",
	protocol.CountRetried:      "Messages sent back for another attempt.",
	protocol.CountDeadLettered: "Messages given up as dead letters.",
	protocol.CountRedriven:     "Dead letters sent back by an operator.",
	protocol.CountDiscarded:    "Messages thrown away: by an operator, with their execution, or with the listener they were for.",
	protocol.CountSuperseded:   "Settlements withheld because what they name has moved on.",
	protocol.CountLost:         "Settlements that could not be recorded.",
	protocol.CountVanished:     "Deliveries whose worker vanished.",
	protocol.CountRefused:      "Publishes that were refused.",
	protocol.CountHandedBack:   "Deliveries given back by a worker that shut down.",
	protocol.CountTaken:        "Messages taken over from another ledger.",
	protocol.CountSent:         "Messages decided to go to another ledger.",
	protocol.CountWrittenOff:   "Messages given up with a damaged part of a log.",
	protocol.CountDropped:      "Messages of a broker that keeps none, which nobody took in time.",
	protocol.CountTakeovers:    "How often ledgers changed hands.",
	"unattended_queues":        "Queues that hold messages and have no consumer.",
	"stalled_seconds":          "The longest that the same message has been its queue's next, as far as somebody looked.",
	"overdue_seconds":          "For how long the oldest that waits has been due.",
	"disk_room_bytes":          "What publishes may still take of the disk.",
	"queue_messages_ratio":     "How much of limits.queue_messages the fullest queue uses; 0 without that limit.",
	"queue_bytes_ratio":        "How much of limits.queue_bytes the fullest queue uses; 0 without that limit.",
	"total_messages_ratio":     "How much of limits.total_messages the mesh uses; 0 without that limit.",
	"total_bytes_ratio":        "How much of limits.total_bytes the mesh uses; 0 without that limit.",
}
