// Package alerts_test tests the alert rules under deploy/alerts.
package alerts_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

const rules = "../../deploy/alerts"

// Every alert fires when it should and is quiet otherwise, by Prometheus' own
// tool.
func TestRules(t *testing.T) {
	for _, args := range [][]string{{"check", "rules", "waybill.rules.yaml"}, {"test", "rules", "waybill.rules.test.yaml"}} {
		cmd := exec.Command(harness.Promtool(t), args...)
		cmd.Dir = rules
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}

var (
	metric = regexp.MustCompile(`waybill_[a-z_]+`)
	alert  = regexp.MustCompile(`(?m)alert: (\w+)$`)
	link   = regexp.MustCompile(`(?m)runbook: (docs/guides/operating\.md)#(\w+)$`)
)

// A metric that a rule asks for is one that a mesh which has had something to
// do tells; and an alert's runbook is there.
func TestRulesAskForWhatThereIs(t *testing.T) {
	file, err := os.ReadFile(filepath.Join(rules, "waybill.rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	m := harness.Start(t)
	c := m.Connect()
	fails := func(context.Context, *client.Delivery) error { return io.ErrUnexpectedEOF }
	if _, err := c.Work(t.Context(), "e", "r", fails, client.MaxRetries(1)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Publish(t.Context(), client.Queue("e", "r"), []byte("x")); err != nil {
		t.Fatal(err)
	}
	harness.Await(t, "it is dead", func() bool { return m.Queue("e", "r").Dead == 1 })
	get(t, m.HTTP+"/api/v1/system/reconcile")
	told := get(t, m.HTTP+"/metrics")
	expressions := regexp.MustCompile(`(?m)expr: .*$`).FindAllString(string(file), -1)
	if len(expressions) < 10 {
		t.Fatalf("%d rules", len(expressions))
	}
	for _, name := range metric.FindAllString(strings.Join(expressions, "\n"), -1) {
		if strings.HasPrefix(name, harness.BrokerMetrics) {
			continue // this mesh has none: harness.Left looks at them
		}
		if !strings.Contains(told, "\n"+name+"{") && !strings.Contains(told, "\n"+name+" ") {
			t.Errorf("/metrics has no %s", name)
		}
	}
	alerts, links := alert.FindAllSubmatch(file, -1), link.FindAllSubmatch(file, -1)
	if len(alerts) != len(expressions) || len(links) != len(alerts) {
		t.Errorf("%d alerts have %d runbooks", len(alerts), len(links))
	}
	guide, err := os.ReadFile("../../docs/guides/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range alerts {
		if !bytes.EqualFold(links[i][2], a[1]) || !strings.Contains(string(guide), "### "+string(a[1])+"\n") {
			t.Errorf("%s has no part of the guide", a[1])
		}
	}
}

// Every counter that a ledger has is explained in the guide.
func TestTheGuideHasEveryCounter(t *testing.T) {
	guide, err := os.ReadFile("../../docs/guides/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	for c := range ledger.NumCounters {
		if !strings.Contains(string(guide), "`"+c.String()+"`") {
			t.Errorf("the guide does not explain %s", c)
		}
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d %v: %s", url, answer.StatusCode, err, body)
	}
	return string(body)
}
