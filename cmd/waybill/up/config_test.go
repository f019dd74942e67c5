package up_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/waybill-mq/waybill/cmd/waybill/up"
	"github.com/waybill-mq/waybill/internal/config"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router"
)

func readConfig(t *testing.T, text string, o *up.Options) error {
	t.Helper()
	path := filepath.Join(t.TempDir(), "waybill.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := up.ReadConfig(path, o)
	return err
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
		Seed: config.Document{},
	}
	if o.Change = nil; err != nil || !reflect.DeepEqual(o, want) {
		t.Fatalf("read %+v, %v; want %+v", o, err, want)
	}
	err = readConfig(t, "# nothing\n", &o)
	if o.Change = nil; err != nil || !reflect.DeepEqual(o, want) {
		t.Fatalf("an empty file makes it %+v, %v", o, err)
	}
	if err := readConfig(t, "sync: always\n", &o); err != nil || o.Sync != 0 {
		t.Fatalf("sync is %v, %v", o.Sync, err)
	}
}

// The environment is over the file, and the flags over that.
func TestTheEnvironmentWinsOverTheFile(t *testing.T) {
	t.Setenv("WAYBILL_LISTEN", "127.0.0.1:2")
	t.Setenv("WAYBILL_LIMITS_QUEUE_BYTES", "9")
	t.Setenv("WAYBILL_OBSERVERS_OBSERVER_GRACE_MS", "1")
	t.Setenv("WAYBILL_SUBSCRIBER_RETENTION_MS", "2")
	o := up.Options{Change: config.Document{"subscriber_retention_ms": int64(3)}}
	if err := readConfig(t, "listen: 127.0.0.1:1\nsubscriber_retention_ms: 4\n", &o); err != nil {
		t.Fatal(err)
	}
	want := config.Document{"observers": map[string]any{"observer_grace_ms": int64(1)}, "subscriber_retention_ms": int64(3)}
	if o.Listen != "127.0.0.1:2" || o.Limits.QueueBytes != 9 || !reflect.DeepEqual(o.Change, want) {
		t.Errorf("read %+v", o)
	}
	if seed := (config.Document{"subscriber_retention_ms": int64(4)}); !reflect.DeepEqual(o.Seed, seed) {
		t.Errorf("the mesh begins with %v, want %v", o.Seed, seed)
	}
	t.Setenv("WAYBILL_LISTEN", "here")
	if err := readConfig(t, "", &o); protocol.CodeOf(err) != protocol.CodeInvalidArgs || !strings.Contains(err.Error(), "WAYBILL_LISTEN") {
		t.Errorf("a bad variable: %v", err)
	}
}

func TestAMistakeIsNamedWithFileLineAndKey(t *testing.T) {
	for text, want := range map[string]string{
		"data: x\nlisten: here\n":                 "line 2, key listen: ",
		"http: 127.0.0.1:99999\n":                 "line 1, key http: ",
		"data: x\n\nfrob: 1\n":                    "line 3, key frob: it is not known here",
		"limits:\n  queue_bytes: many\n":          "line 2, key limits.queue_bytes: ",
		"limits:\n  queue_bytes: -1\n":            "line 2, key limits.queue_bytes: it is -1: it is a whole number from 0",
		"limits: 3\n":                             "line 1, key limits: it takes keys and values",
		"limits:\n  queue_bytes: 1\n  more: 2":    "line 3, key limits.more: it is not known here",
		"sync: never\n":                           "line 1, key sync: ",
		"drain_timeout: -1s\n":                    "line 1, key drain_timeout: ",
		"max_payload: 0\n":                        "line 1, key max_payload: ",
		"data: ''\n":                              "line 1, key data: ",
		"data: [x]\n":                             "line 1, key data: ",
		"data:\n":                                 "line 1, key data: it has no value",
		"- x\n":                                   "line 1: ",
		"data: 'x\n":                              "line ",
		"data: x\nsubscriber_retention_ms: 30s\n": "line 2, key subscriber_retention_ms: ",
		"observers:\n  activation_timeout_ms: 3600000\n":  "line 2, key observers.activation_timeout_ms: ",
		"- data: x\n  queue_configs:\n    q: {type: f}\n": "line 3, key queue_configs.q.type: it is \"f\": it is standard or fifo",
	} {
		var o up.Options
		err := readConfig(t, text, &o)
		if protocol.CodeOf(err) != protocol.CodeInvalidArgs || !strings.Contains(err.Error(), "waybill.yaml") || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
