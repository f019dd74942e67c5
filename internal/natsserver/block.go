package natsserver

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/minio/highwayhash"
)

// What the server does with a block of messages that it cannot read is to cut
// it off there and go on. After a crash that is right for the last record of
// the last block, which nobody was told of; anywhere else it would drop what
// was stored, for ever. So blocks are read before the server is let at them.
//
// A record is, in little-endian: its length (4, the highest bit says that it
// has headers), sequence (8), time (8), the subject's length (2), the subject,
// the headers' length (4) and the headers if it has any, the body, and a
// HighwayHash (8) of all but the lengths.
const (
	recordHead = 22
	recordHash = 8
	recordMost = 32 << 20 // bytes; the server takes none longer
	hasHeaders = 1 << 31
)

// checkBlocks reads every block of a stream.
func checkBlocks(stream string, meta []byte) error {
	return eachDamaged(stream, meta, func(b *damagedBlock) error {
		return &StoreError{File: b.file, What: fmt.Sprintf("the record at byte %d is not what was written", b.bad)}
	})
}

// damagedBlock is a block with a record that cannot be read.
type damagedBlock struct {
	file string
	data []byte
	bad  int // where the first such record begins
	hash hash.Hash64
}

// eachDamaged calls f with each damaged block of a stream, until it fails.
func eachDamaged(stream string, meta []byte, f func(*damagedBlock) error) error {
	if !plain(stream, meta) {
		return nil
	}
	blocks, err := blocksOf(stream)
	if err != nil {
		return err
	}
	for i, n := range blocks {
		b := damagedBlock{file: filepath.Join(stream, "msgs", strconv.Itoa(n)+".blk")}
		if b.hash, err = blockHash(stream, n); err != nil {
			return err
		}
		b.data, err = os.ReadFile(b.file)
		if errors.Is(err, os.ErrNotExist) { // it was only listed
			continue
		}
		if err != nil {
			return &StoreError{File: b.file, What: err.Error()}
		}
		bad, ok := firstBad(b.hash, b.data)
		if ok || (i == len(blocks)-1 && tornTail(b.hash, b.data[bad:])) {
			continue
		}
		b.bad = bad
		if err := f(&b); err != nil {
			return err
		}
	}
	return nil
}

// plain says whether the stream's blocks can be read as they are. Those of the
// mesh can; somebody else's stream may be compressed or encrypted.
func plain(stream string, meta []byte) bool {
	var config struct {
		Compression string `json:"compression"`
	}
	if err := json.Unmarshal(meta, &config); err != nil || (config.Compression != "" && config.Compression != "none") {
		return false
	}
	_, err := os.Stat(filepath.Join(stream, "meta.key"))
	return errors.Is(err, os.ErrNotExist)
}

// blocksOf are the numbers of a stream's blocks, in order.
func blocksOf(stream string) ([]int, error) {
	files, err := filepath.Glob(filepath.Join(stream, "msgs", "*.blk"))
	if err != nil {
		return nil, err
	}
	var blocks []int
	for _, file := range files {
		if n, err := strconv.Atoi(strings.TrimSuffix(filepath.Base(file), ".blk")); err == nil {
			blocks = append(blocks, n)
		}
	}
	slices.Sort(blocks)
	return blocks, nil
}

// empty says whether nothing was ever stored in the stream.
func empty(stream string) bool {
	files, err := filepath.Glob(filepath.Join(stream, "msgs", "*.blk"))
	return err == nil && !slices.ContainsFunc(files, func(file string) bool {
		info, err := os.Stat(file)
		return err != nil || info.Size() > 0
	})
}

// blockHash is the hash of records in a block; each block has its own.
func blockHash(stream string, block int) (hash.Hash64, error) {
	key := sha256.Sum256(fmt.Appendf(nil, "%s-%d", filepath.Base(stream), block))
	return highwayhash.NewDigest64(key[:])
}

// firstBad is where the first record begins that cannot be read; ok if there
// is none.
func firstBad(h hash.Hash64, data []byte) (at int, ok bool) {
	for at < len(data) {
		n := record(h, data[at:])
		if n == 0 {
			return at, false
		}
		at += n
	}
	return at, true
}

// tornTail says whether data, which begins with a record that cannot be read,
// is what a crash leaves of the last write: no whole record follows.
func tornTail(h hash.Hash64, data []byte) bool {
	for at := 1; at < len(data); at++ {
		if record(h, data[at:]) > 0 {
			return false
		}
	}
	return true
}

// record is the length of the record that data begins with, 0 if it is none.
func record(h hash.Hash64, data []byte) int {
	if len(data) < recordHead+recordHash {
		return 0
	}
	length := binary.LittleEndian.Uint32(data)
	n := int(length &^ hasHeaders)
	subject := int(binary.LittleEndian.Uint16(data[20:]))
	lead := recordHead + subject
	if length&hasHeaders != 0 {
		lead += 4
	}
	if n > len(data) || n > recordMost || lead+recordHash > n || bytes.ContainsFunc(data[recordHead:recordHead+subject], notInSubject) {
		return 0
	}
	h.Reset()
	h.Write(data[4:20])
	h.Write(data[recordHead : recordHead+subject])
	h.Write(data[lead : n-recordHash])
	if !bytes.Equal(h.Sum(nil), data[n-recordHash:n]) {
		return 0
	}
	return n
}

// notInSubject is what no subject has. It spares the hashing of what is only
// taken for a record.
func notInSubject(r rune) bool { return r <= ' ' || r == 0x7f }
