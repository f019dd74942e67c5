package registry_test

import (
	"encoding/json"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/internal/config"
	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/internal/mesh/meshtest"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/registry"
)

func settingsOf(t *testing.T, nc *nats.Conn) protocol.Settings {
	t.Helper()
	return request[protocol.Settings](t, nc, protocol.SubjectSettings, protocol.Empty{})
}

// What is set stays, in every registry and over a restart; what a registry is
// started with changes only that.
func TestSettings(t *testing.T) {
	server := meshtest.Server(t)
	a := mustStart(t, server, registry.Options{Instance: "a"})
	nc := meshtest.Connect(t, server)
	if got := settingsOf(t, nc); got != protocol.DefaultSettings() {
		t.Errorf("before anything is set: %+v", got)
	}
	told, err := nc.SubscribeSync(protocol.SubjectSettingsChanged)
	if err != nil {
		t.Fatal(err)
	}
	mustStart(t, server, registry.Options{Instance: "b"})
	changed := request[protocol.Settings](t, nc, protocol.SubjectSettingsChange, protocol.SettingsChange{SubscriberRetentionMs: new(int64(5000))})
	if changed.SubscriberRetentionMs != 5000 || changed.Revision == 0 || changed.Observers != protocol.DefaultSettings().Observers {
		t.Errorf("changed: %+v", changed)
	}
	msg, err := told.NextMsgWithContext(meshtest.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	var event protocol.Settings
	if err := json.Unmarshal(msg.Data, &event); err != nil || event != changed {
		t.Errorf("routers were told %+v, %v", event, err)
	}
	for range 20 { // either registry answers
		meshtest.Eventually(t, "every registry knows", func() bool { return settingsOf(t, nc) == changed })
	}
	mustStop(t, a)
	mustStart(t, server, registry.Options{Instance: "c", Config: registry.ConfigOptions{Change: config.SettingsDocument(protocol.SettingsChange{
		Observers: protocol.ObserverSettingsChange{ActivationTimeoutMs: new(int64(7000))},
	})}})
	meshtest.Eventually(t, "the start changes what it names", func() bool {
		got := settingsOf(t, nc)
		return got.SubscriberRetentionMs == 5000 && got.Observers.ActivationTimeoutMs == 7000
	})
	if page := request[protocol.WorkersPage](t, nc, protocol.SubjectWorkers, protocol.WorkersRequest{}); page.Settings == nil {
		t.Error("who reads the workers is not told of the settings")
	}
}

func TestSettingsThatCannotBe(t *testing.T) {
	server := meshtest.Server(t)
	mustStart(t, server, registry.Options{})
	nc := meshtest.Connect(t, server)
	before := settingsOf(t, nc)
	for _, change := range []protocol.SettingsChange{
		{SubscriberRetentionMs: new(int64(-1))},
		{Observers: protocol.ObserverSettingsChange{ActivationTimeoutMs: new(int64(0))}},
		{Observers: protocol.ObserverSettingsChange{ActivationTimeoutMs: new(int64(protocol.MaxObserverTimeoutMs + 1))}},
		{Observers: protocol.ObserverSettingsChange{ObserverGraceMs: new(int64(-1))}},
	} {
		_, err := mesh.Request[protocol.Settings](meshtest.Context(t), nc, protocol.SubjectSettingsChange, change)
		if protocol.CodeOf(err) != protocol.CodeInvalidArgs {
			t.Errorf("%+v: %v", change, err)
		}
		if _, err := registry.New(registry.Options{Config: registry.ConfigOptions{Change: config.SettingsDocument(change)}}); protocol.CodeOf(err) != protocol.CodeInvalidArgs {
			t.Errorf("%+v at the start: %v", change, err)
		}
	}
	if now := settingsOf(t, nc); now != before {
		t.Errorf("a change that was refused has changed %+v", now)
	}
}
