package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/waybill-mq/waybill/cmd/waybill/up"
	"github.com/waybill-mq/waybill/internal/config"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

type configCmd struct {
	Data string `help:"Directory of a mesh that is stopped, whose configuration it is then; default: that of the mesh that runs." placeholder:"DIR" type:"path"`

	Check    configCheckCmd    `cmd:"" help:"Look whether a configuration file is right, without a mesh."`
	Show     configShowCmd     `cmd:"" help:"Print the mesh's configuration, as YAML."`
	Diff     configDiffCmd     `cmd:"" help:"Print what applying a file would change; exit 1 if anything."`
	Apply    configApplyCmd    `cmd:"" help:"Change the mesh's configuration to what a file says; what it does not name stays."`
	History  configHistoryCmd  `cmd:"" help:"List the last changes of the configuration: when, by whom, and what."`
	Rollback configRollbackCmd `cmd:"" help:"Make the configuration what it was at a revision."`
	Schema   configSchemaCmd   `cmd:"" help:"Print the JSON schema of configuration files, for editors."`
}

// atRest runs a command while the registry of a mesh that is stopped answers it, or
// as it is if there is no directory of one.
func (a *app) atRest(dir string, run func() error) error {
	if dir == "" {
		return run()
	}
	m, err := up.StartConfiguration(a.ctx, up.Options{Data: dir, Listen: "127.0.0.1:0", Version: a.version, Logger: a.log(slog.LevelWarn)})
	if err != nil {
		return started(a, "up", err)
	}
	a.flags.NATS, a.rests = m.NATS(), true
	return errors.Join(run(), m.Stop(context.Background()))
}

type configFile struct {
	File string `arg:"" help:"YAML file; - is stdin."`
}

func (c configFile) text(a *app) (name string, text []byte, err error) {
	if c.File == "-" {
		text, err = io.ReadAll(a.stdin)
		return "stdin", text, err
	}
	text, err = os.ReadFile(c.File)
	if err != nil {
		err = protocol.Errorf(protocol.CodeInvalidArgs, "the configuration cannot be read: %v", err)
	}
	return c.File, text, err
}

// readChange reads a file that changes the keys it names. What it says may be right
// only beside what is stored.
func (c configFile) readChange(a *app, replace bool) (*config.File, error) {
	name, text, err := c.text(a)
	if err != nil {
		return nil, err
	}
	keys := up.Keys(new(up.Options))
	file, wrong := config.Parse(name, text, keys)
	if wrong == nil || replace {
		return file, wrong
	}
	if file, err = config.ParseForm(name, text, keys); err != nil {
		return file, err
	}
	stored, err := ask[protocol.StoredConfig](a, protocol.SubjectConfig, protocol.ConfigRequest{})
	if err != nil {
		return nil, err
	}
	into, err := config.ParseDocument(stored.Set)
	if err != nil {
		return nil, err
	}
	return config.ParseChange(name, text, keys, into)
}

type configCheckCmd struct {
	configFile

	Part bool `help:"It names some keys of a configuration that has others too, for apply: only their form is looked at."`
}

// read reads the file; keys of the process itself are checked too.
func (c *configCheckCmd) read(a *app) (*config.File, error) {
	name, text, err := c.text(a)
	if err != nil {
		return nil, err
	}
	keys := up.Keys(new(up.Options))
	part, wrong := config.ParseForm(name, text, keys)
	if wrong != nil || c.Part {
		return part, wrong
	}
	file, err := config.Parse(name, text, keys)
	if err != nil {
		err = protocol.Errorf(protocol.CodeInvalidArgs, "%s\n  next: if a mesh has the rest, --part looks at the form alone, and %s at what comes of both",
			protocol.AsError(err).Message, command(a.flags.NATS, "config diff "+c.File))
	}
	return file, err
}

// configChecked is what a file sets, for machines.
type configChecked struct {
	Set      json.RawMessage `json:"set"`
	Warnings []string        `json:"warnings"`
}

