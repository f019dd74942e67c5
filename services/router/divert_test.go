package router_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

const (
	behindLetter = 1500
	smallFrames  = 84 << 10 // so that their end takes several commits
)

func diverting(s *protocol.Subscription) {
	s.Type, s.OnDeadLetter = protocol.TypeFIFO, protocol.DeadLetterDivert
}

// publishInGroup publishes n messages in one group, one after the other.
func (f *fixture) publishInGroup(route string, n int) {
	f.Helper()
	for i := range n {
		m := &nats.Msg{
			Subject: protocol.PublishQueueSubject("e1", route), Data: []byte(strconv.Itoa(i)),
			Header: nats.Header{protocol.HeaderGroup: {"g"}},
		}
		answer, err := f.nc.RequestMsgWithContext(f.guarded(), m)
		f.must(err)
		if refused := protocol.ParseErrorBody(answer.Data); refused != nil {
			f.Fatal(refused)
		}
	}
}

func (f *fixture) jetStream() jetstream.JetStream {
	f.Helper()
	js, err := jetstream.New(f.nc)
	f.must(err)
	return js
}

// written is what the routers have written, in order.
func (f *fixture) written() (config jetstream.StreamConfig, frames []*jetstream.RawStreamMsg) {
	f.Helper()
	stream, err := f.jetStream().Stream(f.guarded(), ledger.StreamOf("router"))
	f.must(err)
	info := stream.CachedInfo()
	for seq := uint64(1); seq <= info.State.LastSeq; seq++ {
		m, err := stream.GetMsg(f.guarded(), seq)
		f.must(err)
		frames = append(frames, m)
	}
	return info.Config, frames
}

// restore writes a log, as a crash left it.
func (f *fixture) restore(config jetstream.StreamConfig, frames []*jetstream.RawStreamMsg) {
	f.Helper()
	js := f.jetStream()
	_, err := js.CreateStream(f.guarded(), config)
	f.must(err)
	for _, m := range frames {
		header := m.Header
		header.Del(jetstream.ExpectedLastSubjSeqHeader)
		_, err := js.PublishMsg(f.guarded(), &nats.Msg{Subject: m.Subject, Header: header, Data: m.Data})
		f.must(err)
	}
}

// The end of a dead letter's group takes several commits. Wherever a crash cuts
// their row, the next owner ends what was begun: either the letter was not
// decided, and is handled again, or everything behind it follows it and nothing
// of that is handled.
func TestADiversionThatWasCutIsEnded(t *testing.T) {
	t.Parallel()
	f := newFixtureOf(t, smallFrames)
	f.keep("retry")
	f.keep("dlq")
	s := f.router("a", nil)
	f.publishInGroup("r", 1+behindLetter)
	_, published := f.written()
	p := f.program(queueOf("r"), diverting)
	p.end(p.next(), protocol.Rejected)
	f.await("all to be dead", func() bool {
		return f.queue("r").Counters[protocol.CountDeadLettered] == 1+behindLetter
	})
	f.must(s.Stop(context.Background()))
	config, frames := f.written()
	cutInside := 0
	for cut := len(published); cut <= len(frames); cut++ {
		inside, whole := endsDiversion(t, config, frames[:cut])
		if inside {
			cutInside++
		}
		if whole {
			break
		}
	}
	if cutInside < 2 {
		t.Errorf("%d of the cuts were inside the diversion", cutInside)
	}
}

// endsDiversion starts a router on a log. It says whether the letter was decided
// and something behind it was not, and whether all of it was.
func endsDiversion(t *testing.T, config jetstream.StreamConfig, frames []*jetstream.RawStreamMsg) (inside, whole bool) {
	t.Helper()
	f := newFixtureOf(t, smallFrames)
	f.restore(config, frames)
	f.router("b", nil)
	before := f.queue("r") // there is nowhere to send them yet
	decided := before.Counters[protocol.CountDeadLettered] > 0
	p := f.program(queueOf("r"), diverting)
	f.keep("retry")
	f.keep("dlq")
	if !decided {
		d := p.next()
		if string(d.Data) != "0" {
			t.Fatalf("%d frames: %s is delivered first", len(frames), d.Data)
		}
		p.end(d, protocol.Rejected)
	}
	t.Logf("%d frames: ready %d, moving %d, dead-lettered %d", len(frames), before.Ready, before.Moving, before.Counters[protocol.CountDeadLettered])
	q := f.empty("r")
	if n := q.Counters[protocol.CountDeadLettered]; n != 1+behindLetter || len(p.got) != 0 {
		t.Errorf("%d frames: %d of %d are dead, %d deliveries", len(frames), n, 1+behindLetter, len(p.got))
	}
	f.publishInGroup("r", 1)
	p.end(p.next(), protocol.Acknowledged)
	return decided && before.Ready > 0, decided && before.Ready == 0
}
