package mesh

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// What a NATS has to offer, and what it should.
const (
	apiLevel     = 1         // of NATS 2.11, the first that answers reads of many messages at once
	leastPayload = 256 << 10 // below it a ledger's frames are too small to be worth it
	goodPayload  = 8 << 20   // a frame and the largest payloads with room to spare
)

// Found is what a NATS was found to be.
type Found struct {
	URL        string // without its password
	Version    string
	Cluster    string // its name; "" if the server is alone
	MaxPayload int64  // in bytes
}

// LogValue is how it is logged.
func (f *Found) LogValue() slog.Value {
	cluster := f.Cluster
	if cluster == "" {
		cluster = "none"
	}
	return slog.GroupValue(slog.String("url", f.URL), slog.String("version", f.Version),
		slog.String("cluster", cluster), slog.Int64("max_payload", f.MaxPayload))
}

// Small says whether frames, and the largest payloads, are smaller than they
// could be.
func (f *Found) Small() bool { return f.MaxPayload < goodPayload }

// Probe looks whether NATS has what a service needs. It is UNSUPPORTED, naming
// what is missing and how to get it, if it has not.
func Probe(ctx context.Context, nc *nats.Conn) (*Found, error) {
	f := &Found{
		URL: nc.ConnectedUrlRedacted(), Version: nc.ConnectedServerVersion(),
		Cluster: nc.ConnectedClusterName(), MaxPayload: nc.MaxPayload(),
	}
	if err := f.checkServer(nc); err != nil {
		return f, err
	}
	err := f.checkJetStream(ctx, nc)
	return f, err
}

func (f *Found) checkServer(nc *nats.Conn) error {
	if !nc.HeadersSupported() {
		return f.lacks("message headers", "run NATS 2.11 or later")
	}
	if f.MaxPayload < leastPayload {
		return f.lacks(fmt.Sprintf("room for messages (max_payload is %d bytes)", f.MaxPayload),
			fmt.Sprintf("raise max_payload in its configuration to %d, at least %d", goodPayload, leastPayload))
	}
	return nil
}

func (f *Found) checkJetStream(ctx context.Context, nc *nats.Conn) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	account, err := js.AccountInfo(ctx)
	switch {
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, nats.ErrNoResponders):
		return f.lacks("JetStream", "start it with -js, or with a jetstream block in its configuration")
	case errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return f.lacks("JetStream for this account", "enable it for the account these credentials belong to")
	case err != nil:
		return protocol.Errorf(protocol.CodeUnavailable, "JetStream of NATS at %s does not answer: %v; may these credentials use $JS.API.>?", f.URL, err)
	case account.API.Level < apiLevel:
		return f.lacks("reads of many messages at once", "run NATS 2.11 or later")
	case account.Limits.MaxStore == 0 && len(account.Tiers) == 0:
		return f.lacks("file storage", "allow this account to store on disk")
	}
	return nil
}

func (f *Found) lacks(what, cure string) error {
	return protocol.Errorf(protocol.CodeUnsupported, "NATS %s at %s has no %s, which the mesh needs: %s", f.Version, f.URL, what, cure)
}
