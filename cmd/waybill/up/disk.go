package up

import (
	"time"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// slack is by how much each log may outgrow twice what is live: little on a small
// disk.
func (m *Mesh) slack() int64 {
	_, total, err := m.nats.Space()
	if err != nil {
		return ledger.DefaultSlack
	}
	return min(ledger.DefaultSlack, max(1, total/16))
}

const storeInterval = 500 * time.Millisecond

// errStore is how a mesh ends whose store cannot be written.
var errStore = protocol.Errorf(protocol.CodeUnavailable, "NATS could not write to its store and has given it up: if the disk is full make room on it, then start again; nothing that was answered is lost")

// watchStore notes when NATS has given up its store, which it does for good.
func (m *Mesh) watchStore() {
	t := time.NewTicker(storeInterval)
	defer t.Stop()
	for m.nats.Storing() {
		select {
		case <-t.C:
		case <-m.stopping:
			return
		}
	}
	m.fail(errStore)
}
