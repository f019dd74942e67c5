package frame

import (
	"iter"
	"math"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// Delivery is one of a frame's.
type Delivery struct {
	Subscription string // its id
	Token        []byte // of the subject that its outcome is published on
	ID           protocol.MessageID
	Attempt      uint32
	Generation   uint32
	MaxRetries   uint32
	TimeoutMs    int64
	Priority     uint8
	Group        string
	Headers      map[string][]string // the publisher's
	Span         string              // written as one more of Headers, protocol.HeaderSpan, and read as that; empty: none
	Body         []byte
	Declined     bool // it has no traceparent, and is not to be sampled
}

// declined is the bit of it in what follows the body.
const declined = 1

// BeginDeliveries begins a frame of deliveries of one lane, whose owner has
// that epoch. The lane is in the frame's reply subject.
func BeginDeliveries(b []byte, epoch uint64) []byte {
	w := append(writer(b), version)
	w.number(epoch)
	return w
}

// AppendDelivery appends a delivery to a frame.
func AppendDelivery(b []byte, d *Delivery) []byte {
	w := writer(b)
	start := w.open()
	w.text(d.Subscription)
	w.bytes(d.Token)
	w = append(w, d.ID[:]...)
	w.number(uint64(d.Attempt))
	w.number(uint64(d.Generation))
	w.number(uint64(d.MaxRetries))
	w.number(uint64(d.TimeoutMs))
	w.number(uint64(d.Priority))
	w.text(d.Group)
	if d.Span == "" {
		w.number(uint64(len(d.Headers)))
	} else {
		w.number(uint64(len(d.Headers) + 1))
		w.text(protocol.HeaderSpan)
		w.number(1)
		w.text(d.Span)
	}
	for name, values := range d.Headers {
		w.text(name)
		w.number(uint64(len(values)))
		for _, v := range values {
			w.text(v)
		}
	}
	w.bytes(d.Body)
	if d.Declined {
		w.number(declined)
	}
	w.shut(start)
	return w
}

// Size is about what a delivery takes in a frame, and never less than that.
func (d *Delivery) Size() int {
	const fixed = 64 // numbers and lengths
	n := fixed + len(protocol.HeaderSpan) + len(d.Span) + len(d.Subscription) + len(d.Token) + len(d.ID) + len(d.Group) + len(d.Body)
	for name, values := range d.Headers {
		n += len(name) + 10
		for _, v := range values {
			n += len(v) + 5
		}
	}
	return n
}

// Deliveries reads a frame of deliveries: the epoch of the lane's owner, and
// one after the other, the last with ErrMalformed if it could not be read.
// Tokens and bodies lie in b.
func Deliveries(b []byte) (epoch uint64, all iter.Seq2[*Delivery, error]) {
	r, err := begin(b)
	if err != nil {
		r = &reader{bad: true}
	}
	epoch = r.number()
	return epoch, func(yield func(*Delivery, error) bool) {
		if r.bad {
			yield(nil, ErrMalformed)
			return
		}
		var d Delivery
		for it, err := range r.items() {
			if err == nil {
				err = d.read(it)
			}
			if !yield(&d, err) || err != nil {
				return
			}
		}
	}
}

// read reads a delivery into d, which keeps the text of the one before where it
// is the same.
func (d *Delivery) read(r *reader) error {
	last := d.Subscription
	*d = Delivery{}
	if text := r.bytes(); string(text) == last {
		d.Subscription = last
	} else {
		d.Subscription = string(text)
	}
	d.Token = r.bytes()
	copy(d.ID[:], r.take(uint64(len(d.ID))))
	d.Attempt, d.Generation, d.MaxRetries = r.uint32(), r.uint32(), r.uint32()
	d.TimeoutMs = int64(min(r.number(), math.MaxInt64))
	d.Priority = uint8(min(r.number(), math.MaxUint8))
	d.Group = string(r.bytes())
	if n := r.number(); n > 0 && n <= uint64(len(r.rest)) {
		d.Headers = make(map[string][]string, n)
		for range n {
			name := string(r.bytes())
			d.Headers[name] = r.texts()
		}
	} else if n > 0 {
		r.bad = true
	}
	d.Body = r.bytes()
	if len(r.rest) > 0 {
		d.Declined = r.number()&declined != 0
	}
	if r.bad {
		return ErrMalformed
	}
	return nil
}

func (r *reader) uint32() uint32 { return uint32(min(r.number(), math.MaxUint32)) }

func (r *reader) texts() []string {
	n := r.number()
	if n > uint64(len(r.rest)) {
		r.bad, r.rest = true, nil
		return nil
	}
	all := make([]string, 0, n)
	for range n {
		all = append(all, string(r.bytes()))
	}
	return all
}
