package up

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/waybill-mq/waybill/internal/config"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// ReadConfig reads a configuration file over o, unless path is empty, and over
// that the environment:
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
//
// and the keys of the mesh (package config), which become o.Seed and o.Change.
// It returns warnings for people. A key that is not known, or a value that does
// not fit, is INVALID_ARGS naming file, line and key, or the variable.
func ReadConfig(path string, o *Options) (warnings []string, err error) {
	sources, err := config.Read(path, Keys(o), o.Change)
	if err != nil {
		return nil, err
	}
	o.Seed, o.Change = sources.Seed, sources.Change
	return sources.Warnings, nil
}

// Keys are those of the process itself; what is read goes to o.
func Keys(o *Options) []config.Key {
	limit := func(name, doc string, target *int64) config.Key {
		return config.Key{Name: name, Kind: config.Number, Default: int64(0), Most: math.MaxInt64, Doc: doc + "; 0 is no limit.", Take: into(target)}
	}
	return []config.Key{
		{Name: "data", Default: DefaultData, Check: config.NotEmpty, Doc: "Directory that holds everything.", Take: into(&o.Data)},
		{Name: "listen", Default: DefaultListen, Check: address("listen"), Doc: "Where NATS listens.", Take: into(&o.Listen)},
		{Name: "http", Default: DefaultHTTP, Check: address("http"), Doc: "Where HTTP is served.", Take: into(&o.HTTP)},
		{Name: "webhook_secrets", Default: "", Check: config.NotEmpty, Doc: "Directory with the files that webhooks name for their secrets; none by default.", Take: into(&o.WebhookSecrets)},
		{
			Name: "sync", Default: "always", Doc: "When a publish is on disk: always (before it is answered), or the time between two fsyncs, such as 2m.",
			Take: taking(func(value string) error { return o.Sync.UnmarshalText([]byte(value)) }),
		},
		{
			Name: "drain_timeout", Default: DefaultDrain.String(), Check: duration, Doc: "How long a shutdown may take.",
			Take: taking(func(value string) (err error) { o.Drain, err = time.ParseDuration(value); return err }),
		},
		{
			Name: "max_payload", Kind: config.Number, Default: int64(protocol.DefaultMaxPayload), Least: 1, Most: math.MaxInt32, Doc: "Bytes of a message.",
			Take: taking(func(value int64) error { o.MaxPayload = int(value); return nil }),
		},
		{Name: "limits", Kind: config.Section, Doc: "What may be published.", Keys: []config.Key{
			limit("queue_messages", "Messages in one queue", &o.Limits.QueueMessages),
			limit("queue_bytes", "Bytes in one queue", &o.Limits.QueueBytes),
			limit("total_messages", "Messages in the mesh: ready, waiting and dead", &o.Limits.TotalMessages),
			limit("total_bytes", "Bytes in the mesh", &o.Limits.TotalBytes),
		}},
	}
}

// into sets a target of the type that values of the key have.
func into[T any](target *T) func(any) error {
	return taking(func(value T) error { *target = value; return nil })
}

func taking[T any](take func(T) error) func(any) error {
	return func(value any) error {
		v, is := value.(T)
		if !is {
			return fmt.Errorf("it is a %T", value)
		}
		return take(v)
	}
}

func address(name string) func(string) error {
	return func(s string) error {
		_, _, err := SplitAddress(name, s)
		return err
	}
}

func duration(s string) error {
	if d, err := time.ParseDuration(s); err != nil || d <= 0 {
		return errors.New("it is a time above 0, such as 10s")
	}
	return nil
}
