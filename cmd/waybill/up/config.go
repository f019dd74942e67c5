package up

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// ReadConfig reads a configuration file over o:
//
//	data: waybill-data          # directory that holds everything
//	listen: 127.0.0.1:4222      # NATS
//	http: 127.0.0.1:8000        # health, readiness, metrics
//	webhook_secrets: secrets    # directory with the files that webhooks name
//	sync: always                # or the time between two fsyncs, such as 2m
//	drain_timeout: 10s          # how long a shutdown may take
//	max_payload: 1048576        # bytes of a message
//	limits:                     # 0, the default, is none
//	  queue_messages: 0         # in one queue
//	  queue_bytes: 0
//	  total_messages: 0         # in the mesh: ready, waiting and dead
//	  total_bytes: 0
//	observers:                  # kept by the mesh; what is left out stays as it was
//	  activation_timeout_ms: 30000
//	  observer_grace_ms: 30000
//	subscriber_retention_ms: 30000
//
// A key that is not known, or a value that does not fit, is INVALID_ARGS naming
// file, line and key.
func ReadConfig(path string, o *Options) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return protocol.Errorf(protocol.CodeInvalidArgs, "the configuration cannot be read: %v", err)
	}
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return protocol.Errorf(protocol.CodeInvalidArgs, "%s: %s", path, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if len(document.Content) == 0 {
		return nil // an empty file sets nothing
	}
	return section{path: path, settings: settings(o)}.read(document.Content[0])
}

// setting takes a key's value.
type setting func(value *yaml.Node) error

func settings(o *Options) map[string]setting {
	limits := map[string]setting{
		"queue_messages": into(&o.Limits.QueueMessages, notNegative),
		"queue_bytes":    into(&o.Limits.QueueBytes, notNegative),
		"total_messages": into(&o.Limits.TotalMessages, notNegative),
		"total_bytes":    into(&o.Limits.TotalBytes, notNegative),
	}
	mesh := &o.Settings
	observers := map[string]setting{
		"activation_timeout_ms": changing(mesh, &mesh.Observers.ActivationTimeoutMs),
		"observer_grace_ms":     changing(mesh, &mesh.Observers.ObserverGraceMs),
	}
	return map[string]setting{
		"data":                    into(&o.Data, notEmpty),
		"listen":                  into(&o.Listen, address("listen")),
		"http":                    into(&o.HTTP, address("http")),
		"webhook_secrets":         into(&o.WebhookSecrets, notEmpty),
		"sync":                    into(&o.Sync, nil),
		"drain_timeout":           into(&o.Drain, func(d time.Duration) error { return above0(int64(d)) }),
		"max_payload":             into(&o.MaxPayload, func(n int) error { return above0(int64(n)) }),
		"observers":               func(v *yaml.Node) error { return section{name: "observers.", settings: observers}.read(v) },
		"subscriber_retention_ms": changing(mesh, &mesh.SubscriberRetentionMs),
		"limits":                  func(v *yaml.Node) error { return section{name: "limits.", settings: limits}.read(v) },
	}
}

// into decodes a value and checks it.
func into[T any](target *T, check func(T) error) setting {
	return func(value *yaml.Node) error {
		var v T
		if err := value.Decode(&v); err != nil {
			return plain(err)
		}
		if check != nil {
			if err := check(v); err != nil {
				return err
			}
		}
		*target = v
		return nil
	}
}

// changing takes a value of the mesh's settings, if the change may be.
func changing(all *protocol.SettingsChange, target **int64) setting {
	return func(value *yaml.Node) error {
		n := new(int64)
		if err := value.Decode(n); err != nil {
			return plain(err)
		}
		*target = n
		_, err := all.Apply(protocol.DefaultSettings())
		return err
	}
}

// plain is a YAML error without its own line numbers: ours are beside the key.
func plain(err error) error {
	var types *yaml.TypeError
	if errors.As(err, &types) && len(types.Errors) > 0 {
		_, text, _ := strings.Cut(types.Errors[0], ": ")
		return errors.New(text)
	}
	return err
}

func notNegative(n int64) error {
	if n < 0 {
		return fmt.Errorf("%d is negative: 0 is no limit", n)
	}
	return nil
}

func above0(n int64) error {
	if n <= 0 {
		return errors.New("it is above 0")
	}
	return nil
}

func notEmpty(s string) error {
	if s == "" {
		return errors.New("it is empty: leave the key out for the default")
	}
	return nil
}

func address(name string) func(string) error {
	return func(s string) error {
		_, _, err := SplitAddress(name, s)
		return err
	}
}

// section is a mapping of known keys.
type section struct {
	path     string
	name     string // with a dot at its end, "" for the file itself
	settings map[string]setting
}

func (s section) read(n *yaml.Node) error {
	if n.Kind != yaml.MappingNode {
		return s.refuse(n.Line, strings.TrimSuffix(s.name, "."), "it takes keys and values")
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		set, known := s.settings[key.Value]
		if !known {
			return s.refuse(key.Line, s.name+key.Value, "it is not known here; known are "+s.known())
		}
		if err := set(value); err != nil {
			return s.locate(value.Line, s.name+key.Value, err)
		}
	}
	return nil
}

func (s section) known() string {
	keys := make([]string, 0, len(s.settings))
	for k := range s.settings {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return strings.Join(keys, ", ")
}

// locate adds where an error is, once: a section inside has done so already,
// except for the file.
func (s section) locate(line int, key string, err error) error {
	var at *locatedError
	if !errors.As(err, &at) {
		return s.refuse(line, key, textOf(err))
	}
	if s.path == "" {
		return at
	}
	return s.refuse(at.line, at.key, at.text)
}

func (s section) refuse(line int, key, text string) error {
	at := &locatedError{line: line, key: key, text: text}
	if s.path == "" {
		return at
	}
	return protocol.Errorf(protocol.CodeInvalidArgs, "%s, %s", s.path, at)
}

// textOf is an error's text without a code: the whole gets one.
func textOf(err error) string {
	if e, ok := errors.AsType[*protocol.Error](err); ok {
		return e.Message
	}
	return err.Error()
}

type locatedError struct {
	line      int
	key, text string
}

func (e *locatedError) Error() string {
	if e.key == "" {
		return fmt.Sprintf("line %d: %s", e.line, e.text)
	}
	return fmt.Sprintf("line %d, key %s: %s", e.line, e.key, e.text)
}
