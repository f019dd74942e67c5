package protocol_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

func TestParseQueueDefinition(t *testing.T) {
	standard := protocol.DefaultQueueDefinition()
	with := func(change func(d *protocol.QueueDefinition)) protocol.QueueDefinition {
		d := standard
		change(&d)
		return d
	}
	for text, want := range map[string]protocol.QueueDefinition{
		"": standard, "{}": standard, "null": standard, `{"concurrency": null}`: standard,
		`{"type": "standard", "concurrency": 10, "max_retries": 3, "backoff_ms": 1000, "timeout_ms": 1800000}`: standard,
		`{"type": "fifo", "message_group_field": "session_id"}`: with(func(d *protocol.QueueDefinition) {
			d.Type, d.MessageGroupField = protocol.TypeFIFO, "session_id"
		}),
		`{"max_priority": 5, "priority_field": "urgency", "poll_interval_ms": 100, "redeliver_on_engine_restart": true}`: with(func(d *protocol.QueueDefinition) {
			d.MaxPriority, d.PriorityField, d.PollIntervalMs, d.RedeliverOnEngineRestart = 5, "urgency", 100, true
		}),
	} {
		if got, err := protocol.ParseQueueDefinition([]byte(text)); err != nil || got != want {
			t.Errorf("%s is %+v, %v; want %+v", text, got, err, want)
		}
	}
}

// A refusal names the field, and what it may be.
func TestParseQueueDefinitionRefuses(t *testing.T) {
	for text, words := range map[string][]string{
		`[]`: {"JSON object"}, `{`: {"JSON object"},
		`{"concurency": 1}`:                    {"concurency", "concurrency", "message_group_field"},
		`{"Concurrency": 1}`:                   {"Concurrency"},
		`{"concurrency": 0}`:                   {"concurrency", "from 1 to 65536"},
		`{"concurrency": "5"}`:                 {"concurrency", "whole number"},
		`{"concurrency": 1.5}`:                 {"concurrency", "whole number"},
		`{"max_retries": 0}`:                   {"max_retries", "from 1 to"},
		`{"backoff_ms": -1}`:                   {"backoff_ms", "from 1 to"},
		`{"timeout_ms": 0}`:                    {"timeout_ms", "from 1 to"},
		`{"max_priority": 256}`:                {"max_priority", "255"},
		`{"type": "concurrent"}`:               {"type", "standard or fifo"},
		`{"type": "fifo"}`:                     {"message_group_field", "missing"},
		`{"message_group_field": ""}`:          {"message_group_field", "1 to 256"},
		`{"message_group_field": " a"}`:        {"message_group_field"},
		`{"priority_field": 7}`:                {"priority_field"},
		`{"poll_interval_ms": -1}`:             {"poll_interval_ms"},
		`{"redeliver_on_engine_restart": "y"}`: {"redeliver_on_engine_restart", "true or false"},
		`{"on_dead_letter": "block"}`:          {"on_dead_letter", "fifo"},
		`{"on_dead_letter": "stop"}`:           {"on_dead_letter", "continue, block or divert"},
	} {
		_, err := protocol.ParseQueueDefinition([]byte(text))
		if protocol.CodeOf(err) != protocol.CodeInvalidArgs {
			t.Errorf("%s: got %v, want INVALID_ARGS", text, err)
			continue
		}
		for _, word := range words {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %q does not say %q", text, err, word)
			}
		}
	}
}

// Each field of a definition can be written by a person.
func TestEveryFieldOfADefinitionIsRead(t *testing.T) {
	for _, field := range reflect.VisibleFields(reflect.TypeFor[protocol.QueueDefinition]()) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if _, err := protocol.ParseQueueDefinition([]byte(`{"` + name + `": null}`)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDefinitionWarnings(t *testing.T) {
	for text, want := range map[string]string{
		`{}`: "", `{"type": "fifo", "message_group_field": "g"}`: "", `{"max_priority": 3, "priority_field": "p"}`: "",
		`{"poll_interval_ms": 1}`: "poll_interval_ms", `{"redeliver_on_engine_restart": true}`: "redeliver_on_engine_restart",
		`{"message_group_field": "g"}`: "message_group_field", `{"priority_field": "p"}`: "priority_field",
		`{"type": "fifo", "message_group_field": "g", "max_priority": 1}`: "max_priority",
	} {
		d, err := protocol.ParseQueueDefinition([]byte(text))
		warnings := strings.Join(d.Warnings(), "\n")
		if err != nil || (want == "") != (warnings == "") || !strings.Contains(warnings, want) {
			t.Errorf("%s: %q, %v; want a warning about %q", text, warnings, err, want)
		}
	}
}
