// Package natsserver embeds nats-server with JetStream on disk.
package natsserver

import (
	"context"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
)

// Options of Start.
type Options struct {
	DataDir string // locked to this process (flock on DataDir/lock); JetStream lives in DataDir/jetstream
	Host    string // default 127.0.0.1
	Port    int    // -1: any free port
	// SyncInterval 0 fsyncs before each answer (SyncAlways).
	SyncInterval time.Duration
	MaxPayload   int32 // default 8 MiB
	Logger       *slog.Logger
}

// Server is a running embedded NATS server.
type Server struct{}

// Start refuses with CONFLICT, naming the holder's pid, when the data
// directory belongs to another running process.
func Start(ctx context.Context, o Options) (*Server, error) { panic("stub") }

func (s *Server) URL() string                           { panic("stub") }
func (s *Server) InProcess() nats.InProcessConnProvider { panic("stub") }
func (s *Server) Stop(ctx context.Context) error        { panic("stub") }
