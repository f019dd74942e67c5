package operate

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// Story is one message's life, as far as it is kept: in each queue that it
// came to.
type Story struct {
	MessageID string `json:"message_id"`
	Lives     []Life `json:"lives"` // in order of queue
	// LeftOut are subscriptions to its topic that it did not reach because of
	// their filters, in order of queue.
	LeftOut []protocol.LeftOut `json:"left_out"`
	// Unseen are services whose logs could not be looked at: something may be
	// missing.
	Unseen []string `json:"unseen"`
	// UnseenQueues are queues on brokers, with messages that were not looked at
	// since they are being consumed.
	UnseenQueues []string `json:"unseen_queues,omitempty"`
	// Away says which brokers could not be asked, and why: they may have it.
	Away []string `json:"away,omitempty"`
}

// Life is a message's life in a queue. What it says of the past is from the
// message's own record, and its end from the log that has it.
type Life struct {
	protocol.Trail

	// State is where it is now; it stands for the trail's own.
	State string               `json:"state"`
	Entry *protocol.EntryState `json:"entry,omitempty"` // of one that is in a lane
}

// logServices keep messages.
var logServices = []string{"router", "retry", "dlq"}

// Why looks for a message in every log. NOT_FOUND: none has it; the text says
// since when the logs have everything. UNAVAILABLE: none has it, and a broker that
// may cannot be asked. INVALID_ARGS: it is no message id.
func Why(ctx context.Context, nc *nats.Conn, id string) (Story, error) {
	parsed, err := uuid.Parse(id)
	if err != nil {
		return Story{}, protocol.Errorf(protocol.CodeInvalidArgs, "%.64q is no message id: it is what a publish is answered with, such as 0198c5f2-7f5e-7c3a-9b1d-3f2a6c4e8d10", id)
	}
	story := Story{MessageID: parsed.String(), Lives: []Life{}, LeftOut: []protocol.LeftOut{}, Unseen: []string{}}
	replies, err := trails(ctx, nc, story.MessageID, &story.Unseen)
	if err != nil {
		return story, err
	}
	best := map[string]protocol.Trail{}
	var since time.Time
	for _, r := range replies {
		if r.Since.After(since) {
			since = r.Since
		}
		for _, t := range r.Trails {
			if old, known := best[t.Queue]; !known || compareTrails(t, old) > 0 {
				best[t.Queue] = t
			}
		}
	}
	if err := story.lookOnBrokers(ctx, nc, best); err != nil {
		return story, err
	}
	story.leaveOut(replies, best)
	for _, t := range best {
		story.Lives = append(story.Lives, lifeOf(ctx, nc, t))
	}
	slices.SortFunc(story.Lives, func(a, b Life) int { return strings.Compare(a.Queue, b.Queue) })
	if len(story.Lives) == 0 {
		err = story.unknown(parsed, since)
		return story, err
	}
	return story, nil
}

// leaveOut takes what the services say of subscriptions that it did not reach:
// one may not know of a queue that another has it in.
func (s *Story) leaveOut(replies []protocol.TrailReply, reached map[string]protocol.Trail) {
	for _, r := range replies {
		for _, one := range r.LeftOut {
			_, there := reached[one.Queue]
			if !there && !slices.ContainsFunc(s.LeftOut, func(x protocol.LeftOut) bool { return x.Subscription == one.Subscription }) {
				s.LeftOut = append(s.LeftOut, one)
			}
		}
	}
	slices.SortFunc(s.LeftOut, func(a, b protocol.LeftOut) int {
		return cmp.Or(strings.Compare(a.Queue, b.Queue), strings.Compare(a.Subscription, b.Subscription))
	})
}

// lookOnBrokers adds what brokers hold of the message.
func (s *Story) lookOnBrokers(ctx context.Context, nc *nats.Conn, best map[string]protocol.Trail) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	lanes, err := ledger.Count(ctx, js, "router")
	if protocol.CodeOf(err) == protocol.CodeNotFound {
		return nil
	}
	if err != nil {
		return err
	}
	answers := make([]protocol.BrokerTrail, lanes)
	asking, ctx := errgroup.WithContext(ctx)
	for i := range lanes {
		asking.Go(func() (err error) {
			subject := protocol.SubjectLane + ledger.Name("router", i) + "." + protocol.VerbBrokerTrail
			answers[i], err = mesh.Request[protocol.BrokerTrail](ctx, nc, subject, protocol.TrailRequest{MessageID: s.MessageID})
			if protocol.CodeOf(err) == protocol.CodeUnavailable {
				err = nil // nobody has a broker
			}
			return err
		})
	}
	err = asking.Wait()
	for _, a := range answers {
		s.UnseenQueues, s.Away = append(s.UnseenQueues, a.Unseen...), alsoAway(s.Away, a.Away)
		for _, t := range a.Trails {
			if old, known := best[t.Queue]; !known || compareTrails(t, old) >= 0 || !old.EndedAt.IsZero() {
				best[t.Queue] = t
			}
		}
	}
	slices.Sort(s.UnseenQueues)
	s.UnseenQueues = slices.Compact(s.UnseenQueues)
	return err
}

