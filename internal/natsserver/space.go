package natsserver

import (
	"encoding/json"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// Space is what the disk of the store has left, and its size, in
// bytes. The error wraps errors.ErrUnsupported where the system does not tell.
func (s *Server) Space() (free, total int64, err error) { return diskSpace(s.dir) }

// Storing says whether the server can store. It goes on without, all or a stream
// of it, when it could not write to the disk; only another start changes that.
func (s *Server) Storing() bool { return s.nats.JetStreamEnabled() && !s.log.unwritable.Load() }

// allSpace is more than a disk has.
const allSpace = 1 << 60

// TellSpace answers services in other processes, which stop in time, with Space
// until the server stops.
func (s *Server) TellSpace() error {
	nc, err := nats.Connect("", nats.InProcessServer(s.nats), nats.Name("waybill-nats"))
	if err != nil {
		return err
	}
	_, err = nc.Subscribe(protocol.SubjectSpace, func(m *nats.Msg) {
		free, total, err := s.Space()
		answer, _ := json.Marshal(protocol.Space{Free: free, Total: total})
		if err != nil {
			answer = protocol.MarshalErrorBody(protocol.Errorf(protocol.CodeUnsupported, "the disk does not say how much space it has: %v", err))
		}
		_ = m.Respond(answer) // they ask again
	})
	return err
}

// ErrStore is how a program ends whose server has given up its store.
var ErrStore = protocol.Errorf(protocol.CodeUnavailable, "NATS could not write to its store and has given it up: if the disk is full make room on it, then start again; nothing that was answered is lost")

// storeInterval is how often the store is looked at.
const storeInterval = 500 * time.Millisecond

// Watch returns ErrStore when the server has given up its store, which it does
// for good, and nil when stopping is closed.
func (s *Server) Watch(stopping <-chan struct{}) error {
	t := time.NewTicker(storeInterval)
	defer t.Stop()
	for s.Storing() {
		select {
		case <-t.C:
		case <-stopping:
			return nil
		}
	}
	return ErrStore
}
