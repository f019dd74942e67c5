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
	return fmt.Sprintf("the store is damaged: %s: %s; nothing was changed: restore it from a backup, or move the stream's directory away to go on without what it holds", e.File, e.What)
}

// checkStore looks at what the server would silently pass over: a stream whose
// description is missing or damaged is, to the server, no stream, and would be
// made anew, empty. So it has to be found before the server starts.
func checkStore(dir string) error {
	streams, err := filepath.Glob(filepath.Join(dir, "*", "streams", "*"))
	if err != nil {
		return err
	}
	for _, stream := range streams {
		if strings.HasPrefix(filepath.Base(stream), ".") { // being deleted
			continue
		}
		if err := checkDescription(stream); err != nil {
			return err
		}
	}
	return nil
}

// checkDescription compares meta.inf with its checksum in meta.sum, as the
// server does.
func checkDescription(stream string) error {
	file := filepath.Join(stream, "meta.inf")
	meta, err := read(file)
	if err != nil {
		return err
	}
	want, err := read(filepath.Join(stream, "meta.sum"))
	if err != nil {
		return err
	}
	key := sha256.Sum256([]byte(filepath.Base(stream)))
	hash, err := highwayhash.NewDigest64(key[:])
	if err != nil {
		return err
	}
	hash.Write(meta) //nolint:errcheck // a hash takes everything
	if hex.EncodeToString(hash.Sum(nil)) != string(want) {
		return &StoreError{File: file, What: "the stream's description does not have the checksum in meta.sum"}
	}
	return nil
}

func read(file string) ([]byte, error) {
	b, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, &StoreError{File: file, What: "the file is missing"}
	}
	return b, err
}