func (c *configCheckCmd) Run(a *app) error {
	file, err := c.read(a)
	if err != nil {
		return err
	}
	return a.show(configChecked{Set: file.Document.JSON(), Warnings: append([]string{}, file.Warnings...)}, func() {
		for _, text := range file.Warnings {
			a.sayf("%s", text)
		}
		a.sayf("%s is right", c.File)
	})
}

type configShowCmd struct {
	Revision uint64 `help:"As it was at that revision; config history lists them." placeholder:"N"`
	Set      bool   `help:"Only what was set, without the defaults."`
}

func (c *configShowCmd) Run(a *app) error {
	stored, err := ask[protocol.StoredConfig](a, protocol.SubjectConfig, protocol.ConfigRequest{Revision: c.Revision})
	if err != nil {
		return err
	}
	redact(&stored)
	if a.flags.JSON {
		return a.show(stored, nil)
	}
	var shown any = stored.Config
	if c.Set {
		shown = stored.Set
	}
	text, err := yamlOf(shown)
	if err != nil {
		return err
	}
	if stored.Revision > 0 {
		a.sayf("# revision %d, %s by %s", stored.Revision, stored.At.Local().Format(time.DateTime), cmp.Or(stored.By, "an earlier version"))
	} else {
		a.sayf("# nothing was configured: these are the defaults")
	}
	a.sayf("%s", strings.TrimSuffix(text, "\n"))
	return nil
}

// redact takes the secrets out of what is shown.
func redact(stored *protocol.StoredConfig) {
	stored.Config.Adapter.Config = config.Redacted(stored.Config.Adapter.Config)
	for name, b := range stored.Config.Brokers {
		b.Config = config.Redacted(b.Config)
		stored.Config.Brokers[name] = b
	}
	for i := range stored.Placement.Brokers {
		b := &stored.Placement.Brokers[i]
		b.Adapter.Config = config.Redacted(b.Adapter.Config)
	}
	stored.Set = config.Redacted(stored.Set)
}

// yamlOf is a document of the wire as YAML.
func yamlOf(value any) (string, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return "", err
	}
	tree, err := config.ParseDocument(data)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	e := yaml.NewEncoder(&text)
	e.SetIndent(2)
	if err := e.Encode(map[string]any(tree)); err != nil {
		return "", err
	}
	return text.String(), e.Close()
}

type configDiffCmd struct {
	configFile

	Replace bool `help:"As apply --replace."`
}

func (c *configDiffCmd) Run(a *app) error {
	file, err := c.readChange(a, c.Replace)
	if err != nil {
		return err
	}
	edited, err := editConfig(a, protocol.ConfigEdit{Change: file.Document.JSON(), Replace: c.Replace, Check: true, Purge: true})
	if err != nil {
		return err
	}
	if err := a.show(edited, func() {
		sayDifferences(a, edited.Differences)
		if len(edited.Differences) == 0 {
			a.sayf("the configuration is as %s says", c.File)
		}
	}); err != nil {
		return err
	}
	if len(edited.Differences) > 0 {
		return errNoMatch
	}
	return nil
}

type configApplyCmd struct {
	configFile

	Replace bool    `help:"What the file does not name goes back to its default, and queues it does not name are removed."`
	Purge   bool    `help:"Let queues that are removed lose the jobs they have."`
	Expect  *uint64 `help:"Only if the configuration is still at this revision." placeholder:"REVISION"`
}

func (c *configApplyCmd) Run(a *app) error {
	file, err := c.readChange(a, c.Replace)
	if err != nil {
		return err
	}
	edited, err := editConfig(a, protocol.ConfigEdit{Change: file.Document.JSON(), Replace: c.Replace, Purge: c.Purge, Expect: c.Expect, By: whoAmI()})
	if err != nil {
		return err
	}
	if len(file.Own) > 0 {
		a.hintf("%s belong to the process that runs the mesh: they count when it starts", strings.Join(file.Own, ", "))
	}
	return sayEdited(a, edited, "the configuration is as "+c.File+" says already")
}

