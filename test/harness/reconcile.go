package harness

import (
	"encoding/json"

	"github.com/waybill-mq/waybill/internal/operate"
)

// Reconcile is what `waybill reconcile` says, and its exit code.
func (m *Mesh) Reconcile() (r operate.Reconciliation, code int) {
	m.t.Helper()
	said := m.Run("reconcile", "--json")
	if err := json.Unmarshal([]byte(said.Stdout), &r); err != nil {
		m.t.Fatalf("waybill reconcile: %d %s%s", said.Code, said.Stdout, said.Stderr)
	}
	return r, said.Code
}

// Balanced fails the test unless what was counted agrees with what there is.
func (m *Mesh) Balanced() operate.Reconciliation {
	m.t.Helper()
	r, code := m.Reconcile()
	if code != 0 || !r.Balanced || r.Ledgers == 0 {
		m.t.Errorf("the books do not balance (exit code %d): %+v", code, r)
	}
	return r
}
