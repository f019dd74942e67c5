// Package frame is the encoding of several deliveries, or several outcomes, in
// one NATS message: what waits for the same worker, or for the same lane, goes
// together. It is for workers that ask for it (protocol.Hello.Frames); others
// get each delivery as a message of its own.
//
// A frame begins with its version, a byte. A number is an unsigned varint, text
// and bytes are a number and so many bytes. Each item is bytes of its own, so
// that a later version can add to its end what this one does not read.
package frame

import (
	"cmp"
	"encoding/binary"
	"errors"
	"iter"
	"math"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

const version = 1

// ErrMalformed is what is wrong with a frame that cannot be read.
var ErrMalformed = errors.New("frame: malformed, or of a later version")

// writer appends; an item's length is filled in when it ends.
type writer []byte

func (w *writer) number(n uint64) { *w = binary.AppendUvarint(*w, n) }

func (w *writer) text(s string) {
	w.number(uint64(len(s)))
	*w = append(*w, s...)
}

func (w *writer) bytes(b []byte) {
	w.number(uint64(len(b)))
	*w = append(*w, b...)
}

// lengthBytes of an item: a varint of fixed width, so that it can be filled in
// afterwards. An item has at most 256 MiB.
const lengthBytes = 4

func (w *writer) open() int {
	*w = append(*w, 0, 0, 0, 0)
	return len(*w)
}

func (w *writer) shut(start int) {
	n := len(*w) - start
	for i := range lengthBytes {
		b := byte(n>>(7*i)) & 0x7f
		if i < lengthBytes-1 {
			b |= 0x80
		}
		(*w)[start-lengthBytes+i] = b
	}
}

// reader takes what a writer wrote. bad is set when it ends too early, and all
// that follows is zero.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) number() uint64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 {
		r.bad, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

// take is the next n bytes, inside of what is read.
func (r *reader) take(n uint64) []byte {
	if n > uint64(len(r.rest)) {
		r.bad, r.rest = true, nil
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) bytes() []byte { return r.take(r.number()) }

// items yields the rest as items, and at the end whether it could be read.
func (r *reader) items() iter.Seq2[*reader, error] {
	return func(yield func(*reader, error) bool) {
		for len(r.rest) > 0 {
			it := reader{rest: r.bytes()}
			if r.bad {
				yield(nil, ErrMalformed)
				return
			}
			if !yield(&it, nil) {
				return
			}
		}
	}
}

func begin(b []byte) (*reader, error) {
	if len(b) == 0 || b[0] != version {
		return nil, ErrMalformed
	}
	return &reader{rest: b[1:]}, nil
}

// Outcome is how one delivery ended.
type Outcome struct {
	Token   string // of its reply subject
	Outcome protocol.Outcome
	Text    string // of what went wrong
	// RetryAfterMs is protocol.HeaderRetryAfter.
	RetryAfterMs int64
}

// AppendOutcome appends an outcome to a frame, which it begins if b is empty.
func AppendOutcome(b []byte, o *Outcome) []byte {
	if len(b) == 0 {
		b = append(b, version)
	}
	w := writer(b)
	start := w.open()
	w.text(o.Token)
	if o.Outcome != protocol.Acknowledged {
		w.text(string(o.Outcome))
		w.text(o.Text)
		w.number(uint64(max(o.RetryAfterMs, 0)))
	}
	w.shut(start)
	return w
}

// Outcomes yields a frame's outcomes; the last comes with ErrMalformed if it
// could not be read.
func Outcomes(b []byte) iter.Seq2[Outcome, error] {
	return func(yield func(Outcome, error) bool) {
		r, err := begin(b)
		if err != nil {
			yield(Outcome{}, err)
			return
		}
		for it, err := range r.items() {
			var o Outcome
			if err == nil {
				o, err = it.outcome()
			}
			if !yield(o, err) || err != nil {
				return
			}
		}
	}
}

func (r *reader) outcome() (Outcome, error) {
	o := Outcome{Token: string(r.bytes()), Outcome: protocol.Acknowledged}
	if len(r.rest) > 0 {
		o.Outcome, o.Text = cmp.Or(protocol.Outcome(r.bytes()), protocol.Acknowledged), string(r.bytes())
		o.RetryAfterMs = int64(min(r.number(), math.MaxInt64))
	}
	if r.bad {
		return Outcome{}, ErrMalformed
	}
	return o, nil
}
