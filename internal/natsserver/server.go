// Package natsserver embeds nats-server with JetStream on disk.
package natsserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/waybill-mq/waybill/internal/bind"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// DefaultMaxPayload lets a ledger's frame be one message.
const DefaultMaxPayload = 8 << 20

// Options of Start.
type Options struct {
	// DataDir belongs to one process at a time (DataDir/lock). It is made if it is
	// not there.
	DataDir string
	// StoreDir has JetStream in StoreDir/jetstream, and belongs to one process like
	// DataDir, which is the default.
	StoreDir string
	// Host to listen on; default 127.0.0.1. One that is not loopback is refused.
	Host string
	// Port to listen on; default 4222, -1 is any free one.
	Port int
	// SyncInterval is the time between two fsyncs. 0 fsyncs before each
	// answer, so that a power cut loses nothing that was answered.
	SyncInterval time.Duration
	// MaxPayload in bytes; default DefaultMaxPayload.
	MaxPayload int32
	// AcceptLoss is the operator's word to start on a damaged store without
	// what cannot be read, which is removed. Default false: Start fails.
	AcceptLoss bool
	// WholeDisk lets what is stored take the disk to its end: who starts the server
	// looks at Space and stops in time. Default: the server takes three quarters
	// of what is free at its start, and beyond that also refuses what would make
	// room.
	WholeDisk bool
	// Logger of the server's own messages; default none.
	Logger *slog.Logger
}

// Server is a running embedded NATS server.
type Server struct {
	nats    *server.Server
	release func() error // the data directory's lock
	name    string
	dir     string // of the store
	log     *logger
}

// Start starts the server and returns when it takes clients. It fails with
// CONFLICT, naming the holder's pid, when the data directory belongs to
// another running process; with *StoreError when what is stored there cannot be
// recovered, leaving every file as it was; with UNAVAILABLE when the address is
// taken; and with ctx's error when ctx ends first.
func Start(ctx context.Context, o Options) (*Server, error) {
	o.Host = cmp.Or(o.Host, "127.0.0.1")
	if err := bind.Check("NATS", o.Host); err != nil {
		return nil, err
	}
	o.StoreDir = cmp.Or(o.StoreDir, o.DataDir)
	release, err := lockBoth(o.DataDir, o.StoreDir)
	if err != nil {
		return nil, err
	}
	s, err := start(ctx, o)
	if err != nil {
		return nil, errors.Join(err, release())
	}
	s.release = release
	return s, nil
}

// lockBoth locks a data directory, and the one of the store if that is another.
func lockBoth(data, store string) (release func() error, err error) {
	one, err := lock(data)
	if err != nil || store == data {
		return one, err
	}
	other, err := lock(store)
	if err != nil {
		return nil, errors.Join(err, one())
	}
	return func() error { return errors.Join(other(), one()) }, nil
}

func start(ctx context.Context, o Options) (*Server, error) {
	if err := o.checkStore(); err != nil {
		return nil, err
	}
	name, err := serverName(o.DataDir)
	if err != nil {
		return nil, err
	}
	srv, err := server.NewServer(o.server(name))
	if err != nil {
		return nil, fmt.Errorf("the embedded NATS server refuses its options: %w", err)
	}
	log := newLogger(o.Logger)
	srv.SetLoggerV2(log, false, false, false)
	if err := await(ctx, srv, log); err != nil {
		srv.Shutdown()
		srv.WaitForShutdown()
		return nil, err
	}
	return &Server{nats: srv, name: name, dir: o.StoreDir, log: log}, nil
}

// checkStore fails for a damaged store, or repairs it if the loss is accepted.
func (o Options) checkStore() error {
	dir := filepath.Join(o.StoreDir, "jetstream")
	err := checkStore(dir)
	if err == nil || !o.AcceptLoss {
		return err
	}
	aside := filepath.Join(o.StoreDir, "damaged")
	if o.Logger != nil {
		o.Logger.Warn("the store is damaged; going on without what cannot be read, as told", "error", err, "kept_in", aside)
	}
	return repairStore(dir, aside)
}

func (o Options) server(name string) *server.Options {
	var most int64 // the server's own default
	if o.WholeDisk {
		most = allSpace
	}
	return &server.Options{
		ServerName:        name,
		Host:              o.Host,
		Port:              o.Port,
		MaxPayload:        cmp.Or(o.MaxPayload, DefaultMaxPayload),
		NoSigs:            true, // signals belong to the program
		JetStream:         true,
		StoreDir:          o.StoreDir, // the server adds /jetstream
		JetStreamMaxStore: most,
		SyncAlways:        o.SyncInterval == 0, SyncInterval: o.SyncInterval,
		// Half of the mesh's messages go to a subject that is used once, a
		// token or an inbox: a cache of subjects is only filled and swept.
		NoSublistCache: true,
	}
}

// await runs the server's start, which returns when it takes clients or has
// said to its log why it cannot. A start is not cut short: the server must not be
// shut down before it has come to its end.
func await(ctx context.Context, srv *server.Server, log *logger) error {
	srv.Start()
	if text := log.fatal(); text != "" {
		return protocol.Errorf(protocol.CodeUnavailable, "NATS cannot start: %s; if its address is taken, free it or choose another with --listen", text)
	}
	if !srv.ReadyForConnections(readyTimeout) {
		return protocol.Errorf(protocol.CodeUnavailable, "NATS has started and takes no connections")
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("starting NATS: %w", err)
	}
	return nil
}

// readyTimeout is a guard only: a server that has started listens.
const readyTimeout = 5 * time.Second

// serverName is the name the server was given at its first start on the data
// directory.
func serverName(dir string) (string, error) {
	file := filepath.Join(dir, "server-name")
	name, err := os.ReadFile(file)
	if err == nil && len(name) > 0 {
		return string(name), nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	fresh := "waybill-" + nuid.Next()
	return fresh, os.WriteFile(file, []byte(fresh), 0o600)
}

// URL is where clients connect, with the port that was taken.
func (s *Server) URL() string { return s.nats.ClientURL() }

// Name is the server's name, the same at every start on a data directory.
func (s *Server) Name() string { return s.name }

// InProcess connects without a socket.
func (s *Server) InProcess() nats.InProcessConnProvider { return s.nats }

// Stop closes every connection and the store, waits, and gives the data
// directory back. If ctx ends first it returns ctx's error and the directory
// stays locked until the process ends: the store is still open.
func (s *Server) Stop(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		s.nats.Shutdown()
		s.nats.WaitForShutdown()
		close(done)
	}()
	select {
	case <-done:
		return s.release()
	case <-ctx.Done():
		return fmt.Errorf("stopping NATS: %w", ctx.Err())
	}
}
