package dlq

import (
	"cmp"
	"context"
	"slices"

	"github.com/waybill-mq/waybill/internal/books"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// Dead letters of queues that are on a broker stay there. The owners of the
// queues' lanes read them and act on them, and are asked beside the ledgers.

// maxOffset bounds how far into a list that has letters of brokers one may look:
// they are read from the first on.
const maxOffset = 10_000

// farLetters are those that brokers hold, oldest failure first. Of the first
// reliable of them nothing is missing.
type farLetters struct {
	letters  []farLetter
	reliable int
	total    int64
	away     []string
}

// farLetter is one, with what it is in order by, and the answer it is of.
type farLetter struct {
	*protocol.DeadLetter
	at     int64
	answer int
}

// readFar reads the oldest letters on brokers, limit at most.
func (s *Service) readFar(ctx context.Context, q protocol.DeadListRequest, limit int) (farLetters, error) {
	answers, err := s.askFar(ctx, q, limit)
	if err != nil {
		return farLetters{}, err
	}
	var far farLetters
	var cut farLetter // the first after which something may be missing
	for i := range answers {
		a := &answers[i]
		far.total += a.Total
		far.away = append(far.away, a.Away...)
		for k := range a.Letters {
			far.letters = append(far.letters, farLetter{&a.Letters[k], orderOf(a, k), i})
		}
		if n := len(a.Letters); n > 0 && isCut(a, limit) && (cut.DeadLetter == nil || orderOf(a, n-1) < cut.at) {
			cut = far.letters[len(far.letters)-1]
		}
	}
	far.away = distinct(far.away)
	slices.SortStableFunc(far.letters, func(a, b farLetter) int { return cmp.Compare(a.at, b.at) })
	far.reliable = len(far.letters)
	if cut.DeadLetter != nil {
		far.reliable = 1 + slices.Index(far.letters, cut)
	}
	return far, nil
}

// orderOf is what a letter of an answer is in order by.
func orderOf(a *protocol.BrokerLetters, i int) int64 {
	if i < len(a.Order) {
		return a.Order[i]
	}
	return a.Letters[i].LastFailure.UnixNano() // an earlier version does not say
}

// askFar asks the owners of lanes, and for what did not fit into an answer again.
func (s *Service) askFar(ctx context.Context, q protocol.DeadListRequest, limit int) ([]protocol.BrokerLetters, error) {
	request := protocol.BrokerLettersRequest{Queue: q.Queue, Topic: q.Topic, Limit: limit, Payloads: q.Payloads}
	ask := func() ([]protocol.BrokerLetters, error) {
		return books.AskLanes[protocol.BrokerLetters](ctx, s.host.Conn, &s.host.Lanes, q.Queue, protocol.VerbLetters, request)
	}
	answers, err := ask()
	for grew := true; grew && err == nil; {
		grew, request.Skip = false, fewest(answers, limit)
		if request.Skip == 0 {
			break
		}
		var more []protocol.BrokerLetters
		if more, err = ask(); len(more) != len(answers) {
			break // a lane has another owner
		}
		for i := range answers {
			grew = extend(&answers[i], &more[i], request.Skip, limit) || grew
		}
	}
	return answers, err
}

// isCut says whether an answer has fewer letters than there are, and were asked for.
func isCut(a *protocol.BrokerLetters, limit int) bool {
	return len(a.Letters) < limit && int64(len(a.Letters)) < a.Total
}

// fewest is the number of letters in the shortest answer that is cut; 0: none is.
func fewest(answers []protocol.BrokerLetters, limit int) (n int) {
	for i := range answers {
		if a := &answers[i]; isCut(a, limit) && len(a.Letters) > 0 && (n == 0 || len(a.Letters) < n) {
			n = len(a.Letters)
		}
	}
	return n
}

// extend adds to an answer what another has from the skipped on. One of an earlier
// version, which skips none, begins with the same.
func extend(a, more *protocol.BrokerLetters, skip, limit int) bool {
	known := len(a.Letters) - skip
	if !isCut(a, limit) || known < 0 || len(more.Letters) <= known || len(more.Order) != len(more.Letters) || more.Letters[0].MessageID == a.Letters[0].MessageID {
		return false
	}
	a.Letters, a.Order = append(a.Letters, more.Letters[known:]...), append(a.Order, more.Order[known:]...)
	return true
}

// listBoth is list where brokers hold letters too.
func (s *Service) listBoth(ctx context.Context, q protocol.DeadListRequest) (protocol.DeadPage, error) {
	end := q.Offset + q.Limit
	if end > maxOffset {
		return protocol.DeadPage{}, protocol.Errorf(protocol.CodeLimitExceeded, "a list with dead letters of a broker has at most %d entries: redrive or discard some, or list one queue", maxOffset)
	}
	far, err := s.readFar(ctx, q, end)
	if err != nil {
		return protocol.DeadPage{}, err
	}
	first := q
	first.Offset, first.Limit = 0, end
	places, total, err := s.places(ctx, first)
	if err != nil {
		return protocol.DeadPage{}, err
	}
	places = weave(places, far)
	places = places[min(q.Offset, len(places)):min(end, len(places))]
	letters, err := s.letters(ctx, places, q.Payloads)
	return protocol.DeadPage{Letters: letters, Total: total + far.total, Away: far.away}, err
}

// weave puts the letters of brokers between those of the ledgers, in the order they
// have.
func weave(places []place, far farLetters) []place {
	for _, l := range far.letters[:far.reliable] {
		places = append(places, place{head: head{FailedAt: l.at}, far: l.DeadLetter})
	}
	slices.SortStableFunc(places, func(a, b place) int { return cmp.Compare(a.FailedAt, b.FailedAt) })
	if far.reliable == len(far.letters) {
		return places
	}
	last := far.letters[far.reliable-1]
	return places[:1+slices.IndexFunc(places, func(p place) bool { return p.far == last.DeadLetter })]
}

// showFar reads the letters of a message that brokers hold. UNAVAILABLE: one of them
// cannot be asked, and the others have none.
func (s *Service) showFar(ctx context.Context, id string) ([]protocol.DeadLetter, error) {
	var all []protocol.DeadLetter
	for _, known := range []bool{true, false} {
		answers, err := books.AskLanes[protocol.BrokerLetters](ctx, s.host.Conn, &s.host.Lanes, "", protocol.VerbLetters, protocol.BrokerLettersRequest{MessageID: id, Known: known})
		var away []string
		for _, a := range answers {
			all, away = append(all, a.Letters...), append(away, a.Away...)
		}
		if err == nil && len(all) == 0 {
			err = books.Unasked(away)
		}
		if err != nil || len(all) > 0 {
			return all, err
		}
	}
	return nil, nil
}

// refusalOf is the error of a queue or a topic whose broker cannot have dead letters, if
// one is named.
func (s *Service) refusalOf(ctx context.Context, queue, topic string) error {
	if queue == "" && topic == "" {
		return nil
	}
	_, err := s.askFar(ctx, protocol.DeadListRequest{Queue: queue, Topic: topic}, 0)
	if protocol.CodeOf(err) != protocol.CodeUnsupported {
		return nil
	}
	return err
}

// distinct are texts without those that are there before.
func distinct(all []string) []string {
	slices.Sort(all)
	return slices.Compact(all)
}

// actFar redrives or discards what brokers hold. UNAVAILABLE: what one of them holds
// was not, since it cannot be asked.
func (s *Service) actFar(ctx context.Context, what string, q protocol.DeadActRequest) (sum protocol.DeadActReply, err error) {
	request := protocol.BrokerActRequest{Action: what, MessageID: q.MessageID, Queue: q.Queue, Topic: q.Topic, By: q.By}
	for _, request.Known = range []bool{q.MessageID != "", false} {
		answers, err := books.AskLanes[protocol.DeadActReply](ctx, s.host.Conn, &s.host.Lanes, q.Queue, protocol.VerbLettersAct, request)
		var away []string
		for _, a := range answers {
			sum.Count += a.Count
			sum.Refused += a.Refused
			away = append(away, a.Away...)
		}
		if err == nil && (q.MessageID == "" || sum.Count+sum.Refused == 0) {
			err = books.Unasked(away)
		}
		if err != nil || sum.Count+sum.Refused > 0 || !request.Known {
			return sum, err
		}
	}
	return sum, nil
}
