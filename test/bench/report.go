package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// report is all that was found out.
type report struct {
	Machine  machine  `json:"machine"`
	Settings settings `json:"settings"`
	Results  []result `json:"results"`

	scenarios []scenario
	systems   []system
}

// result is one figure of a scenario on a system, round by round.
type result struct {
	Scenario string    `json:"scenario"`
	System   string    `json:"system"`
	Row      string    `json:"row,omitempty"`
	Unit     string    `json:"unit"`
	Values   []float64 `json:"values"`
	Costs    []cost    `json:"costs"`
}

func (r *report) add(sc *scenario, sys system, values []float64, spent cost) {
	for i, row := range sc.rows {
		res := r.find(sc.name, row.title, sys.name)
		if res == nil {
			r.Results = append(r.Results, result{Scenario: sc.name, System: sys.name, Row: row.title, Unit: row.unit})
			res = &r.Results[len(r.Results)-1]
		}
		res.Values = append(res.Values, values[i])
		res.Costs = append(res.Costs, spent)
	}
}

func (r *report) find(scenario, row, system string) *result {
	for i := range r.Results {
		if res := &r.Results[i]; res.Scenario == scenario && res.Row == row && res.System == system {
			return res
		}
	}
	return nil
}

// String is the report in Markdown.
func (r *report) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "> %s\n\n", strings.ReplaceAll(r.Machine.String(), "\n", "\n> "))
	r.figures().writeTo(&s)
	fmt.Fprintf(&s, "\nRounds: %d; median (least–most), and a ratio is the median of the rounds' own.\n\n", r.Settings.Rounds)
	r.costs().writeTo(&s)
	s.WriteString("\n")
	r.aims().writeTo(&s)
	return s.String()
}

// ratios are the columns that compare, left over right.
var ratios = [][2]string{{mesh2m, raw}, {meshAlways, raw}, {meshAlways, rawAlways}, {meshAlways, rawEach}, {meshAlways, inProcess}, {meshRabbit, rawRabbit}, {meshArtemis, rawArtemis}, {meshPulsar, rawPulsar}}

func (r *report) figures() table {
	head := append(make([]string, 0, 2+len(r.systems)+len(ratios)), "", "")
	for _, sys := range r.systems {
		head = append(head, sys.title)
	}
	for _, ratio := range ratios {
		head = append(head, ratio[0]+" / "+ratio[1])
	}
	t := table{head}
	for i := range r.scenarios {
		for _, row := range r.scenarios[i].rows {
			t = append(t, r.figuresOf(&r.scenarios[i], row))
		}
	}
	return t.withoutEmpty()
}

func (r *report) figuresOf(sc *scenario, row row) []string {
	cells := append(make([]string, 0, 2+len(r.systems)+len(ratios)), strings.TrimSpace(sc.title+" "+row.title), row.unit)
	for _, sys := range r.systems {
		cells = append(cells, r.find(sc.name, row.title, sys.name).String())
	}
	for _, ratio := range ratios {
		cell := nothing
		if q, ok := quotient(r.find(sc.name, row.title, ratio[0]), r.find(sc.name, row.title, ratio[1])); ok {
			cell = figure(q)
		}
		cells = append(cells, cell)
	}
	return cells
}

// nothing stands where nothing was measured.
const nothing = "–"

func (r *result) String() string {
	if r == nil {
		return nothing
	}
	least, most := figure(slices.Min(r.Values)), figure(slices.Max(r.Values))
	if least == most {
		return least
	}
	return fmt.Sprintf("%s (%s–%s)", figure(median(r.Values)), least, most)
}

// quotient is the median of the rounds' quotients; false if either is missing.
func quotient(over, under *result) (float64, bool) {
	if over == nil || under == nil {
		return 0, false
	}
	n := min(len(over.Values), len(under.Values))
	all := make([]float64, n)
	for i := range all {
		all[i] = over.Values[i] / under.Values[i]
	}
	return median(all), true
}

// costs say what a message costs in processor time and allocations.
func (r *report) costs() table {
	t := table{{"a message costs", "system", "client µs", "server µs", "broker µs", "client allocations", "server allocations", "server peak MiB"}}
	for i := range r.scenarios {
		sc := &r.scenarios[i]
		for _, sys := range r.systems {
			if res := r.find(sc.name, sc.rows[0].title, sys.name); res != nil {
				t = append(t, append([]string{sc.title, sys.name}, res.costs()...))
			}
		}
	}
	return t
}

func (r *result) costs() []string {
	of := func(f func(c cost) float64) string {
		all := make([]float64, len(r.Costs))
		for i, c := range r.Costs {
			all[i] = f(c)
		}
		return figure(median(all))
	}
	each := func(f func(c cost) float64) string {
		return of(func(c cost) float64 { return f(c) / float64(c.Messages) })
	}
	return []string{
		each(func(c cost) float64 { return float64(c.Client.CPU.Nanoseconds()) / 1000 }),
		each(func(c cost) float64 { return float64(c.Server.CPU.Nanoseconds()) / 1000 }),
		each(func(c cost) float64 { return float64(c.BrokerCPU.Nanoseconds()) / 1000 }),
		each(func(c cost) float64 { return float64(c.Client.Mallocs) }),
		each(func(c cost) float64 { return float64(c.Server.Mallocs) }),
		of(func(c cost) float64 { return float64(c.Server.PeakRSS) / 1024 }),
	}
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	if n%2 == 1 {
		return sorted[n/2]
	}
	return (sorted[n/2-1] + sorted[n/2]) / 2
}

// figure shows a number with about three digits that mean something.
func figure(v float64) string {
	switch {
	case v >= 1000:
		return thousands(int(v))
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case v >= 0.1 || v == 0:
		return strconv.FormatFloat(v, 'f', 2, 64)
	default:
		return strconv.FormatFloat(v, 'g', 2, 64)
	}
}

func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
