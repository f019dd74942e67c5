package up

import "github.com/waybill-mq/waybill/internal/ledger"

// slack is by how much each log may outgrow twice what is live.
func (m *Mesh) slack() int64 {
	_, total, err := m.nats.Space()
	if err != nil {
		return ledger.DefaultSlack
	}
	return ledger.SlackOn(total)
}

// watchStore ends the mesh when NATS has given up its store.
func (m *Mesh) watchStore() {
	if err := m.nats.Watch(m.stopping); err != nil {
		m.fail(err)
	}
}
