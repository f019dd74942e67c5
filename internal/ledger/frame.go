package ledger

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"google.golang.org/protobuf/encoding/protowire"
)

const (
	frameVersion = 1
	fieldRecord  = 15
	// headroom is kept in front of a batch's records for the frame's header.
	headroom = 320
	// MaxName is the longest name of a ledger, in bytes.
	MaxName = 128
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// header is what a frame says of itself.
type header struct {
	ledger   string
	epoch    uint64
	first    uint64 // ordinal of the first record
	count    uint64 // ordinals taken
	time     int64  // ns since the epoch
	floor    uint64 // first ordinal of the oldest frame that is needed
	floorSeq uint64 // its sequence; 0: this frame's
	live     uint64 // bytes of live state, about
}

// crcBytes is the length of the checksum's field.
const crcBytes = 5

func appendHead(b []byte, h *header) []byte {
	b = protowire.AppendTag(b, 1, protowire.Fixed32Type)
	b = append(b, 0, 0, 0, 0)
	b = appendUint(b, 2, frameVersion)
	b = appendString(b, 3, h.ledger)
	b = appendUint(b, 4, h.epoch)
	b = appendUint(b, 5, h.first)
	b = appendUint(b, 6, h.count)
	b = appendFixed(b, 7, uint64(h.time))
	b = appendUint(b, 8, h.floor)
	b = appendUint(b, 9, h.floorSeq)
	return appendUint(b, 10, h.live)
}

// sealFrame fills in the checksum.
func sealFrame(frame []byte) []byte {
	binary.LittleEndian.PutUint32(frame[1:], crc32.Checksum(frame[crcBytes:], castagnoli))
	return frame
}

// decodeFrame checks a frame and returns its header and the rest: its records.
func decodeFrame(b []byte) (h header, records []byte, err error) {
	if len(b) < crcBytes || b[0] != 1<<3|byte(protowire.Fixed32Type) {
		return h, nil, fmt.Errorf("not a frame")
	}
	if sum := crc32.Checksum(b[crcBytes:], castagnoli); sum != binary.LittleEndian.Uint32(b[1:]) {
		return h, nil, fmt.Errorf("its checksum is wrong")
	}
	var version uint64
	f := walk(b[crcBytes:])
	for rest := f.rest; f.next(); rest = f.rest {
		if f.num == fieldRecord {
			records = rest
			break
		}
		h.decode(&f, &version)
	}
	if f.err != nil {
		return h, nil, f.err
	}
	if version != frameVersion {
		return h, nil, fmt.Errorf("its format is version %d, this is version %d: open the ledger with a later one", version, frameVersion)
	}
	return h, records, nil
}

func (h *header) decode(f *fields, version *uint64) {
	switch f.num {
	case 2:
		*version = f.uint()
	case 3:
		h.ledger = string(f.slice())
	case 4:
		h.epoch = f.uint()
	case 5:
		h.first = f.uint()
	case 6:
		h.count = f.uint()
	case 7:
		h.time = int64(f.uint())
	case 8:
		h.floor = f.uint()
	case 9:
		h.floorSeq = f.uint()
	case 10:
		h.live = f.uint()
	}
}

// next is the ordinal after the frame.
func (h *header) next() uint64 { return h.first + h.count }

// eachRecord calls f with every record's encoding and place in the frame,
// until it returns an error.
func eachRecord(records []byte, f func(index uint32, raw []byte) error) error {
	w := walk(records)
	for i := uint32(0); w.next(); {
		if w.num != fieldRecord {
			continue
		}
		if err := f(i, w.slice()); err != nil {
			return err
		}
		i++
	}
	return w.err
}
