package router

import (
	"cmp"
	"slices"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
	"github.com/waybill-mq/waybill/services/router/broker"
)

// topic is a topic that somebody has subscribed to: the queues that receive
// it, all in this lane, so that a publish is one record however many they are.
// The slices are replaced and never changed: publishes under way hold them.
type topic struct {
	queues []*queue
	copies []broker.Copy // what each receives of a publish, if it is plain
}

// join makes q one of its topic's queues.
func (l *lane) join(q *queue) {
	t := l.topics[q.topic]
	if t == nil {
		t = &topic{}
		l.topics[q.topic] = t
	}
	t.queues = append(slices.Clip(t.queues), q)
	t.copies = append(slices.Clip(t.copies), broker.Copy{Queue: q.name})
	l.bindRemote(q)
	l.unbindElsewhere(q)
}

// part takes q out of its topic.
func (l *lane) part(q *queue) {
	t := l.topics[q.topic]
	i := slices.Index(t.queues, q)
	t.queues = slices.Delete(slices.Clone(t.queues), i, i+1)
	t.copies = slices.Delete(slices.Clone(t.copies), i, i+1)
	if len(t.queues) == 0 {
		delete(l.topics, q.topic)
	}
}

// resolveTopic checks the name in what follows SubjectPublishTopic.
func (s *Service) resolveTopic(rest string) *route {
	if err := cmp.Or(scope.CheckTopic(rest), scope.CheckReserved(rest)); err != nil {
		return &route{err: err}
	}
	return &route{topic: rest, slot: s.slots()[ledger.OfTopic(rest, len(s.slots()))]}
}

// stageTopic stages a publish for every queue of its topic that wants it.
// Nobody there, or nobody who does, is a success at once: nothing is stored.
func (l *lane) stageTopic(p *publication) error {
	t := l.topics[p.route.topic]
	tells := l.tells(p.route.topic)
	if t == nil && tells == nil {
		l.acknowledge(p, broker.Receipt{ID: p.message.ID}, 0)
		return nil
	}
	if t == nil {
		return l.tell(p, tells)
	}
	copies := l.address(t, p)
	if len(p.to) == 0 {
		l.countLeftOut(p)
		l.acknowledge(p, broker.Receipt{ID: p.message.ID}, len(p.leftOut))
		return nil
	}
	for _, q := range p.to {
		if err := cmp.Or(q.grants(p), l.queueAdmits(q, p.size)); err != nil {
			return err
		}
	}
	if err := l.meshAdmits(int64(len(p.to)), p.size); err != nil {
		return err
	}
	l.prioritize(p, p.to...)
	err := l.publishTopic(p, copies)
	if err == nil {
		l.stagingTopic(p, 1)
	}
	return err
}

// tell publishes to a topic on a broker for whoever receives it there.
func (l *lane) tell(p *publication, r *remote) error {
	if err := grants(r, p); err != nil {
		return err
	}
	p.by = r.store
	err := l.publishPart(p, part{store: r.store})
	if err == nil {
		l.stagingTopic(p, 1)
	}
	return err
}

// stagingTopic keeps account as staging does: each queue has a message more or
// less, and the mesh a body.
func (l *lane) stagingTopic(p *publication, sign int64) {
	for _, q := range p.to {
		q.staged += sign
		q.stagedBytes += sign * p.size
	}
	n := sign * int64(len(p.to))
	l.entries.Add(n)
	l.bytes.Add(sign * p.size)
	l.stagedEntries += n
	l.stagedBytes += sign * p.size
}

// endTopic ends that account.
func (l *lane) endTopic(p *publication) {
	l.stagingTopic(p, -1)
	for _, q := range p.to {
		l.landed(p, q)
	}
}

// storedTopic answers a publish to a topic that is in the log.
func (l *lane) storedTopic(p *publication, r broker.Receipt) {
	l.endTopic(p)
	if r.Duplicate {
		l.ledger.Count("", ledger.Deduplicated, 1)
	} else {
		l.countLeftOut(p)
	}
	l.acknowledge(p, r, len(p.to)+len(p.leftOut))
}

// over says that q is a listener's and the listener is gone, or that an
// operator has ended it.
func (q *queue) over() bool { return q.bound == nil && (q.ended || q.kind == scope.KindListener) }

// stray is an entry of a listener that is not there any more. What it has not
// handled is discarded; what somebody redrives to it since is given up again,
// and says why.
func (l *lane) stray(e *broker.Entry, q *queue) {
	l.forgetLater(q)
	if e.Generation == 0 {
		l.drop(e)
		return
	}
	meta := l.storeOf(e).Meta(e)
	meta.Reason, meta.Error = protocol.ReasonGone, "the listener is not there any more: discard the message, or publish it again"
	meta.LastFailure, meta.FirstFailure, meta.Due = l.wall, l.wall, 0
	if l.giveUp(e, meta) {
		e.Slot = settled
		return
	}
	e.Slot = straying
	l.strays = append(l.strays, e)
}

// strayAgain gives up what could not be given up before the ledgers of dead
// letters were known.
func (l *lane) strayAgain() {
	if len(l.strays) == 0 || !l.s.next.known() {
		return
	}
	strays := l.strays
	l.strays = nil
	for _, e := range strays {
		if e.Slot == straying {
			l.stray(e, l.queueOf(e))
		}
	}
}
