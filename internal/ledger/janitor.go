package ledger

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/internal/mesh"
)

const (
	// DefaultSlack is by how much a stream may outgrow twice what is live.
	DefaultSlack = 64 << 20
	// slackPart of a small disk is the most.
	slackPart = 16
	// frameSlack is how many small frames a stream may have: a message that is
	// published alone is a frame, and each costs memory, and time at a takeover.
	frameSlack = 100_000
	smallFrame = 64 << 10 // bytes
	// DefaultSweep is how often a stream's size is looked at.
	DefaultSweep = 2 * time.Second
)

// Janitor keeps a stream of ledgers short: when it is larger than twice what
// is live and some slack, or of very many small frames, it has the ledgers of this process write forward
// what lies in the older half, and purges the stream behind the lowest floor
// of all its ledgers. Each process runs one for each stream it has ledgers on;
// several do no harm, since floors only rise.
type Janitor struct {
	// Conn is any connection; Stream holds the ledgers.
	Conn   *nats.Conn
	Stream string
	// Locals are the ledgers that are open in this process.
	Locals func() []Forwarder
	// Slack is in bytes; default DefaultSlack.
	Slack int64
	// Every is the time between looks; default DefaultSweep.
	Every  time.Duration
	Logger *slog.Logger // default none
}

// Forwarder is an open ledger; a *Running is one.
type Forwarder interface {
	Forward(target uint64)
}

// Run works until ctx ends. What fails is logged and tried again.
func (j *Janitor) Run(ctx context.Context) {
	log, every := j.Logger, j.Every
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if every == 0 {
		every = DefaultSweep
	}
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if err := j.Sweep(ctx); err != nil && ctx.Err() == nil {
			log.Warn("the log was not shortened", "stream", j.Stream, "err", err)
		}
	}
}

// Sweep looks once and does what is to be done.
func (j *Janitor) Sweep(ctx context.Context) error {
	s, err := streamInfo(ctx, j.Conn, j.Stream, ">")
	many := s.Messages > frameSlack+s.Bytes/smallFrame
	if err != nil || !many && s.Bytes <= j.slack() {
		return err
	}
	// The floors are read after the stream's end: nothing beyond that end is
	// purged, whatever they say.
	live, floor, err := j.floors(ctx, s)
	if err != nil || !many && s.Bytes <= 2*live+j.slack() {
		return err
	}
	target := s.First + (s.Last-s.First)/2 + 1
	for _, l := range j.Locals() {
		l.Forward(target)
	}
	if floor = min(floor, s.Last); floor <= s.First {
		return nil
	}
	return api(ctx, j.Conn, "STREAM.PURGE."+j.Stream, map[string]any{"seq": floor}, &struct{}{})
}

// SlackOn is how much slack a stream has on a disk of that size: little on a
// small one.
func SlackOn(total int64) int64 { return min(DefaultSlack, max(1, total/slackPart)) }

// slackAt is SlackOn for the disk of NATS, if that tells of it.
func slackAt(ctx context.Context, nc *nats.Conn) int64 {
	ctx, cancel := context.WithTimeout(ctx, spaceTime)
	defer cancel()
	_, total, err := mesh.Space(ctx, nc)
	if err != nil {
		return DefaultSlack
	}
	return SlackOn(total)
}

// spaceTime is how long NATS may take to tell of its disk.
const spaceTime = 2 * time.Second

func (j *Janitor) slack() int64 {
	if j.Slack == 0 {
		return DefaultSlack
	}
	return j.Slack
}

// floors reads what the stream's ledgers say in their newest frames: how much
// of them is live, and the lowest sequence that is needed.
func (j *Janitor) floors(ctx context.Context, s streamState) (live int64, floor uint64, err error) {
	floor = s.Last
	for subject := range s.Subjects {
		newest, err := newestOf(ctx, j.Conn, j.Stream, subject)
		if err != nil {
			return 0, 0, err
		}
		if newest.seq == 0 {
			continue
		}
		h, _, err := decodeFrame(newest.data)
		if err != nil {
			return 0, 0, fmt.Errorf("sequence %d on %s: %w", newest.seq, subject, err)
		}
		live += int64(h.live)
		floor = min(floor, h.floorSeq)
	}
	return live, floor, nil
}
