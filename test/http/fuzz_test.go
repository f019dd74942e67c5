package http_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/test/harness"
)

// fuzzed is a run of schemathesis against a gateway, from the document it
// serves. names are the parameters that are not to be made up.
func fuzzed(t *testing.T, m *harness.Mesh, names map[string]string, args ...string) {
	t.Helper()
	python := harness.Python(t, "schemathesis==4.32.5")
	testdata, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile(filepath.Join(testdata, "schemathesis.toml"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var text bytes.Buffer
	fmt.Fprintf(&text, "hooks = %q\n[parameters]\n", filepath.Join(testdata, "hooks.py"))
	for name, value := range names {
		fmt.Fprintf(&text, "%q = %q\n", "path."+name, value)
	}
	text.Write(config)
	if err := os.WriteFile(filepath.Join(dir, "schemathesis.toml"), text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	status := map[protocol.Code]int{}
	for _, code := range protocol.Codes() {
		status[code] = code.Status()
	}
	codes, err := json.Marshal(status)
	if err != nil {
		t.Fatal(err)
	}
	// One worker: Python 3.11 does not always survive two threads that parse Python
	// (SystemError: AST constructor recursion depth mismatch), which the tool's do.
	cmd := exec.CommandContext(t.Context(), python, append([]string{"-m", "schemathesis.cli", "run", m.HTTP + "/openapi.json",
		"--no-color", "--workers", "1", "--request-timeout", "60", "--continue-on-failure", "--warnings", "off"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "WAYBILL_CODES="+string(codes))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if !strings.Contains(string(out), "No issues found") {
		t.Errorf("schemathesis has not said that all is well:\n%s", out)
	}
}

// budget are the arguments of a run: so many examples of each operation, or in
// a soak its time.
func budget(t *testing.T, examples int) []string {
	t.Helper()
	if soak := harness.Soak(t); soak > 0 {
		return []string{"--max-time", strconv.Itoa(int(max(soak, time.Second).Seconds()))}
	}
	return []string{"-n", strconv.Itoa(examples)}
}

func TestWhateverIsAskedIsAnsweredOrExplained(t *testing.T) {
	t.Parallel()
	m := harness.Start(t)
	fuzzed(t, m, nil, append(budget(t, 5), "--phases", "coverage,fuzzing")...)
	if a := call(t, m.HTTP, "GET", "/readyz", ""); a.status != http.StatusOK {
		t.Errorf("afterwards: %d %s", a.status, a.body)
	}
}

// With names that are there, requests get further.
func TestWhateverIsAskedOfWhatIsThereIsAnsweredOrExplained(t *testing.T) {
	t.Parallel()
	m := harness.Start(t)
	ids, _ := failing(t, m, "e", "r", 3)
	addWebhook(t, m, document{"name": "w", "url": "http://127.0.0.1:1/", "topic": "t", "max_retries": 1})
	fuzzed(t, m, map[string]string{"execution": "e", "route": "r", "topic": "t", "id": ids[0], "name": "w"},
		append(budget(t, 10), "--phases", "fuzzing", "--exclude-operation-id-regex", "^(close|purge)-execution$")...)
	if a := call(t, m.HTTP, "GET", "/readyz", ""); a.status != http.StatusOK {
		t.Errorf("afterwards: %d %s", a.status, a.body)
	}
}
