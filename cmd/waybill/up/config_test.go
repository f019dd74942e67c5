package up_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waybill-mq/waybill/cmd/waybill/up"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router"
)

func readConfig(t *testing.T, text string, o *up.Options) error {
	t.Helper()
	path := filepath.Join(t.TempDir(), "waybill.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return up.ReadConfig(path, o)
}

func TestEverySettingIsRead(t *testing.T) {
	o := up.Options{Data: "kept"}
	err := readConfig(t, `
listen: 127.0.0.1:1
http: localhost:0
sync: 2m
drain_timeout: 3s
max_payload: 4
limits:
  queue_messages: 5
  queue_bytes: 6
  total_messages: 7
  total_bytes: 8
`, &o)
	want := up.Options{
		Data: "kept", Listen: "127.0.0.1:1", HTTP: "localhost:0", Sync: up.Sync(2 * time.Minute), Drain: 3 * time.Second,
		MaxPayload: 4, Limits: router.Limits{QueueMessages: 5, QueueBytes: 6, TotalMessages: 7, TotalBytes: 8},
	}
	if err != nil || o != want {
		t.Fatalf("read %+v, %v; want %+v", o, err, want)
	}
	if err := readConfig(t, "# nothing\n", &o); err != nil || o != want {
		t.Fatalf("an empty file makes it %+v, %v", o, err)
	}
	if err := readConfig(t, "sync: always\n", &o); err != nil || o.Sync != 0 {
		t.Fatalf("sync is %v, %v", o.Sync, err)
	}
}

// Settings of the mesh are changed where the file names them.
func TestTheMeshsSettingsAreRead(t *testing.T) {
	var o up.Options
	err := readConfig(t, `
observers:
  activation_timeout_ms: 600000
subscriber_retention_ms: 0
`, &o)
	if err != nil || *o.Settings.Observers.ActivationTimeoutMs != 600000 || *o.Settings.SubscriberRetentionMs != 0 || o.Settings.Observers.ObserverGraceMs != nil {
		t.Fatalf("read %+v, %v", o.Settings, err)
	}
	for _, text := range []string{"observers:\n  activation_timeout_ms: 3600000\n", "observers:\n  observer_grace_ms: -1\n", "subscriber_retention_ms: 30s\n", "observers:\n  grace: 1\n"} {
		if err := readConfig(t, text, &o); protocol.CodeOf(err) != protocol.CodeInvalidArgs {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestAMistakeIsNamedWithFileLineAndKey(t *testing.T) {
	for text, want := range map[string]string{
		"data: x\nlisten: here\n":              "line 2, key listen: ",
		"http: 127.0.0.1:99999\n":              "line 1, key http: ",
		"data: x\n\nfrob: 1\n":                 "line 3, key frob: it is not known here",
		"limits:\n  queue_bytes: many\n":       "line 2, key limits.queue_bytes: ",
		"limits:\n  queue_bytes: -1\n":         "line 2, key limits.queue_bytes: -1 is negative",
		"limits: 3\n":                          "line 1, key limits: it takes keys and values",
		"limits:\n  queue_bytes: 1\n  more: 2": "line 3, key limits.more: it is not known here",
		"sync: never\n":                        "line 1, key sync: ",
		"drain_timeout: -1s\n":                 "line 1, key drain_timeout: ",
		"max_payload: 0\n":                     "line 1, key max_payload: ",
		"data: ''\n":                           "line 1, key data: ",
		"data: [x]\n":                          "line 1, key data: ",
		"- x\n":                                "line 1: ",
		"data: 'x\n":                           "line ",
	} {
		var o up.Options
		err := readConfig(t, text, &o)
		if protocol.CodeOf(err) != protocol.CodeInvalidArgs || !strings.Contains(err.Error(), "waybill.yaml") || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
