//go:build unix

package natsserver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// lock makes dir this process's own until release, or until the process ends
// however it ends: the kernel holds the lock. The file stays; it only says who
// holds it, for people.
func lock(dir string) (release func() error, err error) {
	if dir == "" {
		return nil, protocol.Errorf(protocol.CodeInvalidArgs, "a data directory is needed: name one with --data")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the data directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the data directory: %w", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		err = writeHolder(f)
	}
	if err != nil {
		defer f.Close() //nolint:errcheck // only read from
		return nil, lockError(dir, f, err)
	}
	return sync.OnceValue(f.Close), nil
}

func writeHolder(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := fmt.Fprintf(f, "%d\n", os.Getpid())
	return err
}

func lockError(dir string, f *os.File, err error) error {
	if !errors.Is(err, syscall.EWOULDBLOCK) {
		return fmt.Errorf("locking the data directory %s: %w", dir, err)
	}
	holder := make([]byte, 32)
	n, _ := f.ReadAt(holder, 0)
	pid := strings.TrimSpace(string(holder[:n]))
	if pid == "" {
		pid = "unknown"
	}
	return protocol.Errorf(protocol.CodeConflict,
		"the data directory %s belongs to a running process (pid %s): stop that one, or give this one another directory with --data", dir, pid)
}
