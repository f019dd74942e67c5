package up

import (
	"cmp"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"time"

	"github.com/waybill-mq/waybill/internal/config"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/gateway"
	"github.com/waybill-mq/waybill/services/router"
)

// What holds where nothing else is said.
const (
	DefaultData   = "waybill-data" // below the working directory
	DefaultListen = "127.0.0.1:4222"
	DefaultHTTP   = gateway.DefaultListen
	DefaultDrain  = 10 * time.Second
)

// Options of Start.
type Options struct {
	// Data is the directory that holds everything, made if it is not there;
	// default DefaultData. It belongs to one process at a time.
	Data string
	// Listen is NATS's <host>:<port>, HTTP the gateway's; port 0 is any free
	// one. Defaults DefaultListen, DefaultHTTP. Only loopback is allowed.
	Listen string
	HTTP   string
	// WebhookSecrets is as in gateway.Options.
	WebhookSecrets string
	// Sync says when what is answered is on the disk.
	Sync Sync
	// Limits bound what may be published; default none.
	Limits router.Limits
	// MaxPayload of a message in bytes; default protocol.DefaultMaxPayload.
	MaxPayload int
	// Seed is the mesh's configuration where it has none yet, Change what is
	// changed of it at each start.
	Seed, Change config.Document
	// Drain bounds Stop; default DefaultDrain.
	Drain time.Duration
	// AcceptLoss is the operator's word to start on a damaged store without what
	// cannot be read.
	AcceptLoss bool
	Version    string
	Logger     *slog.Logger // default none
}

func (o Options) withDefaults() Options {
	o.Data = absolute(cmp.Or(o.Data, DefaultData))
	o.Listen = cmp.Or(o.Listen, DefaultListen)
	o.HTTP = cmp.Or(o.HTTP, DefaultHTTP)
	o.Drain = cmp.Or(o.Drain, DefaultDrain)
	o.Version = cmp.Or(o.Version, "dev")
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// absolute is the path as people find it from anywhere.
func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

// Sync is the time between two fsyncs. Its zero value fsyncs before each
// answer, so that a power cut loses nothing that was answered; otherwise a
// power cut may cost what was answered since the last.
type Sync time.Duration

// ParseSync reads "always" or a duration such as 2m.
func ParseSync(s string) (Sync, error) {
	if s == "always" {
		return 0, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		return 0, protocol.Errorf(protocol.CodeInvalidArgs, "sync is %q: it is always (fsync before each answer) or a duration such as 2m", s)
	}
	return Sync(d), nil
}

// UnmarshalText reads what ParseSync does.
func (s *Sync) UnmarshalText(text []byte) (err error) {
	*s, err = ParseSync(string(text))
	return err
}

// durability is the word of publish answers.
func (s Sync) durability() string {
	if s == 0 {
		return protocol.DurabilityFsync
	}
	return protocol.DurabilityInterval
}

// String says it for people.
func (s Sync) String() string {
	if s == 0 {
		return "publishes are on disk (fsync) before they are answered"
	}
	return "publishes are written before they are answered and on disk within " + time.Duration(s).String() + ": a power cut may lose the last of them"
}

// SplitAddress takes <host>:<port> apart; it is INVALID_ARGS, naming the
// setting, for anything else. No host is 127.0.0.1.
func SplitAddress(setting, address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err == nil {
		port, err = strconv.Atoi(text)
	}
	if err != nil || port < 0 || port > 65535 {
		return "", 0, protocol.Errorf(protocol.CodeInvalidArgs, "%s is %q: it is <host>:<port>, such as 127.0.0.1:4222; port 0 takes any free one", setting, address)
	}
	return cmp.Or(host, "127.0.0.1"), port, nil
}
