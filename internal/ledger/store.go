package ledger

import (
	"context"
	"errors"
	"strconv"
	"time"
)

// store is what a ledger needs of the world: its log, and other ledgers. The
// methods with a context block, and are called outside of the ledger's
// goroutine.
type store interface {
	// newest is the ledger's newest frame as the log's leader has it; its
	// sequence is 0 when there is none. errUnreadable: there is one, but it
	// cannot be read.
	newest(ctx context.Context) (stored, error)
	// missing lists the sequences after one that the log has had and does not
	// have any more, though they were not purged. After 0, which is asked for a
	// ledger without a frame, the last of those before the log's first counts
	// too: a purge leaves every ledger its newest frame.
	missing(ctx context.Context, after uint64) ([]uint64, error)
	// read calls f with the ledger's frames from sequence from on, in order, at
	// most n, until f returns false. It may end early, and says so by
	// returning nil: what was just written may not be there yet.
	read(ctx context.Context, from uint64, n int, f func(stored) bool) error
	// append writes a frame if expected is the sequence of the ledger's newest,
	// and returns the frame's own. A *fencedError: it is not. After any other
	// error the frame may be written, now or later.
	append(ctx context.Context, expected uint64, frame []byte) (uint64, error)
	// publish is append without waiting: done is called in the ledger's
	// goroutine, at most once. frame may be reused when publish returns.
	publish(expected uint64, frame []byte, done func(seq uint64, err error))
	// broken says that the answer to the last publish will not come.
	broken() bool
	// offer hands a batch to the owner of another ledger and returns its
	// answer. errTooLong: it cannot be sent, a shorter one could.
	offer(ctx context.Context, dest string, batch []byte) ([]byte, error)
	// sleep waits; the error is the context's cause.
	sleep(ctx context.Context, d time.Duration) error
	// maxFrame is the longest frame the log takes, in bytes.
	maxFrame() int
}

// stored is a frame in the log. Its data may be kept, but not changed.
type stored struct {
	seq  uint64
	data []byte
}

// errUnreadable says that the log has the newest frame and does not give it
// out.
var errUnreadable = errors.New("ledger: the newest frame cannot be read")

// errTooLong says that NATS does not carry a message as long.
var errTooLong = errors.New("ledger: longer than NATS carries")

// fencedError refuses a frame that does not follow the newest, whose sequence
// is last; 0: not said.
type fencedError struct{ last uint64 }

func (e *fencedError) Error() string {
	return "ledger: the log has moved on to " + strconv.FormatUint(e.last, 10)
}
