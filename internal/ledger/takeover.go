package ledger

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/nats-io/nuid"
)

// takeover makes a new owner of a ledger: it reads the log, writes a record
// with a higher epoch, and reads on until it has seen that record. Then it has
// the whole history, since nobody else can write any more.
type takeover struct {
	store  store
	ledger string
	owner  string
	now    func() time.Time
	log    *slog.Logger
	loss   bool // go on without what cannot be read

	mark    []byte // tells this takeover's record from all others
	state   *state
	records []record // of the frame being read
	want    uint64   // the ordinal that comes next
	lost    uint64   // records that were skipped
	damaged uint64   // the last sequence at which there was damage
	gaps    map[gapError]int
	leap    uint64 // ordinals left out before the epoch record
	last    uint64 // the newest sequence, when its frame cannot be read
}

// gapError says that records are missing: they were purged while being read,
// or are lost.
type gapError struct {
	want, found uint64 // ordinals
	seq         uint64 // where the next one was found
}

func (e *gapError) Error() string {
	return fmt.Sprintf("record %d is followed by %d", e.want-1, e.found)
}

// sameGap is how often the same gap is found before it is believed.
const sameGap = 3

// run returns once the ledger is owned. A *DamageError found before the epoch
// record is written leaves the log as it was.
func (t *takeover) run(ctx context.Context) error {
	t.mark, t.gaps = []byte(nuid.Next()), map[gapError]int{}
	for {
		err := t.history(ctx)
		if err == nil {
			err = t.take(ctx)
		}
		var gap *gapError
		if !errors.As(err, &gap) {
			return err
		}
		// The log was purged while being read, or records are lost: the same
		// gap found several times tells.
		t.gaps[*gap]++
		if t.gaps[*gap] >= sameGap && !t.loss {
			return t.missing(gap)
		}
	}
}

// history reads what there is, from the floor on.
func (t *takeover) history(ctx context.Context) error {
	t.state, t.want, t.lost = newState(), 1, 0
	newest, err := t.newest(ctx)
	if errors.Is(err, errUnreadable) {
		return t.withoutNewest(ctx, 0, err)
	}
	if err != nil {
		return err
	}
	if newest.seq == 0 {
		return t.tail(ctx, 0)
	}
	h, _, err := decodeFrame(newest.data)
	if err != nil {
		return t.withoutNewest(ctx, newest.seq, err)
	}
	t.want = h.floor
	if err := t.readTo(ctx, max(1, h.floorSeq), newest.seq); err != nil {
		return err
	}
	return t.tail(ctx, newest.seq)
}

// withoutNewest reads what else there is, if that is wanted: where the floor is
// nobody knows.
func (t *takeover) withoutNewest(ctx context.Context, seq uint64, cause error) error {
	if err := t.unreadable(stored{seq: seq}, cause); err != nil {
		return err
	}
	t.leap, t.last = lostOrdinals, seq
	var failed error
	err := t.store.read(ctx, 1, math.MaxInt, func(s stored) bool {
		if s.seq != seq {
			failed = t.frame(s)
		}
		return failed == nil
	})
	t.damaged = max(t.damaged, t.state.seq)
	return cmp.Or(failed, err)
}

// tail sees to sequences that were lost behind the ledger's newest frame: they
// may have been its own.
func (t *takeover) tail(ctx context.Context, newest uint64) error {
	missing, err := t.store.missing(ctx, newest)
	if err != nil || len(missing) == 0 {
		return err
	}
	last := missing[len(missing)-1]
	d := &DamageError{
		Ledger: t.ledger, Seq: missing[0], First: t.want, Last: t.want,
		What: fmt.Sprintf("the stream has lost its sequences %d to %d, which may have been this ledger's newest", missing[0], last),
	}
	if !t.loss {
		return d
	}
	t.skip(uint64(len(missing)), last, d)
	t.leap = lostOrdinals
	return nil
}

func (t *takeover) missing(gap *gapError) error {
	return &DamageError{
		Ledger: t.ledger, Seq: gap.seq, First: gap.want, Last: gap.found - 1, What: "they are missing before it",
	}
}

