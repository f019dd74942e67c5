package natsserver

import "github.com/nats-io/nats-server/v2/server"

// JetStream is how the server inside stores.
func (s *Server) JetStream() *server.JetStreamConfig { return s.nats.JetStreamConfig() }
