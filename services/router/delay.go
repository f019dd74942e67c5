package router

import (
	"fmt"
	"strconv"

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
// says. One of which the broker takes no copy waits in the mesh, and one that is too large
// for that where it is. False: it has left already, or cannot be kept.
func (l *lane) wait(e *broker.Entry, meta broker.Meta) bool {
	if r := l.delayer(e); r != nil {
		return l.takeOver(r, e, meta)
	}
	at := l.storeOf(e)
	return at.Retry(e, meta) || l.takeOver(l.remoteWith(e), e, meta) || at.Return(e, meta)
}

// takeOver has the mesh have an entry of a broker's, to wait or, with a reason, among the
// dead letters. False: it is none of a broker's, or has left already, or cannot be kept.
func (l *lane) takeOver(r *remote, e *broker.Entry, meta broker.Meta) bool {
	if r == nil {
		return false
	}
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
	if protocol.CodeOf(err) == protocol.CodePayloadTooLarge && meta.Reason != "" { // it is dead, and to be seen all the same
		m, meta.Error = shortened(m)
		err = l.ledger.Adopt(m, meta, &once, &adoption{meta, kept})
	}
	if protocol.CodeOf(err) == protocol.CodeLimitExceeded { // of ids; it may come twice, if this router dies now
		err = l.ledger.Adopt(m, meta, nil, &adoption{meta, kept})
	}
	if err != nil {
		l.about(e).Warn("a message cannot be kept in the mesh", "error", err)
		return false
	}
	if !repeated {
		l.countWith(e, ledger.Sent) // as it counts as taken
	}
	return true
}

// shortenedTo is how much is left of a message that the mesh cannot keep.
const shortenedTo = 512 << 10

// headerShortened is how many bytes a message had of which the first are left.
const headerShortened = "x-shortened-from"

// shortened is a message with the beginning of its body, and what that is.
func shortened(m *broker.Message) (*broker.Message, string) {
	less := *m
	less.Body = m.Body[:min(len(m.Body), shortenedTo)]
	less.Headers = map[string][]string{headerShortened: {strconv.Itoa(len(m.Body))}}
	return &less, fmt.Sprintf("the message had %d bytes, for which there is no room among the dead letters: these are the first %d", len(m.Body), len(less.Body))
}

// adoptionOf names the adoption of a try of a message, beside the ids of publishers,
// which have no NUL in them.
func adoptionOf(e *broker.Entry) ledger.Dedup {
	return ledger.DedupOf(e.Queue.Name, fmt.Sprintf("\x00%x %d %d", e.ID, e.Generation, e.Attempt))
}

// committed settles the broker's, and sends the mesh's on to where it is to be.
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
	case a.meta.Reason != "" && l.store.DeadLetter(e, a.meta), a.meta.Reason == "" && l.store.Retry(e, a.meta):
		e.Slot = settled
	default:
		l.pause(e)
	}
}

// large is a message of which a broker may take no copy, with what the mesh adds to it.
const large = 256 << 10

// wasAdopted settles an entry that the broker delivers again though the mesh has
// taken it over: it waits there, or has gone on from there.
func (l *lane) wasAdopted(e *broker.Entry) bool {
	r := l.delayer(e)
	if r == nil && e.Size >= large {
		r = l.remoteWith(e)
	}
	if r == nil || !l.ledger.Remembers(adoptionOf(e)) {
		return false
	}
	return r.store.Leave(e, func(kept func()) bool {
		return l.ledger.Adopt(r.store.Message(e), r.store.Meta(e), new(adoptionOf(e)), &adoption{kept: kept}) == nil
	})
}
