package up

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/waybill-mq/waybill/internal/config"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// storeFile, in the data directory, says where the store lies if that is elsewhere.
const storeFile = "store"

// storeDir is where the store lies: where the configuration says at the first
// start on a data directory, and there ever after.
func (m *Mesh) storeDir() (string, error) {
	asked := m.o.Data
	if path := config.BuiltinOf(config.Check(m.o.Seed.Merge(m.o.Change)).Config.Adapter).FilePath; path != "" {
		asked = below(m.o.Data, path)
	}
	is, err := m.settledDir()
	if err != nil {
		return "", fmt.Errorf("looking for the store: %w", err)
	}
	if is == "" {
		return asked, m.settle(asked)
	}
	if asked != m.o.Data && asked != is {
		m.o.Logger.Warn("the store is where it was put at the first start; file_path has no effect", "store", is, "asked", asked)
	}
	return is, nil
}

// below is a path in dir, unless it begins at the root.
func below(dir, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}

// mustBeThere is NOT_FOUND for a directory that no mesh was started on.
func (m *Mesh) mustBeThere() error {
	is, err := m.settledDir()
	if err == nil && is == "" {
		err = protocol.Errorf(protocol.CodeNotFound, "there is no mesh in %s: name the directory that waybill up was started with", m.o.Data)
	}
	return err
}

// settledDir is where the store was put; "" if there is none yet.
func (m *Mesh) settledDir() (string, error) {
	text, err := os.ReadFile(filepath.Join(m.o.Data, storeFile))
	if err == nil {
		return below(m.o.Data, strings.TrimSpace(string(text))), nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	_, err = os.Stat(filepath.Join(m.o.Data, "jetstream"))
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	return m.o.Data, err
}

// settle notes where the store lies, relative to the data directory if it is below,
// so that both can be moved.
func (m *Mesh) settle(dir string) error {
	if dir == m.o.Data {
		return nil
	}
	path := dir
	if inside, err := filepath.Rel(m.o.Data, dir); err == nil && filepath.IsLocal(inside) {
		path = inside
	}
	if err := os.MkdirAll(m.o.Data, 0o700); err != nil {
		return fmt.Errorf("making the data directory: %w", err)
	}
	return os.WriteFile(filepath.Join(m.o.Data, storeFile), []byte(path+"\n"), 0o600)
}
