package ledger

import (
	"errors"
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// The encoding is that of Protocol Buffers, written by hand so that nothing is
// reflected and nothing allocated that is not kept. format.proto describes it.
// A nested message's length is a varint padded to lengthBytes, which every
// decoder takes: so it is filled in afterwards, and nothing is measured first.
// It can say up to 256 MiB, which no frame reaches.
const lengthBytes = 4

func appendUint(b []byte, num protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), v)
}

func appendFixed(b []byte, num protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendFixed64(protowire.AppendTag(b, num, protowire.Fixed64Type), v)
}

func appendString[S ~string | ~[]byte](b []byte, num protowire.Number, v S) []byte {
	if len(v) == 0 {
		return b
	}
	return appendPresent(b, num, v)
}

// appendPresent writes v also when it is empty.
func appendPresent[S ~string | ~[]byte](b []byte, num protowire.Number, v S) []byte {
	b = protowire.AppendTag(b, num, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(len(v)))
	return append(b, v...)
}

// open begins a nested message; shut, with the position open returned, ends it.
func open(b []byte, num protowire.Number) ([]byte, int) {
	b = protowire.AppendTag(b, num, protowire.BytesType)
	return append(b, 0, 0, 0, 0), len(b) + lengthBytes
}

func shut(b []byte, start int) []byte {
	n := len(b) - start
	for i := range lengthBytes {
		b[start-lengthBytes+i] = byte(n>>(7*i)) & 0x7f
		if i < lengthBytes-1 {
			b[start-lengthBytes+i] |= 0x80
		}
	}
	return b
}

var errWire = errors.New("malformed field")

// fields walks the fields of an encoded message. After next, num and one of
// number and bytes hold the field; raw is all of it.
type fields struct {
	rest   []byte
	num    int
	typ    protowire.Type
	number uint64
	bytes  []byte
	raw    []byte
	err    error
}

func walk(b []byte) fields { return fields{rest: b} }

func (f *fields) next() bool {
	if len(f.rest) == 0 || f.err != nil {
		return false
	}
	num, typ, n := protowire.ConsumeTag(f.rest)
	if n < 0 {
		return f.fail(protowire.ParseError(n))
	}
	m := f.value(num, typ, f.rest[n:])
	if m < 0 {
		return f.fail(protowire.ParseError(m))
	}
	f.num, f.typ = int(num), typ
	f.raw, f.rest = f.rest[:n+m], f.rest[n+m:]
	return true
}

func (f *fields) value(num protowire.Number, typ protowire.Type, b []byte) (n int) {
	f.number, f.bytes = 0, nil
	switch typ {
	case protowire.VarintType:
		f.number, n = protowire.ConsumeVarint(b)
	case protowire.Fixed64Type:
		f.number, n = protowire.ConsumeFixed64(b)
	case protowire.Fixed32Type:
		var v uint32
		v, n = protowire.ConsumeFixed32(b)
		f.number = uint64(v)
	case protowire.BytesType:
		f.bytes, n = protowire.ConsumeBytes(b)
	default:
		n = protowire.ConsumeFieldValue(num, typ, b)
	}
	return n
}

func (f *fields) fail(err error) bool {
	if f.err == nil {
		f.err = err
	}
	return false
}

// uint is the field's number. A field of another type than the one expected
// makes the walk fail, in the methods below too.
func (f *fields) uint() uint64 {
	if f.typ == protowire.BytesType {
		f.fail(fmt.Errorf("%w %d", errWire, f.num))
	}
	return f.number
}

func (f *fields) uint32() uint32 {
	v := f.uint()
	if v > math.MaxUint32 {
		f.fail(fmt.Errorf("%w %d", errWire, f.num))
	}
	return uint32(v)
}

// slice is the field's bytes, inside of what is walked.
func (f *fields) slice() []byte {
	if f.typ != protowire.BytesType {
		f.fail(fmt.Errorf("%w %d", errWire, f.num))
	}
	return f.bytes
}

// fixed is the field's bytes, which must be n.
func (f *fields) fixed(n int) []byte {
	v := f.slice()
	if len(v) != n {
		f.fail(fmt.Errorf("%w %d", errWire, f.num))
		return make([]byte, n)
	}
	return v
}

// uints appends the field's packed varints.
func (f *fields) uints(to []uint64) []uint64 {
	b := f.slice()
	for len(b) > 0 {
		v, n := protowire.ConsumeVarint(b)
		if n < 0 {
			f.fail(protowire.ParseError(n))
			return to
		}
		to, b = append(to, v), b[n:]
	}
	return to
}
