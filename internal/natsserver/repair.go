package natsserver

import (
	"errors"
	"fmt"
	"hash"
	"os"
	"path/filepath"
	"time"
)

// repairStore takes out of every block what cannot be read, so that the server
// does not, now or after a later crash, cut off with it what lies behind. The
// blocks as they were are kept aside: they are the only copy there is.
func repairStore(dir, aside string) error {
	aside = filepath.Join(aside, time.Now().UTC().Format("20060102T150405.000"))
	return eachStream(dir, func(stream string, meta []byte, err error) error {
		if err != nil {
			return nil //nolint:nilerr // to the server it is no stream: it is made anew
		}
		return eachDamaged(stream, meta, func(b *damagedBlock) error {
			return b.repair(filepath.Join(aside, filepath.Base(stream)), filepath.Join(stream, "msgs", "index.db"))
		})
	})
}

// repair keeps the block aside and replaces it by what can be read of it. The
// index, which the server can make again, would not agree with it any more.
func (b *damagedBlock) repair(aside, index string) error {
	if err := os.MkdirAll(aside, 0o700); err != nil {
		return fmt.Errorf("keeping the damaged block: %w", err)
	}
	kept := filepath.Join(aside, filepath.Base(b.file))
	if err := writeSynced(kept, b.data); err != nil {
		return fmt.Errorf("keeping the damaged block: %w", err)
	}
	repaired := kept + ".repaired"
	if err := writeSynced(repaired, readable(b.hash, b.data)); err != nil {
		return fmt.Errorf("repairing the block: %w", err)
	}
	if err := os.Remove(index); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("repairing the block: %w", err)
	}
	return os.Rename(repaired, b.file)
}

// readable is data without the bytes that belong to no whole record.
func readable(h hash.Hash64, data []byte) []byte {
	whole := make([]byte, 0, len(data))
	for at := 0; at < len(data); {
		n := record(h, data[at:])
		whole = append(whole, data[at:at+n]...)
		at += max(n, 1)
	}
	return whole
}

func writeSynced(file string, data []byte) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}
