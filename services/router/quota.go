package router

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker"
)

// Limits bound what may be published; 0 is no limit. They never stop what was
// accepted: it is handled, retried and dead-lettered also beyond them.
type Limits struct {
	QueueMessages int64 // in one queue, ready or in a worker's hands
	QueueBytes    int64 // of their headers and payloads
	TotalMessages int64 // in the whole mesh: ready, waiting and dead
	TotalBytes    int64
}

// admits refuses a publish past a limit with QUOTA_EXCEEDED.
func (l *lane) admits(q *queue, size int64) error {
	if err := l.queueAdmits(q, size); err != nil {
		return err
	}
	return l.meshAdmits(1, size)
}

func (l *lane) queueAdmits(q *queue, size int64) error {
	lim := l.s.o.Limits
	messages, bytes := q.live()
	if lim.QueueMessages > 0 && q.isRemote() {
		messages += l.heldFar(q) - q.staged
	}
	if lim.QueueMessages > 0 && messages >= lim.QueueMessages {
		return protocol.Errorf(protocol.CodeQuotaExceeded, "the queue %s holds %d messages, its limit: start a worker for it, or raise limits.queue_messages", q.name, messages)
	}
	if lim.QueueBytes > 0 && bytes+size > lim.QueueBytes {
		return protocol.Errorf(protocol.CodeQuotaExceeded, "the queue %s holds %d bytes of %d: start a worker for it, or raise limits.queue_bytes", q.name, bytes, lim.QueueBytes)
	}
	if q.sighted != nil {
		q.sighted.published++
	}
	return nil
}

// sighting is what a broker was seen to hold of a queue, ready or in workers'
// hands, and what was published to it since.
type sighting struct {
	at        int64 // Service.clock
	looking   bool
	held      int64
	published int64
}

// sightFor is how long a sighting stands.
const sightFor = int64(500 * time.Millisecond)

// heldFar is how many messages the queue's broker holds, as far as it was looked
// at: it is looked at while publishes come, so that none waits for that.
func (l *lane) heldFar(q *queue) int64 {
	r := q.remote()
	if q.sighted == nil {
		q.sighted = &sighting{at: l.now - sightFor}
	}
	s := q.sighted
	if !s.looking && l.now >= s.at+sightFor {
		s.looking, s.held, s.published = true, s.held+s.published, 0
		l.lookAt(r, q.name, func(d broker.Depth, err error) {
			s.looking, s.at = false, l.now
			if err == nil { // what is on its way there may be in it or not
				s.held, s.published = d.Ready+int64(q.far()), q.staged
			}
		})
	}
	return s.held + s.published
}

// meshAdmits refuses n messages that have one body.
func (l *lane) meshAdmits(n, size int64) error {
	if err := l.s.space.admits(size); err != nil {
		return err
	}
	lim := l.s.o.Limits
	if lim.TotalMessages == 0 && lim.TotalBytes == 0 {
		return nil
	}
	messages, bytes := l.s.load()
	if lim.TotalMessages > 0 && messages+n > lim.TotalMessages {
		return protocol.Errorf(protocol.CodeQuotaExceeded, "the mesh holds %d messages, its limit: look at `waybill queue ls`, or raise limits.total_messages", messages)
	}
	if lim.TotalBytes > 0 && bytes+size > lim.TotalBytes {
		return protocol.Errorf(protocol.CodeQuotaExceeded, "the mesh holds %d bytes of %d: look at `waybill queue ls`, or raise limits.total_bytes", bytes, lim.TotalBytes)
	}
	return nil
}

// ratio is how much of a limit is used; 0 if there is none.
func ratio(used, limit int64) float64 {
	if limit <= 0 {
		return 0
	}
	return float64(used) / float64(limit)
}

// fullness is how much of the limits is used, by the name of their gauge: of one
// queue's by the fullest, and of those of the whole mesh as far as it is known here.
func (s *Service) fullness(queue, queueBytes float64) map[string]float64 {
	messages, bytes := s.load()
	return map[string]float64{
		"queue_messages_ratio": queue, "queue_bytes_ratio": queueBytes,
		"total_messages_ratio": ratio(messages, s.o.Limits.TotalMessages), "total_bytes_ratio": ratio(bytes, s.o.Limits.TotalBytes),
	}
}

// peers are the loads of the mesh's other instances, as they last told.
type peers struct {
	mu    sync.Mutex
	loads map[string]peer
}

type peer struct {
	load protocol.Load
	at   time.Time
}

// peerSilence is after how long what an instance told is not believed any
// more: its ledgers have other owners by then.
const peerSilence = 15 * time.Second

// heard takes a Load.
func (p *peers) heard(m *nats.Msg) {
	var load protocol.Load
	if json.Unmarshal(m.Data, &load) != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.loads == nil {
		p.loads = make(map[string]peer)
	}
	p.loads[load.Service+"/"+load.Instance] = peer{load, time.Now()}
}

// sum adds up all but own.
func (p *peers) sum(own string) (messages, bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, x := range p.loads {
		switch {
		case time.Since(x.at) > peerSilence:
			delete(p.loads, key)
		case key != own:
			messages += x.load.Messages
			bytes += x.load.Bytes
		}
	}
	return messages, bytes
}

// ownLoad is what this instance's lanes hold.
func (s *Service) ownLoad() protocol.Load {
	load := protocol.Load{Service: serviceName, Instance: s.o.Instance}
	for _, at := range s.slots() {
		if o := at.current.Load(); o != nil {
			load.Messages += o.lane.entries.Load()
			load.Bytes += o.lane.bytes.Load()
		}
	}
	return load
}

// load is what the whole mesh holds, as far as it is known here.
func (s *Service) load() (messages, bytes int64) {
	own := s.ownLoad()
	messages, bytes = s.peers.sum(serviceName + "/" + s.o.Instance)
	return messages + own.Messages, bytes + own.Bytes
}

// tellLoad publishes ownLoad.
func (s *Service) tellLoad() {
	body, err := json.Marshal(s.ownLoad())
	if err == nil {
		err = s.bulk.Publish(protocol.SubjectLoad, body)
	}
	if err != nil {
		s.log.Debug("the load could not be told", "error", err)
	}
}