// readTo reads frames from one sequence to another, asking again while the log
// seems to end earlier.
func (t *takeover) readTo(ctx context.Context, from, to uint64) error {
	var wait backoff
	var failed error
	for tries := 0; from <= to; tries++ {
		err := t.store.read(ctx, from, int(to-from)+2, func(s stored) bool {
			if s.seq > to {
				failed = t.beyond(s)
				return false
			}
			failed = t.frame(s)
			from, tries = s.seq+1, 0
			return failed == nil && from <= to
		})
		if err := cmp.Or(failed, err); err != nil || from > to {
			return err
		}
		if tries == readTries {
			return t.endsEarly(to)
		}
		if err := t.store.sleep(ctx, wait.next()); err != nil {
			return err
		}
	}
	return nil
}

// beyond says that what was to be read is gone: the next frame lies after it.
func (t *takeover) beyond(s stored) error {
	h, _, err := decodeFrame(s.data)
	if err != nil {
		return t.unreadable(s, err)
	}
	gap := gapError{want: t.want, found: h.first, seq: s.seq}
	if t.gaps[gap] >= sameGap {
		return nil // lost for good, and that is accepted
	}
	return &gap
}

// readTries is how often the end of the log is asked for, over some seconds,
// before it is taken for lost.
const readTries = 10

func (t *takeover) endsEarly(to uint64) error {
	if t.loss {
		t.damaged = to
		return nil
	}
	return &DamageError{
		Ledger: t.ledger, Seq: to, First: t.want, Last: t.want,
		What: "the stream has this sequence but does not give it out, nor what lies before it",
	}
}

// frame applies one frame, after checking that it follows.
func (t *takeover) frame(s stored) error {
	h, records, err := decodeFrame(s.data)
	if err != nil {
		return t.unreadable(s, err)
	}
	if err := t.follows(&h, s.seq); err != nil {
		return err
	}
	list, err := decodeRecords(t.records[:0], records, t.state.intern)
	t.records = list
	if err == nil {
		err = countAgrees(&h, list)
	}
	if err != nil {
		return t.unreadable(s, err)
	}
	t.state.begin(&h, s.seq)
	for i := range list {
		t.state.apply(&list[i])
	}
	t.state.end()
	t.want = h.next()
	return nil
}

// decodeRecords appends a frame's records to list.
func decodeRecords(list []record, records []byte, intern interner) ([]record, error) {
	err := eachRecord(records, func(_ uint32, raw []byte) error {
		r, err := decodeRecord(raw, intern)
		list = append(list, r)
		return err
	})
	return list, err
}

func countAgrees(h *header, list []record) error {
	n := uint64(0)
	for i := range list {
		n += list[i].ordinals()
	}
	if n != h.count {
		return fmt.Errorf("it says it has %d records and has %d", h.count, n)
	}
	return nil
}

// follows checks a frame against what came before it. The first is the one
// that the newest calls the floor.
func (t *takeover) follows(h *header, seq uint64) error {
	if h.ledger != t.ledger {
		return &DamageError{Ledger: t.ledger, Seq: seq, What: fmt.Sprintf("a frame of the ledger %q", h.ledger)}
	}
	if h.epoch < t.state.epoch {
		return &DamageError{Ledger: t.ledger, Seq: seq, First: h.first, Last: h.next() - 1, What: "they were written by an older owner"}
	}
	if h.first < t.want {
		return &DamageError{Ledger: t.ledger, Seq: seq, First: h.first, Last: t.want - 1, What: "they are there twice"}
	}
	if h.first > t.want {
		gap := &gapError{want: t.want, found: h.first, seq: seq}
		if t.gaps[*gap] < sameGap {
			return gap
		}
		lost := h.first - t.want
		if lost >= lostOrdinals {
			lost -= lostOrdinals
		}
		t.skip(lost, seq, t.missing(gap))
	}
	return nil
}

