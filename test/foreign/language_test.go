package foreign_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/waybill-mq/waybill/test/harness"
)

// language is a way to run the driver of testdata, a worker that knows nothing
// but docs/protocol.md, and the example.
type language struct {
	name string
	// command runs testdata/driver, or example, of the language.
	command func(t *testing.T, program string, args ...string) *exec.Cmd
}

var languages = []language{{"python", python}, {"typescript", typescript}}

func python(t *testing.T, program string, args ...string) *exec.Cmd {
	t.Helper()
	modules, err := filepath.Abs("../../examples/python")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(modules, program+".py")
	if program == "driver" {
		path = filepath.Join("testdata", "driver.py")
	}
	cmd := exec.Command(harness.Python(t, "nats-py==2.16.0"), append([]string{path}, args...)...)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+modules, "PYTHONDONTWRITEBYTECODE=1")
	return cmd
}

func typescript(t *testing.T, program string, args ...string) *exec.Cmd {
	t.Helper()
	return exec.Command("node", append([]string{filepath.Join(compiled(t), program+".js")}, args...)...)
}

// compiled is the directory of the examples and the driver in JavaScript, kept
// beside the packages until their sources change.
func compiled(t *testing.T) string {
	t.Helper()
	const examples = "../../examples/typescript/"
	modules := harness.NodeModules(t, packagesOf(t, examples+"package.json")...)
	sources := map[string][]byte{}
	sum := sha256.New()
	for _, path := range []string{examples + "waybill_worker.ts", examples + "example.ts", examples + "package.json", examples + "tsconfig.json", "testdata/driver.ts"} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		sources[filepath.Base(path)] = text
		sum.Write(text)
	}
	dir := filepath.Join(modules, "build-"+hex.EncodeToString(sum.Sum(nil)[:6]))
	compiling.Lock()
	defer compiling.Unlock()
	if _, err := os.Stat(dir); err != nil {
		compile(t, modules, dir, sources)
	}
	return filepath.Join(dir, "build")
}

var compiling sync.Mutex

// compile compiles sources into dir, which is there when all of it is.
func compile(t *testing.T, modules, dir string, sources map[string][]byte) {
	t.Helper()
	work, err := os.MkdirTemp(modules, "compile-") //nolint:usetesting // it is kept, under its last name
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range sources {
		if err := os.WriteFile(filepath.Join(work, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tsc := exec.CommandContext(t.Context(), "node", filepath.Join(modules, "node_modules", "typescript", "bin", "tsc"), "-p", work)
	if out, err := tsc.CombinedOutput(); err != nil {
		t.Fatalf("tsc: %v\n%s", err, out)
	}
	if err := os.Rename(work, dir); err != nil && !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
}

// packagesOf are the packages that the example's package.json asks for.
func packagesOf(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var asked struct {
		Dependencies    map[string]string `json:"dependencies"`
		DevDependencies map[string]string `json:"devDependencies"`
	}
	if err := json.Unmarshal(text, &asked); err != nil {
		t.Fatal(err)
	}
	var packages []string
	for _, some := range []map[string]string{asked.Dependencies, asked.DevDependencies} {
		for name, version := range some {
			packages = append(packages, name+"@"+version)
		}
	}
	slices.Sort(packages)
	return packages
}

// event is a line that the driver prints.
type event struct {
	Event     string `json:"event"`
	Name      string `json:"name"`
	ID        string `json:"id"`
	Attempt   int    `json:"attempt"`
	Header    string `json:"header"`
	MessageID string `json:"message_id"`
	Duplicate bool   `json:"duplicate"`
	Code      string `json:"code"`
	Receipt   string `json:"receipt"`
}

// driver is a running driver.
type driver struct {
	*harness.Process

	t *testing.T
}

// options of a driver, as it reads them.
type options struct {
	NATS      string  `json:"nats"`
	Execution string  `json:"execution"`
	Topic     string  `json:"topic"`
	Observer  string  `json:"observer"`
	Window    float64 `json:"window"` // seconds a handler may go on at the end
}

// start starts a driver and returns when the mesh knows it. A driver that comes
// back under an observer's id may have to wait until it is free.
func (l *language) start(t *testing.T, o options) *driver {
	t.Helper()
	arg, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	cmd := l.command(t, "driver", string(arg))
	for {
		again := *cmd
		d := &driver{harness.Program(t, l.name, &again), t}
		if e := d.await("it is ready, or refused", func(e event) bool { return e.Event == "ready" || e.Event == "refused" }); e.Event == "ready" {
			return d
		}
	}
}

// events are those so far.
func (d *driver) events() (all []event) {
	for line := range strings.Lines(d.Output()) {
		var e event
		if json.Unmarshal([]byte(line), &e) == nil && e.Event != "" {
			all = append(all, e)
		}
	}
	return all
}

// await is the first event that is wanted, when it is there.
func (d *driver) await(what string, wanted func(event) bool) (found event) {
	d.t.Helper()
	harness.Await(d.t, what, func() bool {
		ended := d.Ended()
		all := d.events()
		i := slices.IndexFunc(all, wanted)
		if i >= 0 {
			found = all[i]
		} else if ended {
			d.t.Fatalf("the driver has ended before %s:\n%s", what, d.Output())
		}
		return i >= 0
	})
	return found
}

// ended waits for the end of an attempt at the message of that name.
func (d *driver) ended(name string, attempt int) event {
	d.t.Helper()
	return d.await("the end of "+name, func(e event) bool { return e.Event == "end" && e.Name == name && e.Attempt == attempt })
}

// started waits for the start of an attempt.
func (d *driver) started(name string, attempt int) event {
	d.t.Helper()
	return d.await("the start of "+name, func(e event) bool { return e.Event == "start" && e.Name == name && e.Attempt == attempt })
}

// starts is how often a message's handler was begun.
func (d *driver) starts(name string) (n int) {
	for _, e := range d.events() {
		if e.Event == "start" && e.Name == name {
			n++
		}
	}
	return n
}
