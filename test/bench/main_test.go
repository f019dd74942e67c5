package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain lets the test binary be the servers, as the program is.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "serve-") {
		os.Exit(run(os.Args[1:]))
	}
	goleak.VerifyTestMain(m)
}

// brief is long enough to see that everything is handled, not to measure.
var brief = settings{
	Rounds: 1, Warmup: 50 * time.Millisecond, Publish: 50 * time.Millisecond, Pace: 100 * time.Millisecond,
	Queues: 20, ManyQueues: 50, Redriven: 200, Waiting: 200, Due: 300 * time.Millisecond, GiveUp: time.Minute,
}

func TestEveryScenarioCountsRight(t *testing.T) {
	for _, sys := range systems {
		for _, sc := range scenarios(brief) {
			// The other two differ by an interval alone, and fsyncs take long.
			if (sys.name == mesh2m || sys.name == rawAlways) && sc.traced == "" || !sc.has(sys) {
				continue
			}
			t.Run(sys.name+"/"+sc.name, func(t *testing.T) {
				profiles := t.TempDir()
				values, spent, err := measure(t.Context(), &sc, sys, brief, t.TempDir(), profiles)
				if err != nil {
					t.Fatal(err)
				}
				if len(values) != len(sc.rows) {
					t.Fatalf("%d values, want %d", len(values), len(sc.rows))
				}
				processes := 1
				if sys.serve != nil {
					processes = 2
				}
				if spent.Messages == 0 || spent.Client.Mallocs == 0 || (spent.Server.Mallocs > 0 && spent.Server.PeakRSS > 0) != (processes == 2) {
					t.Errorf("costs are missing: %+v", spent)
				}
				if files, err := os.ReadDir(profiles); err != nil || len(files) != 3*processes {
					t.Errorf("%d profiles and %v, want two of allocations and one of the processor for each process", len(files), err)
				}
			})
		}
	}
}

// handing is a broker that hands each message to the handler so many times.
type handing struct {
	broker
	times  func(message int) int
	handle func(payload []byte) verdict
}

func (h *handing) publish(_ context.Context, _ int, payload []byte) error {
	for range h.times(int(binary.LittleEndian.Uint64(payload))) {
		h.handle(payload)
	}
	return nil
}

func (h *handing) work(_ context.Context, w work) error {
	h.handle = w.handle
	return nil
}

func (*handing) flush(context.Context) error                { return nil }
func (*handing) left(context.Context) (int64, int64, error) { return 0, 0, nil }

func TestALostOrRepeatedMessageFailsTheRun(t *testing.T) {
	for name, c := range map[string]struct {
		times func(message int) int
		want  string
	}{
		"all once":       {func(int) int { return 1 }, ""},
		"one repeated":   {func(m int) int { return 1 + m/7 }, "message 7 of 8 was handled 2 times"},
		"lost, repeated": {func(m int) int { return []int{1, 0, 2}[m%3] + m/7 }, "message 1 of 8 was handled 0 times"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFlow(&handing{times: c.times}, 1, 16)
			if err := f.work(t.Context(), nil, func(call) verdict { return done }); err != nil {
				t.Fatal(err)
			}
			if err := f.publishMany(t.Context(), 8); err != nil {
				t.Fatal(err)
			}
			err := f.finish(t.Context(), 1)
			if got := fmt.Sprint(err); (err == nil) != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestReport(t *testing.T) {
	o := settings{Rounds: 3, ManyQueues: 10_000, Redriven: 1}
	r := &report{Settings: o, scenarios: scenarios(o), systems: systems}
	spent := cost{Messages: 10, Client: usage{CPU: 10 * time.Microsecond, Mallocs: 20}, Server: usage{CPU: 30 * time.Microsecond, Mallocs: 40, PeakRSS: 2048}}
	add := func(scenario int, system int, rounds ...float64) {
		for _, v := range rounds {
			values := make([]float64, len(r.scenarios[scenario].rows))
			for i := range values {
				values[i] = v
			}
			r.add(&r.scenarios[scenario], systems[system], values, spent)
		}
	}
	add(0, 0, 50_000, 100_000, 40_000)
	add(0, 3, 100_000, 110_000, 90_000) // ratios 2, 1.1, 2.25
	add(5, 3, 0.5)
	out := r.String()
	for _, want := range []string{
		"50,000 (40,000–100,000)", "100,000 (90,000–110,000)", "2.00", "0.50",
		"one queue: over raw", "reached", "1.00", "3.00", "4.00",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the report does not say %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "at least 30,000/s") {
		t.Error("the report has an aim that was not measured")
	}
}

func TestFigures(t *testing.T) {
	for v, want := range map[float64]string{0: "0.00", 0.00314: "0.0031", 0.526: "0.53", 9.99: "9.99", 12.34: "12.3", 123.4: "123", 1234: "1,234", 1234567: "1,234,567"} {
		if got := figure(v); got != want {
			t.Errorf("%v is shown as %s, want %s", v, got, want)
		}
	}
	if m := median([]float64{4, 1, 3, 2}); m != 2.5 {
		t.Errorf("median %v, want 2.5", m)
	}
}

func TestChoose(t *testing.T) {
	nameOf := func(s system) string { return s.name }
	if got, err := choose(systems, []string{raw}, nameOf); err != nil || len(got) != 1 || got[0].name != raw {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := choose(systems, []string{"rax"}, nameOf); err == nil {
		t.Error("an unknown name was taken")
	}
}

func TestAPageTakesTheReport(t *testing.T) {
	page := "# Page\n\n" + resultsBegin + "old\n" + resultsEnd + "\nafter\n"
	for _, report := range []string{"new\n", "newer\n"} {
		got, err := replaceResults(page, report)
		if want := "# Page\n\n" + resultsBegin + "\n" + report + "\n" + resultsEnd + "\nafter\n"; err != nil || got != want {
			t.Fatalf("%q, %v, want %q", got, err, want)
		}
		page = got
	}
	if _, err := replaceResults("# Page\n"+resultsEnd, ""); err == nil {
		t.Error("a page without a place for it was taken")
	}
}