func (t *takeover) unreadable(s stored, cause error) error {
	d := &DamageError{Ledger: t.ledger, Seq: s.seq, First: t.want, What: cause.Error()}
	d.Last = d.First
	if h, _, err := decodeFrame(s.data); err == nil && h.count > 0 {
		d.First, d.Last = h.first, h.next()-1
	}
	if !t.loss {
		return d
	}
	t.skip(0, s.seq, d) // what it held is counted at the gap it leaves
	return nil
}

func (t *takeover) skip(n, seq uint64, what error) {
	t.lost += n
	t.damaged = max(t.damaged, seq)
	t.log.Error("opening a ledger without what cannot be read", "ledger", t.ledger, "records", n, "what", what)
}

func (t *takeover) newest(ctx context.Context) (stored, error) {
	var wait backoff
	for {
		newest, err := t.store.newest(ctx)
		if err == nil || errors.Is(err, errUnreadable) {
			return newest, err
		}
		if ctx.Err() != nil {
			return stored{}, errors.Join(context.Cause(ctx), err)
		}
		if err := t.store.sleep(ctx, wait.next()); err != nil {
			return stored{}, err
		}
	}
}

// take writes the epoch record after the newest frame and reads up to it.
func (t *takeover) take(ctx context.Context) error {
	var wait backoff
	for {
		newest, err := t.newest(ctx)
		if err != nil && (!t.loss || !errors.Is(err, errUnreadable)) {
			return err
		}
		if t.ours(newest) {
			return t.readTo(ctx, t.state.seq+1, newest.seq)
		}
		seq, err := t.claim(ctx, newest)
		if err == nil {
			return t.readTo(ctx, t.state.seq+1, seq)
		}
		t.moved(err)
		if err := t.store.sleep(ctx, wait.next()); err != nil {
			return err
		}
	}
}

// ours recognises an epoch record of this takeover whose answer was lost.
func (t *takeover) ours(s stored) bool {
	_, records, err := decodeFrame(s.data)
	if err != nil {
		return false
	}
	found := false
	_ = eachRecord(records, func(_ uint32, raw []byte) error { // what is malformed is not ours
		r, err := decodeRecord(raw, plain)
		found = found || err == nil && r.kind == kindEpoch && bytes.Equal(r.value, t.mark)
		return err
	})
	return found
}

// moved learns where the log ends from a refusal.
func (t *takeover) moved(err error) {
	if f, ok := errors.AsType[*fencedError](err); ok {
		t.last = f.last
	}
}

// claim appends the epoch record.
func (t *takeover) claim(ctx context.Context, newest stored) (uint64, error) {
	h, expected := t.header(newest)
	records := []record{{kind: kindEpoch, name: t.owner, value: t.mark}}
	if expected == 0 || t.loss && t.state.secret.at == nil {
		var s Secret
		if _, err := rand.Read(s[:]); err != nil {
			return 0, err
		}
		records = append(records, record{kind: kindSecret, value: s[:]})
	}
	h.count = uint64(len(records))
	frame := appendHead(nil, &h)
	for i := range records {
		frame = appendRecord(frame, &records[i])
	}
	return t.store.append(ctx, expected, sealFrame(frame))
}

// lostOrdinals are left out where it is not known how many were taken, so that
// none is taken twice.
const lostOrdinals = 1 << 20

// header is that of the frame after newest, whose floor is a legal one still.
func (t *takeover) header(newest stored) (h header, expected uint64) {
	now := t.now().UnixNano()
	if newest.seq > 0 {
		if old, _, err := decodeFrame(newest.data); err == nil {
			return header{
				ledger: t.ledger, epoch: old.epoch + 1, first: old.next() + t.leap, time: max(old.time, now),
				floor: old.floor, floorSeq: old.floorSeq, live: old.live,
			}, newest.seq
		}
	}
	h = header{ledger: t.ledger, epoch: t.state.epoch + 1, first: t.want + t.leap, floor: 1, time: max(t.state.time, now)}
	if f := t.state.frames.floor(); f != nil {
		h.floor, h.floorSeq = f.first, f.seq
	}
	return h, t.last
}
