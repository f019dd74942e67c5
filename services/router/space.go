package router

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// space keeps publishes from using the last of the disk: without any nothing
// could be settled, and so no room be made.
type space struct {
	watched atomic.Bool
	left    atomic.Int64 // for publishes, when it was last looked at, less what they took since
	free    atomic.Int64
}

const (
	spaceInterval = 200 * time.Millisecond
	spaceAnswer   = time.Second
	// The reserve is a quarter of a small disk, and of a large one as much as
	// is surely enough until the log is next shortened.
	reserveMost = 256 << 20
	// recordBytes is about what a message takes in the log beside itself.
	recordBytes = 256
)

// admits refuses a publish of that many bytes with QUOTA_EXCEEDED if it would
// touch the reserve.
func (s *space) admits(size int64) error {
	if !s.watched.Load() || s.left.Add(-size-recordBytes) > 0 {
		return nil
	}
	return protocol.Errorf(protocol.CodeQuotaExceeded, "the disk is full: it has %d MiB left, which are kept for working off what is stored: make room on it, or start workers for what waits", s.free.Load()>>20)
}

// watchSpace looks at the disk from time to time.
func (s *Service) watchSpace(ctx context.Context) {
	t := time.NewTicker(spaceInterval)
	defer t.Stop()
	for known := true; known; known = s.lookAtSpace(ctx) {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// lookAtSpace says whether there is any sense in looking again.
func (s *Service) lookAtSpace(ctx context.Context) bool {
	look := s.o.Space
	if look == nil {
		look = func() (free, total int64, err error) { return s.spaceOfNATS(ctx) }
	}
	free, total, err := look()
	switch {
	case err == nil:
		s.spaceIs(free, total)
		return true
	case protocol.CodeOf(err) == protocol.CodeUnavailable || protocol.CodeOf(err) == protocol.CodeTimeout:
		return s.space.watched.Load() // a NATS that never told keeps to bounds of its own
	default:
		s.log.Warn("the disk does not say how much space it has, and is used to the last of it", "error", err)
		s.space.watched.Store(false)
		return false
	}
}

// spaceOfNATS asks a NATS in a process of its own.
func (s *Service) spaceOfNATS(ctx context.Context) (free, total int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, spaceAnswer)
	defer cancel()
	return mesh.Space(ctx, s.bulk)
}

func (s *Service) spaceIs(free, total int64) {
	was := !s.space.watched.Load() || s.space.left.Load() > 0
	s.space.free.Store(free)
	s.space.left.Store(free - min(reserveMost, total/4))
	s.space.watched.Store(true)
	if is := s.space.left.Load() > 0; was && !is {
		s.log.Warn("the disk is full: publishes are refused until there is room", "free", free, "total", total)
	}
}
