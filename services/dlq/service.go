// Package dlq is the service that holds dead letters: messages that were given
// up, with the reason, until somebody looks at them and redrives or discards
// them.
package dlq

import (
	"context"
	"errors"
	"log/slog"

	"go.opentelemetry.io/otel"

	"github.com/waybill-mq/waybill/internal/books"
	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/tracing"
)

const serviceName = "dlq"

// Options of New.
type Options struct {
	Mesh mesh.ConnectOptions
	// Instance tells this instance from the others: one subject token. One
	// that starts again under the same name has its ledgers back at once.
	// Default a random one.
	Instance string
	Version  string
	Logger   *slog.Logger // default none
	// Ledgers is the number of dead-letter ledgers, made at the service's first
	// start on this NATS; default 4. Later starts find it there.
	Ledgers int
	// Replicas of the log; default 1.
	Replicas int
	// Bodies bounds the bodies kept in memory, in bytes; default 64 MiB.
	Bodies int64
	// AcceptLoss opens damaged ledgers without what cannot be read. Default
	// false: Start fails, naming the damage.
	AcceptLoss bool
	// Slack is by how much the log may outgrow twice what is live, in bytes;
	// default ledger.DefaultSlack, or less on a small disk.
	Slack int64
	// InMemory has everything kept in memory alone, if this is its first start: what
	// is stored is lost when NATS ends.
	InMemory bool
}

// Service is one instance of the dlq service.
type Service struct {
	host   *books.Host[*drawer]
	tracer *tracing.Tracer // nil: no spans are made
}

// New makes a service, which does nothing until Start. It is INVALID_NAME for
// an Instance that is no subject token, INVALID_ARGS for numbers below 0.
func New(o Options) (*Service, error) {
	s := &Service{tracer: tracing.New(otel.GetTracerProvider(), library, o.Version)}
	host, err := books.NewHost(books.HostOptions[*drawer]{
		Service: serviceName, Mesh: o.Mesh, Instance: o.Instance, Version: o.Version, Logger: o.Logger,
		Ledgers: o.Ledgers, Replicas: o.Replicas, Bodies: o.Bodies, AcceptLoss: o.AcceptLoss, Slack: o.Slack, InMemory: o.InMemory,
		NewOwner: func() *drawer { return newDrawer(&s.host.Lanes, s.tracer) },
		Ledger:   protocol.SubjectDeadLedger,
		Serve:    s.serve,
		Queues:   protocol.SubjectDeadQueues, Executions: protocol.SubjectDeadExecutions,
		Fill:  func(info *protocol.QueueInfo, idle int64) { info.Dead = idle },
		Gauge: "dead",
	})
	if err != nil {
		return nil, err
	}
	s.host = host
	return s, nil
}

// Start connects, opens this instance's share of the ledgers and serves. It
// fails with UNAVAILABLE if NATS cannot be reached before ctx ends, and with a
// *ledger.DamageError if what is stored cannot be read. It is called once.
func (s *Service) Start(ctx context.Context) error {
	return s.host.Start(ctx, func() error {
		m := s.host.Mesh
		return errors.Join(
			mesh.Endpoint(m, "list", protocol.SubjectDeadList, s.list),
			mesh.Endpoint(m, "show", protocol.SubjectDeadShow, s.show),
			mesh.Endpoint(m, "redrive", protocol.SubjectDeadRedrive, func(ctx context.Context, q protocol.DeadActRequest) (protocol.DeadActReply, error) {
				return s.act(ctx, redrive, q)
			}),
			mesh.Endpoint(m, "discard", protocol.SubjectDeadDiscard, func(ctx context.Context, q protocol.DeadActRequest) (protocol.DeadActReply, error) {
				return s.act(ctx, discard, q)
			}),
		)
	})
}

// serve answers what other instances ask of a ledger that is open here.
func (s *Service) serve(book *books.Book[*drawer]) ([]*mesh.Subscription, error) {
	var served books.Subscriptions
	served.Add(books.Serve(s.host, book, askHeads))
	served.Add(books.Serve(s.host, book, askRead))
	served.Add(books.Serve(s.host, book, askShow))
	served.Add(books.Serve(s.host, book, askAct))
	served.Add(books.Serve(s.host, book, askPresent))
	served.Add(books.Serve(s.host, book, askClose))
	return served.All, served.Err()
}

// Stop answers what has arrived, commits, and frees the ledgers for other
// instances, at most until ctx ends. A further call waits for the first.
func (s *Service) Stop(ctx context.Context) error { return s.host.Stop(ctx) }

// Done is closed when the service has stopped.
func (s *Service) Done() <-chan struct{} { return s.host.Done() }

// Err is how it stopped; it may be called after Done.
func (s *Service) Err() error { return s.host.Err() }