// unknown says what may be said of a message that nobody has.
func (s *Story) unknown(id uuid.UUID, since time.Time) error {
	if len(s.Away) > 0 {
		return protocol.Errorf(protocol.CodeUnavailable, "no log has %s, and not every broker can be asked: %s", id, strings.Join(s.Away, "; "))
	}
	if len(s.UnseenQueues) > 0 {
		return protocol.Errorf(protocol.CodeNotFound, "no log has %s, and no broker where it was looked for: it has ended, or is among what is being consumed from %s", id, strings.Join(s.UnseenQueues, ", "))
	}
	return unknownMessage(id, since)
}

// unknownMessage says what may be said of a message that no log has.
func unknownMessage(id uuid.UUID, since time.Time) error {
	sec, nsec := id.Time().UnixTime()
	published := time.Unix(sec, nsec)
	if id.Version() == 7 && !since.IsZero() && published.Before(since) {
		return protocol.Errorf(protocol.CodeNotFound, "no log has %s: it was published at %s, has ended since, and the logs go back to %s only (or it was never here)",
			id, published.UTC().Format(time.RFC3339), since.Format(time.RFC3339))
	}
	return protocol.Errorf(protocol.CodeNotFound, "no log has %s: nobody published it here, of those who subscribe to its topic nobody wanted it, or it has ended on a broker, which keeps no trace", id)
}

func trails(ctx context.Context, nc *nats.Conn, id string, unseen *[]string) ([]protocol.TrailReply, error) {
	replies, errs := make([]protocol.TrailReply, len(logServices)), make([]error, len(logServices))
	var asking sync.WaitGroup
	for i, service := range logServices {
		asking.Go(func() {
			replies[i], errs[i] = mesh.Request[protocol.TrailReply](ctx, nc, protocol.TrailSubject(service), protocol.TrailRequest{MessageID: id})
		})
	}
	asking.Wait()
	for i, err := range errs {
		switch {
		case err == nil:
		case protocol.CodeOf(err) == protocol.CodeUnavailable:
			*unseen = append(*unseen, logServices[i])
		default:
			return nil, err
		}
	}
	if len(*unseen) == len(logServices) {
		return nil, errors.Join(errs[0])
	}
	return replies, nil
}

// compareTrails says which of two trails in a queue is the later one.
func compareTrails(a, b protocol.Trail) int {
	return cmp.Or(
		cmp.Compare(a.Generation, b.Generation), cmp.Compare(a.Attempt, b.Attempt),
		cmp.Compare(leaving(b), leaving(a)), lastOf(a).Compare(lastOf(b)),
	)
}

// leaving is 1 for one that was, or is being, handed over: another ledger has
// more to say.
func leaving(t protocol.Trail) int {
	if t.Dest != "" {
		return 1
	}
	return 0
}

func lastOf(t protocol.Trail) time.Time {
	last := t.EndedAt
	for _, at := range []time.Time{t.DecidedAt, t.AcceptedAt} {
		if at.After(last) {
			last = at
		}
	}
	return last
}

func lifeOf(ctx context.Context, nc *nats.Conn, t protocol.Trail) Life {
	l := Life{Trail: t}
	switch service := serviceOf(t.Ledger); {
	case t.State != "":
		l.State = t.State
	case !t.EndedAt.IsZero():
		l.State = protocol.StateEnded
	case t.Dest != "":
		l.State = protocol.StateMoving
	case service == "retry":
		l.State = protocol.StateWaiting
	case service == "dlq":
		l.State = protocol.StateDead
	default:
		l.inLane(ctx, nc)
	}
	return l
}

// inLane asks the lane's owner. While there is none it is ready at most.
func (l *Life) inLane(ctx context.Context, nc *nats.Conn) {
	l.State = protocol.StateReady
	state, err := mesh.Request[protocol.EntryState](ctx, nc, protocol.SubjectLane+l.Ledger+"."+protocol.VerbEntry, protocol.EntryRequest{Key: l.Key})
	if err != nil {
		return
	}
	l.Entry, l.State = &state, cmp.Or(state.State, protocol.StateEnded)
}
