package cli

import (
	"encoding/json"
	"errors"
	"os"
	"strings"

	"github.com/waybill-mq/waybill/pkg/filter"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

type filterCmd struct {
	Test filterTestCmd `cmd:"" help:"Evaluate a filter on a document, without a mesh. Exit codes: 0 it matches; 1 it does not; 2 the filter is refused, with its code."`
}

type filterTestCmd struct {
	Filter   string `required:"" help:"The filter: a file, JSON, or - for stdin." placeholder:"F"`
	Document string `required:"" help:"The document, an object with the roots (input, …): a file, JSON, or - for stdin." placeholder:"D"`
	Explain  bool   `help:"Say why, clause by clause."`
}

// errNoMatch makes filter test exit with ExitFailure; it has said why.
var errNoMatch = errors.New("the filter does not match")

func (c *filterTestCmd) Run(a *app) error {
	if c.Filter == "-" && c.Document == "-" {
		return protocol.Errorf(protocol.CodeInvalidArgs, "only one of --filter and --document can be read from stdin")
	}
	raw, err := jsonArg(a, "--filter", c.Filter, protocol.CodeInvalidFilter)
	if err != nil {
		return err
	}
	f, err := filter.Compile(raw)
	if err != nil {
		return err
	}
	raw, err = jsonArg(a, "--document", c.Document, protocol.CodeInvalidArgs)
	if err != nil {
		return err
	}
	d := new(filter.Document).Roots(raw)
	if !d.IsJSON() {
		return protocol.Errorf(protocol.CodeInvalidArgs, "--document is no JSON object; a message {…} is tested as {\"input\": {…}}")
	}
	return c.report(a, f, d)
}

func (c *filterTestCmd) report(a *app, f *filter.Filter, d *filter.Document) error {
	result := struct {
		Matches bool            `json:"matches"`
		Reasons []filter.Reason `json:"reasons,omitempty"`
	}{Matches: f.Match(d)}
	if c.Explain {
		result.Reasons = f.Explain(d)
	}
	err := a.show(result, func() {
		a.sayf("%s", map[bool]string{true: "match", false: "no match"}[result.Matches])
		a.reasons(result.Reasons, "  ")
		if c.Explain && f.Everything() {
			a.sayf("  the empty filter matches everything")
		}
	})
	if err == nil && !result.Matches {
		return errNoMatch
	}
	return err
}

// reasons writes a tree, one line a clause.
func (a *app) reasons(rs []filter.Reason, indent string) {
	for _, r := range rs {
		line := map[bool]string{true: "yes ", false: "no  "}[r.Matches] + indent + r.Clause
		if r.Why != "" {
			line += ": " + r.Why
		}
		a.sayf("%s", line)
		a.reasons(r.Reasons, indent+"  ")
	}
}

// jsonArg is an argument that is JSON itself, the name of a file, or - for
// stdin; code is what it is refused with if it is none of them.
func jsonArg(a *app, name, arg string, code protocol.Code) ([]byte, error) {
	if arg == "-" || json.Valid([]byte(arg)) || strings.HasPrefix(strings.TrimSpace(arg), "{") {
		return payload(a, arg)
	}
	b, err := os.ReadFile(arg)
	if err != nil {
		return nil, protocol.Errorf(code, "%s is neither JSON nor a file that can be read: %v", name, err)
	}
	return b, nil
}
