package registry_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/waybill-mq/waybill/internal/config"
	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/internal/mesh/meshtest"
	"github.com/waybill-mq/waybill/internal/natsserver"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/registry"
)

// configure and define note what the lanes are told.
func (l *lane) configure(m *nats.Msg) {
	var now protocol.Settings
	if json.Unmarshal(m.Data, &now) == nil {
		l.answer(m, func() { l.configured = max(l.configured, now.Revision) })
	}
}

func (l *lane) define(m *nats.Msg) {
	var told protocol.LaneDefinition
	if json.Unmarshal(m.Data, &told) == nil {
		l.answer(m, func() {
			if !told.Check {
				l.defined = append(l.defined, told)
			}
		})
	}
}

// answer notes and answers, unless the lanes are away.
func (l *lane) answer(m *nats.Msg, note func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.away {
		m.Respond(protocol.MarshalErrorBody(protocol.Errorf(protocol.CodeInternal, "broken")))
		return
	}
	note()
	m.Respond([]byte("{}"))
}

func configOf(t *testing.T, nc *nats.Conn) protocol.StoredConfig {
	t.Helper()
	return request[protocol.StoredConfig](t, nc, protocol.SubjectConfig, protocol.Empty{})
}

func edit(t *testing.T, nc *nats.Conn, e protocol.ConfigEdit) (protocol.ConfigEdited, error) {
	t.Helper()
	return mesh.Request[protocol.ConfigEdited](meshtest.Context(t), nc, protocol.SubjectConfigEdit, e)
}

func mustEdit(t *testing.T, nc *nats.Conn, change string) protocol.ConfigEdited {
	t.Helper()
	edited, err := edit(t, nc, protocol.ConfigEdit{Change: json.RawMessage(change), By: "ops"})
	if err != nil {
		t.Fatalf("%s: %v", change, err)
	}
	return edited
}

