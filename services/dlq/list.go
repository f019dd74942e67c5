package dlq

import (
	"bytes"
	"cmp"
	"context"
	"math"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/waybill-mq/waybill/internal/books"
	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

const (
	defaultLimit = 50
	maxLimit     = 1000
	// fewEnough letters to be passed over one by one; beyond it the place to
	// begin is searched for.
	fewEnough = 1000
)

// place is a letter and the ledger it is in.
type place struct {
	head
	ledger int
	far    *protocol.DeadLetter // of a broker instead
}

// list reads one page of letters over all ledgers, in order of their last
// failure and id.
func (s *Service) list(ctx context.Context, q protocol.DeadListRequest) (protocol.DeadPage, error) {
	if q.Queue != "" && q.Topic != "" {
		return protocol.DeadPage{}, protocol.Errorf(protocol.CodeInvalidArgs, "a queue and a topic: list the dead letters of one of them, or of all")
	}
	if q.Offset < 0 || q.Limit < 0 || q.Limit > maxLimit {
		return protocol.DeadPage{}, protocol.Errorf(protocol.CodeInvalidArgs,
			"offset %d, limit %d: an offset is at least 0, a limit at most %d", q.Offset, q.Limit, maxLimit)
	}
	q.Limit = cmp.Or(q.Limit, defaultLimit)
	far, without := s.readFar(ctx, q, 0)
	switch {
	case without != nil && protocol.CodeOf(without) != protocol.CodeUnsupported:
		return protocol.DeadPage{}, without
	case far.total > 0:
		return s.listBoth(ctx, q)
	}
	places, total, err := s.places(ctx, q)
	if err == nil && total == 0 {
		err = without // there were none either before its broker could have none
	}
	if err != nil {
		return protocol.DeadPage{}, err
	}
	letters, err := s.letters(ctx, places, q.Payloads)
	return protocol.DeadPage{Letters: letters, Total: total, Away: far.away}, err
}

// places are the letters of a page.
func (s *Service) places(ctx context.Context, q protocol.DeadListRequest) ([]place, int64, error) {
	from, pass := int64(math.MinInt64), q.Offset
	if q.Offset > fewEnough {
		var err error
		if from, pass, err = s.search(ctx, q); err != nil {
			return nil, 0, err
		}
	}
	replies, err := books.PutToAll(ctx, s.host, askHeads, headsRequest{Queue: q.Queue, Topic: q.Topic, From: from, Limit: pass + q.Limit})
	if err != nil {
		return nil, 0, err
	}
	var places []place
	total, before := 0, 0
	for i, reply := range replies {
		total += reply.Total
		before += reply.Before
		for _, h := range reply.Heads {
			places = append(places, place{head: h, ledger: i})
		}
	}
	slices.SortFunc(places, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.FailedAt, b.FailedAt), bytes.Compare(a.ID[:], b.ID[:]), cmp.Compare(a.ledger, b.ledger))
	})
	begin := min(max(q.Offset-before, 0), len(places))
	return places[begin:min(begin+q.Limit, len(places))], int64(total), nil
}

// search finds the latest time before which at most offset letters failed, and
// how many are to be passed over from there on: a question of a few numbers to
// each ledger, instead of a row as long as the offset.
func (s *Service) search(ctx context.Context, q protocol.DeadListRequest) (from int64, pass int, err error) {
	all, err := books.PutToAll(ctx, s.host, askHeads, headsRequest{Queue: q.Queue, Topic: q.Topic, From: math.MinInt64})
	if err != nil {
		return 0, 0, err
	}
	low, high := bounds(all)
	before := 0
	for low < high {
		middle := low + (high-low+1)/2
		replies, err := books.PutToAll(ctx, s.host, askHeads, headsRequest{Queue: q.Queue, Topic: q.Topic, From: middle})
		if err != nil {
			return 0, 0, err
		}
		n := 0
		for _, reply := range replies {
			n += reply.Before
		}
		if n > q.Offset {
			high = middle - 1
			continue
		}
		low, before = middle, n
	}
	return low, q.Offset - before, nil
}

// bounds are the first and the last failure there is.
func bounds(replies []headsReply) (first, last int64) {
	first, last = math.MaxInt64, math.MinInt64
	for _, reply := range replies {
		if reply.Total > 0 {
			first, last = min(first, reply.First), max(last, reply.Last)
		}
	}
	if first > last {
		return 0, 0
	}
	return first, last
}

// letters reads what is at places, in their order: fewer when the page is full,
// and without those that have gone meanwhile.
func (s *Service) letters(ctx context.Context, places []place, payloads bool) ([]protocol.DeadLetter, error) {
	keys := make([][]ledger.Key, s.host.Total())
	for _, p := range places {
		if p.far == nil {
			keys[p.ledger] = append(keys[p.ledger], p.Key)
		}
	}
	read := make([]readReply, len(keys))
	group, ctx := errgroup.WithContext(ctx)
	for i := range keys {
		if len(keys[i]) == 0 {
			continue
		}
		group.Go(func() (err error) {
			read[i], err = books.Put(ctx, s.host, s.host.Name(i), askRead, readRequest{Keys: keys[i], Payloads: payloads})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return merge(places, read), nil
}

// merge puts what the ledgers read into the order of places, until one of them
// has no more or the page is full.
func merge(places []place, read []readReply) []protocol.DeadLetter {
	page := []protocol.DeadLetter{}
	room := pageBytes
	for _, p := range places {
		letter := p.far
		if letter == nil {
			row := &read[p.ledger]
			if len(row.Letters) == 0 {
				return page
			}
			letter = row.Letters[0]
			row.Letters = row.Letters[1:]
		}
		if letter == nil {
			continue
		}
		if room -= sizeOf(letter); room < 0 && len(page) > 0 {
			return page
		}
		page = append(page, *letter)
	}
	return page
}
