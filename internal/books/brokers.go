package books

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// AskLanes asks the owner of a queue's lane, or with "" those of all lanes, about
// what brokers hold. Where nobody has a broker nobody answers.
func AskLanes[R any](ctx context.Context, conn *nats.Conn, in *Lanes, queue, verb string, q any) ([]R, error) {
	if !in.Known() {
		return nil, nil
	}
	body, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	lanes := in.All()
	if queue != "" {
		lanes = []string{in.Of(queue)}
	}
	answers := make([]*R, len(lanes))
	group, ctx := errgroup.WithContext(ctx)
	for i, lane := range lanes {
		group.Go(func() (err error) {
			answers[i], err = askLane[R](ctx, conn, protocol.SubjectLane+lane+"."+verb, body)
			return err
		})
	}
	err = group.Wait()
	var all []R
	for _, r := range answers {
		if r != nil {
			all = append(all, *r)
		}
	}
	return all, err
}

// Unasked is UNAVAILABLE with what is said of brokers that cannot be asked; nil: there
// are none.
func Unasked(away []string) error {
	if len(away) == 0 {
		return nil
	}
	slices.Sort(away)
	return protocol.Errorf(protocol.CodeUnavailable, "not every broker can be asked: %s", strings.Join(slices.Compact(away), "; "))
}

func askLane[R any](ctx context.Context, nc *nats.Conn, subject string, body []byte) (*R, error) {
	m, err := nc.RequestWithContext(ctx, subject, body)
	if errors.Is(err, nats.ErrNoResponders) {
		return nil, nil //nolint:nilnil // nobody has a broker
	}
	if err != nil {
		return nil, protocol.Errorf(protocol.CodeUnavailable, "who has the queue on the broker does not answer: %v", err)
	}
	if e := protocol.ParseErrorBody(m.Data); e != nil {
		return nil, e
	}
	r := new(R)
	return r, json.Unmarshal(m.Data, r)
}
