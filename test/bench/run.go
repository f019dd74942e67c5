package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

type runCommand struct {
	Broker  string        `help:"Measure the mesh with its queues on a broker beside a raw client of it (${brokers}), which is started as deploy/brokers says." placeholder:"NAME"`
	Quick   bool          `help:"A minute's worth: one round, short, fewer queues and messages."`
	Only    []string      `help:"Only these scenarios (${scenarios})."                            placeholder:"NAME"`
	Systems []string      `help:"Only these systems (${systems})."                                placeholder:"NAME"`
	Rounds  int           `help:"Rounds; default 3, with --quick 1."`
	For     time.Duration `help:"How long the measurements that go as fast as possible publish; default 2s, with --quick 500ms. Longer makes better profiles."`
	Data    string        `default:"${tmp}"                                                       help:"Directory whose disk is measured." type:"existingdir"`
	Profile string        `help:"Directory for CPU and allocation profiles of clients and servers." placeholder:"DIR"`
	JSON    bool          `help:"Print every value as JSON instead of the tables."`
	Into    string        `help:"Markdown file to write the tables into as well, in place of what stands between the lines <!-- results --> and <!-- /results -->." placeholder:"FILE" type:"existingfile"`

	beside *beside // of the run, with a place for each measurement; nil: none
}

// Run measures and reports.
func (c *runCommand) Run(ctx context.Context) error {
	o := full
	if c.Quick {
		o = quick
	}
	if c.Rounds > 0 {
		o.Rounds = c.Rounds
	}
	if c.For > 0 {
		o.Publish = c.For
	}
	chosen, err := choose(scenarios(o), c.Only, func(s scenario) string { return s.name })
	if err != nil {
		return err
	}
	measured := systems
	if c.Broker != "" {
		start := brokers[c.Broker]
		if start == nil {
			return fmt.Errorf("no broker %q is measured, but: %s", c.Broker, brokerNames())
		}
		if c.beside, err = start(c.Data); err != nil {
			return err
		}
		measured = c.beside.systems
	}
	beside, err := choose(measured, c.Systems, func(s system) string { return s.name })
	if err != nil {
		return err
	}
	chosen = slices.DeleteFunc(chosen, func(sc scenario) bool { return !slices.ContainsFunc(beside, sc.has) })
	if c.Profile != "" {
		if c.Profile, err = filepath.Abs(c.Profile); err != nil {
			return err
		}
		if err := os.MkdirAll(c.Profile, 0o750); err != nil {
			return err
		}
	}
	r := &report{Machine: describe(c.Data), Settings: o, scenarios: chosen, systems: beside}
	if err := c.measureAll(ctx, r); err != nil {
		return err
	}
	return errors.Join(c.print(os.Stdout, r), c.into(r))
}

// into writes the report into the file that was asked for.
func (c *runCommand) into(r *report) error {
	if c.Into == "" {
		return nil
	}
	old, err := os.ReadFile(c.Into)
	if err != nil {
		return err
	}
	page, err := replaceResults(string(old), r.String())
	if err != nil {
		return fmt.Errorf("%s: %w", c.Into, err)
	}
	return os.WriteFile(c.Into, []byte(page), 0o644)
}

// The lines between which a page has a report.
const (
	resultsBegin = "<!-- results -->\n"
	resultsEnd   = "<!-- /results -->\n"
)

// replaceResults is the page with another report.
func replaceResults(page, report string) (string, error) {
	before, rest, begins := strings.Cut(page, resultsBegin)
	_, after, ends := strings.Cut(rest, resultsEnd)
	if !begins || !ends {
		return "", fmt.Errorf("the lines %q and %q are not there", strings.TrimSpace(resultsBegin), strings.TrimSpace(resultsEnd))
	}
	return before + resultsBegin + "\n" + report + "\n" + resultsEnd + after, nil
}

// measureAll goes round: every scenario on every system, then again.
func (c *runCommand) measureAll(ctx context.Context, r *report) error {
	for round := range r.Settings.Rounds {
		for i := range r.scenarios {
			for _, sys := range r.systems {
				if !r.scenarios[i].has(sys) || round > 0 && r.scenarios[i].once {
					continue
				}
				if err := c.measureOne(ctx, r, &r.scenarios[i], sys, round); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (c *runCommand) measureOne(ctx context.Context, r *report, sc *scenario, sys system, round int) error {
	remove := func() error { return nil }
	if c.beside != nil {
		var err error
		if sys.at, remove, err = c.beside.place(); err != nil {
			return err
		}
		sys.beside, sys.adapter = c.beside, c.Broker+" "+c.beside.key
	}
	values, spent, err := measure(ctx, sc, sys, r.Settings, c.Data, c.Profile)
	if err = errors.Join(err, remove()); err != nil {
		return fmt.Errorf("%s on %s: %w", sc.name, sys.name, err)
	}
	r.add(sc, sys, values, spent)
	shown := make([]string, len(values))
	for i, v := range values {
		shown[i] = strings.TrimSpace(sc.rows[i].title + " " + figure(v) + " " + sc.rows[i].unit)
	}
	fmt.Fprintf(os.Stderr, "round %d  %-12s %-12s %s\n", round+1, sc.name, sys.name, strings.Join(shown, ", "))
	return nil
}

func (c *runCommand) print(w io.Writer, r *report) error {
	if !c.JSON {
		_, err := io.WriteString(w, r.String())
		return err
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// choose picks what is named, everything if nothing is.
func choose[T any](all []T, names []string, nameOf func(T) string) ([]T, error) {
	if len(names) == 0 {
		return all, nil
	}
	var picked []T
	for _, t := range all {
		if slices.Contains(names, nameOf(t)) {
			picked = append(picked, t)
		}
	}
	if len(picked) < len(names) {
		return nil, fmt.Errorf("one of %s is not there: see --help for the names", strings.Join(names, ", "))
	}
	return picked, nil
}

// names are what choose knows.
func names[T any](all []T, nameOf func(T) string) string {
	list := make([]string, len(all))
	for i, t := range all {
		list[i] = nameOf(t)
	}
	return strings.Join(list, ", ")
}
