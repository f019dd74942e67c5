package harness

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// Configuration is a file with this text.
func Configuration(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "waybill.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Apply has the mesh work as a configuration says, or ends the test.
func (m *Mesh) Apply(text string) Command {
	m.t.Helper()
	applied := m.Run("config", "apply", Configuration(m.t, text))
	if applied.Code != 0 {
		m.t.Fatalf("applying\n%s: %+v", text, applied)
	}
	return applied
}

// Brokers are those of the mesh by name.
func (m *Mesh) Brokers() map[string]protocol.BrokerInfo {
	m.t.Helper()
	listed := m.Run("broker", "ls", "--json")
	var all []protocol.BrokerInfo
	if err := json.Unmarshal([]byte(listed.Stdout), &all); err != nil {
		m.t.Fatalf("%+v: %v", listed, err)
	}
	byName := make(map[string]protocol.BrokerInfo, len(all))
	for _, b := range all {
		byName[b.Name] = b
	}
	return byName
}
