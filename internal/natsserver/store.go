package natsserver

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/minio/highwayhash"
)

// StoreError says that something stored is damaged. Nothing was changed.
type StoreError struct {
	File string // the damaged or missing file, or its directory
	What string
}

func (e *StoreError) Error() string {
	return fmt.Sprintf("the store is damaged: %s: %s; nothing was changed: restore the data directory from a backup, or start with the loss accepted to go on without what cannot be read", e.File, e.What)
}

// checkStore looks for what the server would silently pass over, before it
// starts: a stream whose description is missing or damaged is, to the server,
// no stream, and would be made anew, empty; a block that cannot be read would be
// cut off.
func checkStore(dir string) error {
	return eachStream(dir, func(stream string, meta []byte, err error) error {
		if err != nil {
			return err
		}
		return checkBlocks(stream, meta)
	})
}

// eachStream calls f with every stream's directory and its description, or what
// is wrong with that, until f fails.
func eachStream(dir string, f func(stream string, meta []byte, err error) error) error {
	streams, err := filepath.Glob(filepath.Join(dir, "*", "streams", "*"))
	if err != nil {
		return err
	}
	for _, stream := range streams {
		if strings.HasPrefix(filepath.Base(stream), ".") { // being deleted
			continue
		}
		meta, err := readDescription(stream)
		if err != nil && empty(stream) { // a crash came while it was made
			continue
		}
		if err := f(stream, meta, err); err != nil {
			return err
		}
	}
	return nil
}

// readDescription reads meta.inf and compares it with its checksum in meta.sum,
// as the server does.
func readDescription(stream string) ([]byte, error) {
	file := filepath.Join(stream, "meta.inf")
	meta, err := read(file)
	if err != nil {
		return nil, err
	}
	want, err := read(filepath.Join(stream, "meta.sum"))
	if err != nil {
		return nil, err
	}
	key := sha256.Sum256([]byte(filepath.Base(stream)))
	hash, err := highwayhash.NewDigest64(key[:])
	if err != nil {
		return nil, err
	}
	hash.Write(meta) //nolint:errcheck // a hash takes everything
	if hex.EncodeToString(hash.Sum(nil)) != string(want) {
		return nil, &StoreError{File: file, What: "the stream's description does not have the checksum in meta.sum"}
	}
	return meta, nil
}

func read(file string) ([]byte, error) {
	b, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, &StoreError{File: file, What: "the file is missing"}
	}
	return b, err
}
