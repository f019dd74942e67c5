package router

import (
	"fmt"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker"
)

// adoption is a message of a broker's that comes into the lane's ledger, from where
// it goes to the retry service to wait. The broker's is settled once the ledger has
// it. Whoever dies in between has the broker deliver it again: the next owner of
// the lane finds in the ledger that it was adopted.
type adoption struct {
	meta broker.Meta
	kept func()
}

// wait hands an entry over to wait for meta.Due, where its broker's configuration
// says. False: it has left already, or cannot be kept.
func (l *lane) wait(e *broker.Entry, meta broker.Meta) bool {
	r := l.delayer(e)
	if r == nil {
		return l.storeOf(e).Retry(e, meta)
	}
	return l.waitHere(r, e, meta)
}

// waitHere has an entry of a broker wait in the mesh.
func (l *lane) waitHere(r *remote, e *broker.Entry, meta broker.Meta) bool {
	m := r.store.Message(e)
	return m != nil && r.store.Leave(e, func(kept func()) bool { return l.adopt(e, m, meta, kept) })
}

// delayer is the broker that has an entry whose delays pass in the mesh; nil: it has
// none such.
func (l *lane) delayer(e *broker.Entry) *remote {
	r := l.remoteWith(e)
	if r == nil || r.can.Delay != broker.DelayMesh {
		return nil
	}
	return r
}

func (l *lane) adopt(e *broker.Entry, m *broker.Message, meta broker.Meta, kept func()) bool {
	once := adoptionOf(e)
	repeated := l.ledger.Remembers(once)
	err := l.ledger.Adopt(m, meta, &once, &adoption{meta, kept})
	if protocol.CodeOf(err) == protocol.CodePayloadTooLarge { // what the mesh added is too much: the message itself was taken once
		meta.Error, meta.Story, meta.Spans = "", nil, ""
		err = l.ledger.Adopt(m, meta, &once, &adoption{meta, kept})
	}
	if protocol.CodeOf(err) == protocol.CodeLimitExceeded { // of ids; it may come twice, if this router dies now
		err = l.ledger.Adopt(m, meta, nil, &adoption{meta, kept})
	}
	if err != nil {
		l.about(e).Error("a message cannot wait in the mesh", "error", err)
		return false
	}
	if !repeated {
		l.countWith(e, ledger.Sent) // as it counts as taken
	}
	return true
}

// adoptionOf names the adoption of a try of a message, beside the ids of publishers,
// which have no NUL in them.
func adoptionOf(e *broker.Entry) ledger.Dedup {
	return ledger.DedupOf(e.Queue.Name, fmt.Sprintf("\x00%x %d %d", e.ID, e.Generation, e.Attempt))
}

// committed settles the broker's, and sends the mesh's on to wait.
func (a *adoption) committed(l *lane, c *ledger.Commit) {
	a.kept()
	if c.Duplicate {
		return
	}
	e := c.Entries[0]
	q := l.queueOf(e)
	l.blocks.saw(e, true, false)
	switch {
	case l.closed.Arrived(q.name):
		l.drop(e)
	case q.over():
		l.stray(e, q)
	case l.store.Retry(e, a.meta):
		e.Slot = settled
	default:
		l.pause(e)
	}
}

// wasAdopted settles an entry that the broker delivers again though the mesh has
// taken it over: it waits there, or has gone on from there.
func (l *lane) wasAdopted(e *broker.Entry) bool {
	r := l.delayer(e)
	if r == nil || !l.ledger.Remembers(adoptionOf(e)) {
		return false
	}
	return r.store.Leave(e, func(kept func()) bool {
		return l.ledger.Adopt(r.store.Message(e), r.store.Meta(e), new(adoptionOf(e)), &adoption{kept: kept}) == nil
	})
}
