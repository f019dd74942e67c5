package main

import "fmt"

// aim is what the mesh wants to reach when every publish is fsynced before its
// answer. A run says whether it does; a machine that is busy or slow fails
// nothing.
type aim struct {
	what  string
	value func(r *report) (float64, bool)
	least float64 // 0: there is only a most
	most  float64
	unit  string
}

var aims = []aim{
	{what: "one queue: over raw JetStream's default sync", value: over("jobs", raw), least: 1.5},
	{what: "many queues: over raw JetStream's default sync on one", value: over("queues-many", raw), least: 1.5},
	{what: "one queue: over raw JetStream's SyncAlways", value: over("jobs", rawAlways), least: 25},
	{what: "failing once: over not failing", value: over("fail-once", meshAlways), least: 0.4},
	{what: "one in 10 traced: over none", value: traced("traced-10"), least: 0.7},
	{what: "redrive", value: of("redrive", ""), least: 30_000, unit: "/s"},
	{what: "latency p50", value: of("latency", "p50"), most: 0.8, unit: " ms"},
	{what: "latency p99", value: of("latency", "p99"), most: 2, unit: " ms"},
	{what: "one queue on RabbitMQ: over a raw client", value: besideRaw("jobs", meshRabbit, rawRabbit), least: 0.9},
	{what: "10 queues on RabbitMQ: over a raw client", value: besideRaw("queues-10", meshRabbit, rawRabbit), least: 0.9},
	{what: "one queue on Artemis: over a raw client", value: besideRaw("jobs", meshArtemis, rawArtemis), least: 0.9},
	{what: "10 queues on Artemis: over a raw client", value: besideRaw("queues-10", meshArtemis, rawArtemis), least: 0.9},
	{what: "one queue on Pulsar: over a raw client", value: besideRaw("jobs", meshPulsar, rawPulsar), least: 0.9},
	{what: "10 queues on Pulsar: over a raw client", value: besideRaw("queues-10", meshPulsar, rawPulsar), least: 0.9},
	{what: "lateness p99", value: of("lateness", "p99"), most: 5, unit: " ms"},
}

// over is the mesh's figure over that of a system with jobs on one queue.
func over(scenario, system string) func(r *report) (float64, bool) {
	return func(r *report) (float64, bool) {
		return quotient(r.find(scenario, "", meshAlways), r.find("jobs", "", system))
	}
}

// besideRaw is the mesh's figure on a broker over that of a raw client.
func besideRaw(scenario, mesh, raw string) func(r *report) (float64, bool) {
	return func(r *report) (float64, bool) {
		return quotient(r.find(scenario, "", mesh), r.find(scenario, "", raw))
	}
}

// traced is the mesh's figure with traces over that without, both with the sync
// that shows the cost of the processor most.
func traced(scenario string) func(r *report) (float64, bool) {
	return func(r *report) (float64, bool) {
		return quotient(r.find(scenario, "", mesh2m), r.find("traced-off", "", mesh2m))
	}
}

// of is the mesh's figure.
func of(scenario, row string) func(r *report) (float64, bool) {
	return func(r *report) (float64, bool) {
		res := r.find(scenario, row, meshAlways)
		if res == nil {
			return 0, false
		}
		return median(res.Values), true
	}
}

func (a aim) String() string {
	if a.least > 0 {
		return fmt.Sprintf("at least %s%s", figure(a.least), a.unit)
	}
	return fmt.Sprintf("below %s%s", figure(a.most), a.unit)
}

func (a aim) reached(v float64) bool {
	if a.least > 0 {
		return v >= a.least
	}
	return v < a.most
}

// aims says which aims that could be looked at are reached.
func (r *report) aims() table {
	t := table{{"aim, fsynced", "", "measured", ""}}
	for _, a := range aims {
		v, ok := a.value(r)
		if !ok {
			continue
		}
		verdict := "missed"
		if a.reached(v) {
			verdict = "reached"
		}
		t = append(t, []string{a.what, a.String(), figure(v), verdict})
	}
	return t
}
