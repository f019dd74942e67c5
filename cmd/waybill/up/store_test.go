package up_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/waybill-mq/waybill/cmd/waybill/up"
	"github.com/waybill-mq/waybill/internal/config"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// The store is where file_path said at the first start, also when it says
// something else later, and belongs to one mesh.
func TestTheStoreIsWhereTheFileSays(t *testing.T) {
	data, elsewhere := t.TempDir(), t.TempDir()
	at := func(path string) config.Document {
		return config.Document{"adapter": map[string]any{"config": map[string]any{"file_path": path}}}
	}
	has := func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, "jetstream"))
		return err == nil
	}
	for _, path := range []string{"data/queue", "other", ""} {
		o := up.Options{Data: data}
		if path != "" {
			o.Seed = at(path)
		}
		m := mustStart(t, o)
		if !has(filepath.Join(data, "data", "queue")) || has(filepath.Join(data, "other")) || has(data) {
			t.Errorf("started with %q, the store is elsewhere", path)
		}
		if err := m.Stop(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	mustStart(t, up.Options{Seed: at(elsewhere)})
	_, err := up.Start(t.Context(), up.Options{Data: t.TempDir(), Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0", Seed: at(elsewhere)})
	if protocol.CodeOf(err) != protocol.CodeConflict || !has(elsewhere) {
		t.Errorf("a second mesh with the store of the first: %v", err)
	}
}
