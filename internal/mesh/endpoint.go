package mesh

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// QueueGroup is the queue group that the instances of a service share.
const QueueGroup = "q"

// maxConcurrent requests of one endpoint run at once; what comes beyond waits
// in the connection's buffer.
const maxConcurrent = 256

// Endpoint answers a JSON request on subject, shared by the service's
// instances. A handler's coded error is answered as its code; any other, and
// a panic, as INTERNAL. A request that is not JSON is INVALID_ARGS, fields
// that Q does not have are ignored, and an empty body is a zero Q. Each request
// runs in its own goroutine, at most 256 of them, that Stop waits for; ctx
// ends when Stop's does.
func Endpoint[Q, R any](s *Service, name, subject string, h func(ctx context.Context, q Q) (R, error)) error {
	_, err := endpoint(s, name, subject, QueueGroup, h)
	return err
}

// EveryInstance is Endpoint without sharing: each instance answers.
func EveryInstance[Q, R any](s *Service, name, subject string, h func(ctx context.Context, q Q) (R, error)) error {
	_, err := endpoint(s, name, subject, "", h)
	return err
}

// Serve is EveryInstance for what this instance alone has for a while, such as
// an open ledger: the endpoint ends by its Drain, at the latest with the
// service.
func Serve[Q, R any](s *Service, name, subject string, h func(ctx context.Context, q Q) (R, error)) (*Subscription, error) {
	return endpoint(s, name, subject, "", h)
}

func endpoint[Q, R any](s *Service, name, subject, queue string, h func(ctx context.Context, q Q) (R, error)) (*Subscription, error) {
	e := &Subscription{name: name, subject: subject, queue: queue}
	free := make(chan struct{}, maxConcurrent)
	err := s.subscribe(e, &s.subs, func(m *nats.Msg) {
		free <- struct{}{}
		e.running.Add(1)
		s.requests.Go(func() {
			defer e.running.Done()
			defer func() { <-free }()
			start := time.Now()
			answer, err := handle(inTrace(s.ctx, m), m.Data, h)
			e.counts.requests.Add(1)
			e.counts.busy.Add(int64(time.Since(start)))
			if err != nil {
				e.counts.failed(err)
				s.respondError(m, err)
				return
			}
			s.respondJSON(m, answer)
		})
	})
	return e, err
}

func handle[Q, R any](ctx context.Context, body []byte, h func(ctx context.Context, q Q) (R, error)) (r R, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the handler panicked: %v\n%s", p, debug.Stack())
		}
	}()
	var q Q
	if len(body) > 0 {
		if err := json.Unmarshal(body, &q); err != nil {
			return r, protocol.Errorf(protocol.CodeInvalidArgs, "the request is not the expected JSON: %v", err)
		}
	}
	return h(ctx, q)
}

// respondError answers m with err. What is not a coded error is a fault of the
// service: its text is for the log, and the asker learns only that.
func (s *Service) respondError(m *nats.Msg, err error) {
	if protocol.CodeOf(err) == "" {
		s.o.Logger.Error("a request failed", "subject", m.Subject, "error", err)
	}
	if err := m.RespondMsg(ErrorAnswer(err)); err != nil {
		s.o.Logger.Debug("an answer could not be sent", "subject", m.Subject, "error", err)
	}
}

// ErrorAnswer is the answer that stands for err: the body of package protocol
// and the headers of NATS micro. An error without a code is INTERNAL, and its
// text stays here.
func ErrorAnswer(err error) *nats.Msg {
	e := protocol.AsError(err)
	if protocol.CodeOf(err) == "" {
		e = protocol.Errorf(protocol.CodeInternal, "the service failed on this request; its log says why")
	}
	oneLine := strings.NewReplacer("\r", " ", "\n", " ").Replace(e.Error())
	return &nats.Msg{
		Header: nats.Header{
			protocol.HeaderServiceError:     {oneLine},
			protocol.HeaderServiceErrorCode: {strconv.Itoa(e.Code.Status())},
		},
		Data: protocol.MarshalErrorBody(e),
	}
}
