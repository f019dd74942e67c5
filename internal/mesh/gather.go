package mesh

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// defaultStall is long beside the spread of answers in one site.
const defaultStall = 250 * time.Millisecond

// Gather asks every instance and collects answers until none has come for
// stall (default 250 ms) after the last one, or ctx ends. Nobody there is no
// answers and no error; answers that are errors, and ctx ending before the
// first one (TIMEOUT), are joined in the error beside what did arrive.
func Gather[R any](ctx context.Context, nc *nats.Conn, subject string, q any, stall time.Duration) ([]R, error) {
	return GatherUntil(ctx, nc, subject, q, stall, func([]R) bool { return false })
}

// GatherUntil is Gather that is done as soon as the answers are enough.
func GatherUntil[R any](ctx context.Context, nc *nats.Conn, subject string, q any, stall time.Duration, enough func([]R) bool) ([]R, error) {
	if stall <= 0 {
		stall = defaultStall
	}
	return GatherWhile(ctx, nc, subject, q, func(answers []R) time.Duration {
		if enough(answers) {
			return 0
		}
		return stall
	})
}

// GatherWhile is Gather that is told after each answer how long to wait for another; 0: no
// longer.
func GatherWhile[R any](ctx context.Context, nc *nats.Conn, subject string, q any, wait func([]R) time.Duration) ([]R, error) {
	body, err := json.Marshal(q)
	if err != nil {
		return nil, fmt.Errorf("encoding the request to %s: %w", subject, err)
	}
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return nil, requestError(subject, err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // fails only with the connection gone, and then there is nothing left to undo
	if err := nc.PublishRequest(subject, inbox, body); err != nil {
		return nil, requestError(subject, err)
	}
	return collect(ctx, sub, subject, wait)
}

func collect[R any](ctx context.Context, sub *nats.Subscription, subject string, wait func([]R) time.Duration) ([]R, error) {
	var (
		answers []R
		errs    []error
	)
	stall := defaultStall
	for first := true; ; first = false {
		msg, err := next(ctx, sub, stall, first)
		switch {
		case errors.Is(err, nats.ErrNoResponders), err == nil && isNobody(msg):
			return answers, errors.Join(errs...)
		case err == nil:
			var r R
			if err := decodeAnswer(msg, &r); err != nil {
				errs = append(errs, err)
				continue
			}
			answers = append(answers, r)
			if stall = wait(answers); stall <= 0 {
				return answers, errors.Join(errs...)
			}
		case first:
			return nil, requestError(subject, err)
		default:
			return answers, errors.Join(errs...)
		}
	}
}

// next waits for an answer: the first as long as ctx allows, others for stall.
func next(ctx context.Context, sub *nats.Subscription, stall time.Duration, first bool) (*nats.Msg, error) {
	if !first {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, stall)
		defer cancel()
	}
	return sub.NextMsgWithContext(ctx)
}

// isNobody says whether the server itself answers that nobody listens.
func isNobody(msg *nats.Msg) bool {
	return len(msg.Data) == 0 && msg.Header.Get(protocol.HeaderStatus) != ""
}
