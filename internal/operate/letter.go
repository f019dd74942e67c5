package operate

import (
	"context"
	"slices"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// Letters says which dead letters are asked for.
type Letters struct {
	Sources []Source // one after the other; none: all dead letters
	Offset  int
	Limit   int // 0: all
	// Payloads are read up to that many bytes; the letters after those come
	// without.
	Payloads int
}

// DeadLetters are dead letters, those of a source oldest first.
func DeadLetters(ctx context.Context, nc *nats.Conn, q Letters) (protocol.DeadPage, error) {
	all := protocol.DeadPage{Letters: []protocol.DeadLetter{}}
	for _, source := range orAll(q.Sources) {
		passed := all.Total
		if err := q.add(ctx, nc, source, passed, &all); err != nil {
			return all, err
		}
	}
	return all, nil
}

// orAll is the source without a name, of everything, for none.
func orAll(sources []Source) []Source {
	if len(sources) == 0 {
		return []Source{{}}
	}
	return sources
}

// add adds the letters of a source, page by page, to those of the sources before
// it, which have passed letters together. Of a source that has no part in what is
// asked for it takes the number alone.
func (q *Letters) add(ctx context.Context, nc *nats.Conn, source Source, passed int64, all *protocol.DeadPage) error {
	ask := protocol.DeadListRequest{Queue: source.Queue, Topic: source.Topic, Offset: max(q.Offset-int(passed), 0)}
	for {
		room := room(q.Limit, len(all.Letters))
		ask.Limit, ask.Payloads = max(room, 1), q.Payloads > 0
		page, err := mesh.Request[protocol.DeadPage](ctx, nc, protocol.SubjectDeadList, ask)
		if err != nil {
			return err
		}
		all.Total, all.Away = passed+page.Total, alsoAway(all.Away, page.Away)
		if room == 0 {
			return nil
		}
		all.Letters = append(all.Letters, page.Letters...)
		for i := range page.Letters {
			q.Payloads -= page.Letters[i].SizeBytes
		}
		ask.Offset += len(page.Letters)
		if len(page.Letters) == 0 || int64(ask.Offset) >= page.Total || len(page.Letters) == room && room < MaxPage {
			return nil
		}
	}
}

// alsoAway adds brokers that are away to others.
func alsoAway(all, more []string) []string {
	for _, one := range more {
		if !slices.Contains(all, one) {
			all = append(all, one)
		}
	}
	return all
}

// room is how many more are on a page when limit (0: no limit) are asked for and
// some are there.
func room(limit, there int) int {
	if limit == 0 {
		return MaxPage
	}
	return min(limit-there, MaxPage)
}

// ActOnLetters redrives or discards, as the subject says, what q and the sources
// name: the message of q, everywhere or in the sources, or all of the sources, or
// all.
func ActOnLetters(ctx context.Context, nc *nats.Conn, subject string, sources []Source, q protocol.DeadActRequest) (sum protocol.DeadActReply, err error) {
	for _, source := range orAll(sources) {
		q.Queue, q.Topic = source.Queue, source.Topic
		reply, err := mesh.Request[protocol.DeadActReply](ctx, nc, subject, q)
		if err != nil {
			return sum, err
		}
		sum.Count += reply.Count
		sum.Refused += reply.Refused
	}
	return sum, nil
}
