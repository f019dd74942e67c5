package mesh

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// Request asks one instance. Nobody there, or no connection, is UNAVAILABLE;
// no answer before ctx's deadline is TIMEOUT; an error answer is its
// *protocol.Error. A cancelled ctx is ctx's error.
func Request[R any](ctx context.Context, nc *nats.Conn, subject string, q any) (R, error) {
	var r R
	body, err := json.Marshal(q)
	if err != nil {
		return r, fmt.Errorf("encoding the request to %s: %w", subject, err)
	}
	msg, err := nc.RequestMsgWithContext(ctx, traced(ctx, subject, body))
	if err != nil {
		return r, requestError(subject, err)
	}
	err = decodeAnswer(msg, &r)
	return r, err
}

func requestError(subject string, err error) error {
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nobody{protocol.Errorf(protocol.CodeUnavailable, "nobody answers on %s: is the mesh running, and that service ready?", subject)}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		return protocol.Errorf(protocol.CodeTimeout, "no answer on %s in time", subject)
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("request on %s: %w", subject, err)
	default:
		return nobody{protocol.Errorf(protocol.CodeUnavailable, "the request on %s could not be sent: %v", subject, err)}
	}
}

// nobody is an error that no service has answered with.
type nobody struct{ error }

func (n nobody) Unwrap() error { return n.error }

// IsNobody says whether a request has found nobody, rather than been answered with an
// error.
func IsNobody(err error) bool {
	_, is := errors.AsType[nobody](err)
	return is
}

// decodeAnswer reads an answer's document into r, or its error.
func decodeAnswer(msg *nats.Msg, r any) error {
	if err := answerError(msg); err != nil {
		return err
	}
	if err := json.Unmarshal(msg.Data, r); err != nil {
		return protocol.Errorf(protocol.CodeInternal, "the answer from %s is not the expected JSON: %v", msg.Subject, err)
	}
	return nil
}

// answerError is the error an answer stands for, nil if it is none. The body
// has the code; the headers are all that a stock NATS micro service sends.
func answerError(msg *nats.Msg) error {
	if e := protocol.ParseErrorBody(msg.Data); e != nil {
		return e
	}
	if text := msg.Header.Get(protocol.HeaderServiceError); text != "" {
		return protocol.Errorf(protocol.CodeInternal, "%s (%s)", text, msg.Header.Get(protocol.HeaderServiceErrorCode))
	}
	return nil
}
