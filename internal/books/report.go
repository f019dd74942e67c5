package books

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

const defaultQueues = 1000

// each asks every open ledger. One that closes meanwhile is left out: its
// next owner answers for it.
func each[R any, O Owner[O]](ctx context.Context, b *Books[O], f func(owner O) R) ([]R, error) {
	var answers []R
	for _, book := range b.All() {
		r, err := Ask(ctx, book, f)
		switch {
		case err == nil:
			answers = append(answers, r)
		case ctx.Err() != nil:
			return nil, err
		}
	}
	return answers, nil
}

// Queues lists the queues of the open ledgers that hold something or have
// counted something; fill puts the number of messages that lie there, and are
// not on their way elsewhere, into the field the service has for them.
func Queues[O Owner[O]](ctx context.Context, b *Books[O], q protocol.QueuesRequest, fill func(info *protocol.QueueInfo, idle int64)) (protocol.QueuesPage, error) {
	var page protocol.QueuesPage
	found, err := each(ctx, b, func(owner O) []protocol.QueueInfo { return queuesOf(owner, q, fill) })
	if err != nil {
		return page, err
	}
	// Sorting is left to this goroutine, since the ledgers have messages to send.
	page.Ledgers, page.Queues = len(found), slices.Concat(found...)
	slices.SortFunc(page.Queues, func(a, b protocol.QueueInfo) int { return cmp.Compare(a.Queue, b.Queue) })
	page.Queues = fold(page.Queues)
	limit := q.Limit
	if limit <= 0 {
		limit = defaultQueues
	}
	if len(page.Queues) > limit {
		page.Queues, page.More = page.Queues[:limit:limit], true
	}
	for i := range page.Queues {
		info := &page.Queues[i]
		info.Execution, info.Route, _ = scope.ParseScoped(info.Queue)
		info.Topic = scope.SubscribedTopic(info.Queue)
	}
	return page, nil
}

// fold adds up what several ledgers have of a queue.
func fold(infos []protocol.QueueInfo) []protocol.QueueInfo {
	folded := infos[:0]
	for _, info := range infos {
		last := len(folded) - 1
		if last < 0 || folded[last].Queue != info.Queue {
			folded = append(folded, info)
			continue
		}
		sum := &folded[last]
		sum.Waiting += info.Waiting
		sum.Dead += info.Dead
		sum.Moving += info.Moving
		sum.Bytes += info.Bytes
		for name, n := range info.Counters {
			if sum.Counters == nil {
				sum.Counters = map[string]uint64{}
			}
			sum.Counters[name] += n
		}
	}
	return folded
}

func queuesOf[O Owner[O]](owner O, req protocol.QueuesRequest, fill func(info *protocol.QueueInfo, idle int64)) []protocol.QueueInfo {
	if req.Queue != "" {
		q := owner.Ledger().Queue(req.Queue)
		if q == nil {
			return nil
		}
		return appendInfo(nil, owner, q, fill)
	}
	var infos []protocol.QueueInfo
	for q := range owner.Ledger().Queues() {
		if Wanted(q.Name, &req) {
			infos = appendInfo(infos, owner, q, fill)
		}
	}
	return infos
}

func appendInfo[O Owner[O]](infos []protocol.QueueInfo, owner O, q *ledger.Queue, fill func(info *protocol.QueueInfo, idle int64)) []protocol.QueueInfo {
	info := protocol.QueueInfo{Queue: q.Name, Moving: owner.Moving(q), Bytes: q.Bytes, Counters: ledger.Shown(&q.Counters)}
	if q.Live == 0 && info.Counters == nil {
		return infos
	}
	fill(&info, q.Live-info.Moving)
	return append(infos, info)
}

// Wanted says whether a request for several queues is for this one too.
func Wanted(queue string, q *protocol.QueuesRequest) bool {
	if queue <= q.After || !InExecution(queue, q.Execution) {
		return false
	}
	if q.Topic == "" && !q.Subscribers {
		return true
	}
	topic := scope.SubscribedTopic(queue)
	return topic != "" && (q.Topic == "" || q.Topic == topic)
}

// InExecution says whether a queue belongs to an execution; every queue does to
// the one named "".
func InExecution(queue, execution string) bool {
	return execution == "" || strings.HasPrefix(queue, scope.QueuePrefix+execution+"/")
}

// Totals are the sums over the open ledgers.
type Totals struct {
	Messages, Moving, Bytes int64
	Queues, Ledgers         int
	Counts                  Counts
}

// Sum adds up the open ledgers.
func Sum[O Owner[O]](ctx context.Context, b *Books[O]) (Totals, error) {
	parts, err := each(ctx, b, totalsOf[O])
	sum := Totals{Ledgers: len(parts)}
	for _, part := range parts {
		sum.Messages += part.Messages
		sum.Moving += part.Moving
		sum.Bytes += part.Bytes
		sum.Queues += part.Queues
		sum.Counts.Add(&part.Counts)
	}
	return sum, err
}

func totalsOf[O Owner[O]](owner O) Totals {
	t := Totals{Counts: Counted(owner.Ledger())}
	t.Messages, t.Bytes = owner.Ledger().Live()
	for q := range owner.Ledger().Queues() {
		t.Moving += owner.Moving(q)
		if q.Live > 0 {
			t.Queues++
		}
	}
	return t
}

// ReportLoad publishes the load of the open ledgers every LoadInterval until
// ctx ends. load has the names filled in. A report is a hint: one that cannot be
// sent is left out.
func ReportLoad[O Owner[O]](ctx context.Context, b *Books[O], nc *nats.Conn, load protocol.Load, log *slog.Logger) {
	tick := time.NewTicker(protocol.LoadInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if err := report(ctx, b, nc, load); err != nil {
			log.Debug("the load could not be reported", "error", err)
		}
	}
}

func report[O Owner[O]](ctx context.Context, b *Books[O], nc *nats.Conn, load protocol.Load) error {
	parts, err := each(ctx, b, func(owner O) [2]int64 {
		messages, bytes := owner.Ledger().Live()
		return [2]int64{messages, bytes}
	})
	if err != nil {
		return err
	}
	for _, part := range parts {
		load.Messages += part[0]
		load.Bytes += part[1]
	}
	body, err := json.Marshal(load)
	if err != nil {
		return err
	}
	return nc.Publish(protocol.SubjectLoad, body)
}
