package daemon

import (
	"context"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

const lookAgain = 200 * time.Millisecond

// look looks at NATS before a service starts on it: whether it has all that is
// needed, and whether nobody has this instance's name.
func look(ctx context.Context, service string, f *Flags, log *slog.Logger) error {
	o := f.Connect()
	o.Name, o.Logger = "waybill-"+service+"-start", log
	nc, err := mesh.Connect(ctx, o)
	if err != nil {
		return err
	}
	defer nc.Close()
	found, err := probe(ctx, nc, f.Wait)
	if err != nil {
		return err
	}
	log.Info("NATS found", "nats", found)
	if found.Small() {
		log.Warn("NATS carries small messages only: commits are smaller and slower than they could be, and so are the largest payloads; raise its max_payload to 8 MiB", "max_payload", found.MaxPayload)
	}
	if f.Name == "" {
		return nil
	}
	return awaitName(ctx, nc, service, f, log)
}

// probe looks again while JetStream does not answer, as long as wait: a cluster
// that has just started has no leader yet.
func probe(ctx context.Context, nc *nats.Conn, wait time.Duration) (*mesh.Found, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		found, err := mesh.Probe(ctx, nc)
		if err == nil || protocol.CodeOf(err) != protocol.CodeUnavailable || !mesh.Pause(ctx, lookAgain) {
			return found, err
		}
	}
}

// awaitName returns when no other instance has this one's name: two of one name
// would take each other's work. One that was just told to stop is given its
// time.
func awaitName(ctx context.Context, nc *nats.Conn, service string, f *Flags, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, f.Drain+committing)
	defer cancel()
	for told := false; ; told = true {
		taken, err := isTaken(ctx, nc, protocol.Ready{Service: service, Instance: f.Name})
		if err != nil || !taken {
			return err
		}
		if !told {
			log.Warn("an instance of this name runs; waiting for its end", "service", service, "name", f.Name)
		}
		if !mesh.Pause(ctx, lookAgain) {
			return protocol.Errorf(protocol.CodeConflict, "a %s named %s runs already: give each instance its own --name, or none", service, f.Name)
		}
	}
}

func isTaken(ctx context.Context, nc *nats.Conn, self protocol.Ready) (bool, error) {
	answers, err := mesh.Gather[protocol.Ready](ctx, nc, protocol.SubjectReady, protocol.Empty{}, 0)
	for _, a := range answers {
		if a.Service == self.Service && a.Instance == self.Instance {
			return true, nil
		}
	}
	unheard := ctx.Err() != nil // nobody was, so it may be taken still
	if protocol.CodeOf(err) != protocol.CodeUnavailable {
		err = nil // somebody who cannot tell is not this one
	}
	return unheard, err
}