func seeded(t *testing.T, text string) registry.Options {
	t.Helper()
	document, err := config.ParseDocument([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return registry.Options{Config: registry.ConfigOptions{Seed: document, By: "waybill up"}}
}

// What a registry is started with holds where nobody has configured anything; what
// is edited later stays, over a restart with the same file, until it is rolled
// back.
func TestConfigurationIsSeededOnceAndEdited(t *testing.T) {
	server := meshtest.Server(t)
	file := `{"subscriber_retention_ms":1000,"queue_configs":{"mail":{"max_retries":7}},"adapter":{"name":"builtin","config":{"save_interval_ms":100}}}`
	r := mustStart(t, server, seeded(t, file))
	l := mustLanes(t, server)
	nc := meshtest.Connect(t, server)
	begun := configOf(t, nc)
	if begun.By != "waybill up" || begun.Config.SubscriberRetentionMs != 1000 || begun.Config.QueueConfigs["mail"].MaxRetries != 7 ||
		begun.Config.QueueConfigs["mail"].Concurrency != protocol.DefaultConcurrency || begun.Config.QueueConfigs["default"].TimeoutMs != protocol.DefaultTimeoutMs {
		t.Fatalf("it begins with %+v", begun)
	}
	edited := mustEdit(t, nc, `{"subscriber_retention_ms":2000,"queue_configs":{"mail":{"concurrency":2}}}`)
	if edited.Revision <= begun.Revision || len(edited.Differences) != 2 || edited.By != "ops" || len(edited.Warnings) != 1 {
		t.Errorf("the edit is answered with %+v", edited)
	}
	if told := l.lastDefined(); l.lastConfigured() != edited.Revision || told.Queue != "mail" || told.Config.Concurrency != 2 || told.Config.MaxRetries != 7 || told.Revision != edited.Revision {
		t.Errorf("answered before the lanes were told: %+v", told)
	}
	mustStop(t, r)
	mustStart(t, server, seeded(t, file))
	if now := configOf(t, nc); now.Revision != edited.Revision || now.Config.SubscriberRetentionMs != 2000 {
		t.Errorf("after a restart with the file: %+v", now)
	}
	if got := settingsOf(t, nc); got.SubscriberRetentionMs != 2000 || got.Revision != edited.Revision {
		t.Errorf("the settings of it are %+v", got)
	}
	restored, err := edit(t, nc, protocol.ConfigEdit{Restore: begun.Revision, Expect: &edited.Revision, By: "ops"})
	if err != nil || restored.Restores != begun.Revision {
		t.Fatalf("rolled back: %+v, %v", restored, err)
	}
	if now := configOf(t, nc); !cmp.Equal(now.Config, begun.Config) {
		t.Errorf("rolled back it is %s", cmp.Diff(begun.Config, now.Config))
	}
	history := request[protocol.ConfigHistory](t, nc, protocol.SubjectConfigHistory, protocol.Empty{})
	if len(history.Revisions) != 3 || history.Revisions[0].Revision != restored.Revision || len(history.Revisions[2].Differences) != 4 {
		t.Errorf("the history is %+v", history)
	}
	if then := request[protocol.StoredConfig](t, nc, protocol.SubjectConfig, protocol.ConfigRequest{Revision: edited.Revision}); then.Config.SubscriberRetentionMs != 2000 {
		t.Errorf("at revision %d it was %+v", edited.Revision, then)
	}
}

// The settings that a version before stored are part of the configuration, and a
// file still counts.
func TestSettingsOfEarlierAreConfigured(t *testing.T) {
	server := meshtest.Server(t)
	r := mustStart(t, server, registry.Options{})
	nc := meshtest.Connect(t, server)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	kv, err := js.KeyValue(meshtest.Context(t), registry.Bucket)
	if err != nil {
		t.Fatal(err)
	}
	mustStop(t, r)
	earlier := `{"min_writer":1,"observers":{"activation_timeout_ms":9000,"observer_grace_ms":30000},"subscriber_retention_ms":5000,"of_a_later_one":{"x":1}}`
	if _, err := kv.Put(meshtest.Context(t), "settings", []byte(earlier)); err != nil {
		t.Fatal(err)
	}
	flags := registry.Options{Config: registry.ConfigOptions{Seed: config.Document{}, Change: config.Document{"run_jobs_in": "enqueuer"}}}
	mustStop(t, mustStart(t, server, flags))
	mustStart(t, server, seeded(t, `{"subscriber_retention_ms":1000}`))
	if got := settingsOf(t, nc); got.SubscriberRetentionMs != 1000 || got.Observers.ActivationTimeoutMs != 9000 {
		t.Errorf("they are %+v", got)
	}
	mustEdit(t, nc, `{"observers":{"activation_timeout_ms":8000}}`)
	entry, err := kv.Get(meshtest.Context(t), "settings")
	if err != nil || !strings.Contains(string(entry.Value()), `"of_a_later_one":{"x":1}`) {
		t.Errorf("what another version has set is lost: %s, %v", entry.Value(), err)
	}
}

func TestEditsThatCannotBeChangeNothing(t *testing.T) {
	server := meshtest.Server(t)
	mustStart(t, server, registry.Options{})
	l := mustLanes(t, server)
	nc := meshtest.Connect(t, server)
	before := mustEdit(t, nc, `{"queue_configs":{"prio":{"max_priority":5}}}`)
	for change, want := range map[string]struct {
		code protocol.Code
		says string
	}{
		`{"frob":1}`:                                                            {protocol.CodeInvalidArgs, "key frob"},
		`{"adapter":{"name":"memory"}}`:                                         {protocol.CodeInvalidArgs, "artemis, builtin, pulsar, rabbitmq, redis, file_based or in_memory"},
		`{"adapter":{"config":{"amqp_url":"x"}}}`:                               {protocol.CodeInvalidArgs, "key adapter.config.amqp_url"},
		`{"adapter":{"config":{"store_method":"in_memory"}}}`:                   {protocol.CodeConflict, "on disk"},
		`{"run_jobs_in":"worker"}`:                                              {protocol.CodeInvalidArgs, "rabbitmq"},
		`{"queue_configs":{"q":{"type":"fifo"}}}`:                               {protocol.CodeInvalidArgs, "message_group_field"},
		`{"queue_configs":{" q":{}}}`:                                           {protocol.CodeInvalidArgs, "key queue_configs. q"},
		`{"queue_configs":{"prio":{"max_priority":9}}}`:                         {protocol.CodeConflict, "prio"},
		`{"subscriber_retention_ms":1,"queue_configs":{"q":{"concurrency":0}}}`: {protocol.CodeInvalidArgs, "key queue_configs.q.concurrency"},
		`[]`: {protocol.CodeInvalidArgs, "JSON object"},
	} {
		if _, err := edit(t, nc, protocol.ConfigEdit{Change: json.RawMessage(change)}); protocol.CodeOf(err) != want.code || !strings.Contains(err.Error(), want.says) {
			t.Errorf("%s: %v", change, err)
		}
	}
	stale := before.Revision - 1
	if _, err := edit(t, nc, protocol.ConfigEdit{Change: json.RawMessage(`{"subscriber_retention_ms":1}`), Expect: &stale}); protocol.CodeOf(err) != protocol.CodeConflict || !strings.Contains(err.Error(), "ops") {
		t.Errorf("an edit of another revision: %v", err)
	}
	if _, err := edit(t, nc, protocol.ConfigEdit{Restore: 999}); protocol.CodeOf(err) != protocol.CodeNotFound {
		t.Errorf("a revision that never was: %v", err)
	}
	if checked, err := edit(t, nc, protocol.ConfigEdit{Change: json.RawMessage(`{"subscriber_retention_ms":1}`), Check: true}); err != nil || len(checked.Differences) != 1 {
		t.Errorf("only checked: %+v, %v", checked, err)
	}
	if now := configOf(t, nc); now.Revision != before.Revision {
		t.Errorf("the configuration is %+v", now)
	}
	l.goes(true)
	if _, err := edit(t, nc, protocol.ConfigEdit{Change: json.RawMessage(`{"subscriber_retention_ms":77}`)}); protocol.CodeOf(err) != protocol.CodeUnavailable || !strings.Contains(err.Error(), "router-0") {
		t.Errorf("no lane confirms: %v", err)
	}
	if now := configOf(t, nc); now.Config.SubscriberRetentionMs != 77 {
		t.Errorf("what the lanes have not confirmed is %+v", now)
	}
}

// Pages of queues are of one reading of the configuration, so that many take a
// router no longer than few; the first one is what is stored.
func TestPagesOfQueuesAreReadOnce(t *testing.T) {
	server := meshtest.Server(t)
	mustLanes(t, server)
	mustStart(t, server, registry.Options{})
	nc := meshtest.Connect(t, server)
	edited := mustEdit(t, nc, `{"queue_configs":{"a":{},"b":{},"c":{}}}`)
	reads, err := nc.SubscribeSync("$JS.API.DIRECT.GET.>")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for after, more := "", true; more; {
		page := request[protocol.DefinitionsPage](t, nc, protocol.SubjectDefinitions, protocol.DefinitionsRequest{After: after, Limit: 1})
		if len(page.Queues) != 1 || page.Revision != edited.Revision {
			t.Fatalf("the page after %q is %+v", after, page)
		}
		after, more = page.Queues[0].Queue, page.More
		names = append(names, after)
	}
	if strings.Join(names, " ") != "a b c default" {
		t.Errorf("the queues are %v", names)
	}
	// What the registry asked for came before its answers.
	if n, _, err := reads.Pending(); err != nil || n != 1 {
		t.Errorf("the configuration was read %d times, %v", n, err)
	}
}

// Of edits of one key for one revision, one wins and the others are told; edits
// of different keys do not meet.
func TestEditsAtTheSameTime(t *testing.T) {
	server := meshtest.Server(t)
	mustStart(t, server, registry.Options{Instance: "a"})
	mustStart(t, server, registry.Options{Instance: "b"})
	mustLanes(t, server)
	nc := meshtest.Connect(t, server)
	base := mustEdit(t, nc, `{"subscriber_retention_ms":1}`).Revision
	const editors = 8
	type outcome struct {
		own, shared error
	}
	outcomes := make(chan outcome, editors)
	for i := range editors {
		go func() {
			change := func(key string, expect *uint64) error {
				body, _ := json.Marshal(map[string]any{"queue_configs": map[string]any{key: map[string]any{"max_retries": i + 1}}})
				_, err := mesh.Request[protocol.ConfigEdited](t.Context(), nc, protocol.SubjectConfigEdit, protocol.ConfigEdit{Change: body, Expect: expect})
				return err
			}
			shared := change("shared", &base)
			outcomes <- outcome{shared: shared, own: change("own-"+string(rune('a'+i)), nil)}
		}()
	}
	won := 0
	for range editors {
		o := <-outcomes
		if o.own != nil {
			t.Errorf("an edit of a key of its own: %v", o.own)
		}
		switch {
		case o.shared == nil:
			won++
		case protocol.CodeOf(o.shared) != protocol.CodeConflict:
			t.Errorf("an edit of the same key: %v", o.shared)
		}
	}
	if now := configOf(t, nc); won != 1 || len(now.Config.QueueConfigs) != editors+2 {
		t.Errorf("%d have won, and there are %d queues", won, len(now.Config.QueueConfigs))
	}
}

// A lane whose owner is of a version that cannot be asked holds nothing up.
func TestEditsBesideEarlierRouters(t *testing.T) {
	server := meshtest.Server(t)
	mustStart(t, server, registry.Options{})
	mustOwners(t, server)
	nc := meshtest.Connect(t, server)
	if edited := mustEdit(t, nc, `{"subscriber_retention_ms":1}`); edited.Revision == 0 {
		t.Errorf("answered with %+v", edited)
	}
}

// mustOwners serves the lanes as routers did before they could be configured.
func mustOwners(t *testing.T, s *natsserver.Server) {
	t.Helper()
	l := mustLanes(t, s)
	nc := meshtest.Connect(t, s)
	l.nc.Close()
	if _, err := nc.Subscribe(protocol.SubjectLane+"*.owner", func(m *nats.Msg) { m.Respond(nil) }); err != nil {
		t.Fatal(err)
	}
	if err := nc.FlushWithContext(meshtest.Context(t)); err != nil {
		t.Fatal(err)
	}
}

func (l *lane) lastConfigured() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.configured
}

func (l *lane) lastDefined() protocol.LaneDefinition {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.defined) == 0 {
		return protocol.LaneDefinition{}
	}
	return l.defined[len(l.defined)-1]
}
