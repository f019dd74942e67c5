// Package config_test configures running meshes.
package config_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

func write(t *testing.T, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "waybill.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func connect(t *testing.T, m *harness.Mesh) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(m.URL, nats.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func ask[A any](t *testing.T, nc *nats.Conn, subject string, question any) (A, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Guard)
	defer cancel()
	return mesh.Request[A](ctx, nc, subject, question)
}

func configOf(t *testing.T, nc *nats.Conn) protocol.StoredConfig {
	t.Helper()
	stored, err := ask[protocol.StoredConfig](t, nc, protocol.SubjectConfig, protocol.ConfigRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return stored
}

func edit(t *testing.T, nc *nats.Conn, e protocol.ConfigEdit) (protocol.ConfigEdited, error) {
	t.Helper()
	return ask[protocol.ConfigEdited](t, nc, protocol.SubjectConfigEdit, e)
}

// durability is what a publish is answered with.
func durability(t *testing.T, nc *nats.Conn) string {
	t.Helper()
	ack, err := ask[protocol.PublishAck](t, nc, protocol.PublishQueueSubject("run", "step"), "x")
	if err != nil {
		t.Fatal(err)
	}
	return ack.Durability
}

// A file configures a mesh once: what is edited later stays, over kill -9 and a
// start with the same file.
func TestAFileCountsOnce(t *testing.T) {
	t.Parallel()
	file := write(t, "- subscriber_retention_ms: 20000\n  queue_configs:\n    mail: {concurrency: 3}\n")
	m := harness.Start(t, "--config", file)
	nc := connect(t, m)
	begun := configOf(t, nc)
	if begun.Config.SubscriberRetentionMs != 20000 || begun.Config.QueueConfigs["mail"].Concurrency != 3 {
		t.Fatalf("it begins with %+v", begun)
	}
	edited, err := edit(t, nc, protocol.ConfigEdit{Change: json.RawMessage(`{"subscriber_retention_ms":7,"queue_configs":{"mail":{"concurrency":4},"more":{}}}`), By: "test"})
	if err != nil {
		t.Fatal(err)
	}
	m.Kill()
	m.Restart()
	var now protocol.StoredConfig
	harness.Await(t, "the configuration can be read again", func() bool {
		now, err = ask[protocol.StoredConfig](t, nc, protocol.SubjectConfig, protocol.ConfigRequest{})
		return err == nil
	})
	if now.Revision != edited.Revision || now.Config.SubscriberRetentionMs != 7 || now.Config.QueueConfigs["mail"].Concurrency != 4 || len(now.Config.QueueConfigs) != 3 {
		t.Errorf("after a restart it is %+v", now)
	}
	if _, err := edit(t, nc, protocol.ConfigEdit{Restore: begun.Revision, By: "test"}); err != nil {
		t.Fatal(err)
	}
	if now := configOf(t, nc); now.Config.SubscriberRetentionMs != 20000 || len(now.Config.QueueConfigs) != 2 {
		t.Errorf("rolled back it is %+v", now)
	}
}

// Of several edits for one revision at once one wins; the others are told, and
// have changed nothing.
func TestConflictingEdits(t *testing.T) {
	t.Parallel()
	m := harness.Start(t)
	nc := connect(t, m)
	base := configOf(t, nc).Revision
	const editors = 4
	errs := make([]error, editors)
	var editing sync.WaitGroup
	for i := range editors {
		editing.Go(func() {
			change, _ := json.Marshal(map[string]any{"subscriber_retention_ms": i + 1})
			_, errs[i] = edit(t, nc, protocol.ConfigEdit{Change: change, Expect: &base})
		})
	}
	editing.Wait()
	won := -1
	for i, err := range errs {
		switch {
		case err == nil && won >= 0:
			t.Errorf("both %d and %d have won", won, i)
		case err == nil:
			won = i
		case protocol.CodeOf(err) != protocol.CodeConflict:
			t.Errorf("edit %d: %v", i, err)
		}
	}
	if now := configOf(t, nc); now.Config.SubscriberRetentionMs != int64(won+1) {
		t.Errorf("%d has won, and it is %+v", won, now.Config)
	}
}

// What is kept in memory is lost with the process, and publish answers say so; the
// configuration is not lost. What is on disk stays there.
func TestInMemory(t *testing.T) {
	t.Parallel()
	m := harness.Start(t, "--config", write(t, "adapter: {config: {store_method: in_memory}}\n"))
	nc := connect(t, m)
	if said := durability(t, nc); said != protocol.DurabilityMemory {
		t.Errorf("a publish is answered with %q", said)
	}
	m.Kill()
	m.Restart()
	if n := m.Queues("run"); len(n) != 0 {
		t.Errorf("after a restart there are %+v", n)
	}
	if said := durability(t, nc); said != protocol.DurabilityMemory {
		t.Errorf("after a restart a publish is answered with %q", said)
	}
	if _, err := edit(t, nc, protocol.ConfigEdit{Change: json.RawMessage(`{"adapter":{"config":{"store_method":"file_based"}}}`)}); err != nil {
		t.Fatal(err)
	}
	m.Terminate()
	m.Restart()
	if said := durability(t, nc); said != protocol.DurabilityFsync {
		t.Errorf("on disk a publish is answered with %q", said)
	}
	_, err := edit(t, nc, protocol.ConfigEdit{Change: json.RawMessage(`{"adapter":{"config":{"store_method":"in_memory"}}}`)})
	if protocol.CodeOf(err) != protocol.CodeConflict {
		t.Errorf("what is on disk may be left behind: %v", err)
	}
	m.Kill()
	m.Restart()
	if q := m.Queue("run", "step"); q.Ready != 1 {
		t.Errorf("on disk there is %+v after a restart", q)
	}
}
