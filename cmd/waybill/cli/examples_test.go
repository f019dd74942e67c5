package cli

import (
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"
)

// Every command has examples, and each of those is a command line of it.
func TestExamplesAreCommandLines(t *testing.T) {
	missing := map[string]bool{}
	for _, command := range newParser(t).Model.Leaves(true) {
		missing[pathOf(command)] = true
	}
	for path, text := range examples {
		if !missing[path] {
			t.Errorf("there are examples of %q, and no such command", path)
		}
		delete(missing, path)
		for line := range strings.Lines(text) {
			args := words(line)
			context, err := newParser(t).Parse(args)
			if err != nil {
				t.Errorf("%s: %v (%q)", strings.TrimSpace(line), err, args)
				continue
			}
			if got := pathOf(context.Selected()); got != path {
				t.Errorf("%s is an example of %q, and runs %q", line, path, got)
			}
		}
	}
	for path := range missing {
		t.Errorf("%q has no example: add one to examples.go", path)
	}
}

func newParser(t *testing.T) *kong.Kong {
	t.Helper()
	parser, err := kong.New(&commands{}, kong.Name("waybill"), kong.Exit(func(int) {}))
	if err != nil {
		t.Fatal(err)
	}
	return parser
}

// words are the arguments of waybill in a line for a shell, which is about the
// command in it: what is before, and beyond its redirection, is left out.
func words(line string) (args []string) {
	_, line, _ = strings.Cut(strings.TrimSpace(line), "waybill ")
	line, _, _ = strings.Cut(line, " > ")
	line = strings.TrimSuffix(line, ")")
	for i, part := range strings.Split(line, "'") {
		if quoted := i%2 == 1; quoted {
			args = append(args, part)
		} else {
			args = append(args, strings.Fields(part)...)
		}
	}
	return args
}

func TestWords(t *testing.T) {
	for line, want := range map[string][]string{
		`waybill pub topic t '{"a": 1}'`:               {"pub", "topic", "t", `{"a": 1}`},
		"echo hello | waybill pub queue e r -":         {"pub", "queue", "e", "r", "-"},
		"source <(waybill completion bash)":            {"completion", "bash"},
		"waybill completion fish > ~/waybill.fish":     {"completion", "fish"},
		"waybill work e r --exec './do it' --count 1 ": {"work", "e", "r", "--exec", "./do it", "--count", "1"},
	} {
		if diff := cmp.Diff(want, words(line)); diff != "" {
			t.Errorf("%s: %s", line, diff)
		}
	}
}