func editConfig(a *app, e protocol.ConfigEdit) (protocol.ConfigEdited, error) {
	edited, err := ask[protocol.ConfigEdited](a, protocol.SubjectConfigEdit, e)
	for i := range edited.Differences {
		config.RedactDifference(&edited.Differences[i])
	}
	return edited, err
}

func sayEdited(a *app, edited protocol.ConfigEdited, unchanged string) error {
	return a.show(edited, func() {
		for _, text := range edited.Warnings {
			a.hintf("%s", text)
		}
		sayDifferences(a, edited.Differences)
		if len(edited.Differences) == 0 {
			a.sayf("%s", unchanged)
			return
		}
		if a.rests {
			a.sayf("done, as revision %d; the mesh works so when it starts", edited.Revision)
			return
		}
		a.sayf("done, as revision %d; the whole mesh works so", edited.Revision)
	})
}

func sayDifferences(a *app, all []protocol.ConfigDifference) {
	for _, d := range all {
		a.sayf("%s: %s → %s", d.Key, orUnset(d.Before), orUnset(d.After))
	}
}

func orUnset(value json.RawMessage) string {
	if value == nil {
		return "(not set)"
	}
	return string(value)
}

// whoAmI is who uses the command, for the history.
func whoAmI() string {
	name := os.Getenv("USER")
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		host = "?"
	}
	who := cmp.Or(name, "?") + "@" + host
	return who[:min(len(who), protocol.MaxConfigBy)]
}

type configHistoryCmd struct {
	Limit int `default:"20" help:"At most so many, the newest. Default 20." placeholder:"N"`
}

func (c *configHistoryCmd) Run(a *app) error {
	h, err := ask[protocol.ConfigHistory](a, protocol.SubjectConfigHistory, protocol.ConfigHistoryRequest{Limit: c.Limit})
	if err != nil {
		return err
	}
	for i := range h.Revisions {
		for j := range h.Revisions[i].Differences {
			config.RedactDifference(&h.Revisions[i].Differences[j])
		}
	}
	return a.show(h, func() {
		if len(h.Revisions) == 0 {
			a.sayf("nothing was configured yet")
			return
		}
		g := newGrid("REVISION", "WHEN", "BY", "CHANGED")
		for i := range h.Revisions {
			r := &h.Revisions[i]
			g.row(strconv.FormatUint(r.Revision, 10), r.At.Local().Format(time.DateTime), cmp.Or(r.By, "an earlier version"), changed(r))
		}
		g.write(a.stdout)
	})
}

// changed is what a revision changed, in one line.
func changed(r *protocol.ConfigRevision) string {
	keys := make([]string, 0, len(r.Differences)+1)
	if r.Restores > 0 {
		keys = append(keys, fmt.Sprintf("back to %d:", r.Restores))
	}
	for i, d := range r.Differences {
		if i == 3 && len(r.Differences) > 4 {
			keys = append(keys, fmt.Sprintf("and %d more", len(r.Differences)-i))
			break
		}
		keys = append(keys, d.Key)
	}
	return strings.Join(keys, " ")
}

type configRollbackCmd struct {
	Revision uint64 `arg:"" help:"Revision, as config history lists them."`
	Purge    bool   `help:"Let queues that were not defined then lose the jobs they have."`
}

func (c *configRollbackCmd) Run(a *app) error {
	edited, err := editConfig(a, protocol.ConfigEdit{Restore: c.Revision, Purge: c.Purge, By: whoAmI()})
	if protocol.CodeOf(err) == protocol.CodeNotFound {
		return protocol.Errorf(protocol.CodeNotFound, "%s\n  next: %s lists those there are", protocol.AsError(err).Message, command(a.flags.NATS, "config history"))
	}
	if err != nil {
		return err
	}
	return sayEdited(a, edited, fmt.Sprintf("the configuration is as it was at revision %d already", c.Revision))
}

type configSchemaCmd struct{}

func (*configSchemaCmd) Run(a *app) error {
	e := json.NewEncoder(a.stdout)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(config.Schema(up.Keys(&up.Options{})))
}
