package gateway

import (
	"encoding/json"
	"net/http"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// Problem is how HTTP answers an error (RFC 9457): the mesh's code and text,
// and what is wrong where in a request.
type Problem struct { //nolint:errname // what RFC 9457 calls it
	Title  string              `json:"title" doc:"The status in words."`
	Status int                 `json:"status" doc:"The HTTP status."`
	Code   protocol.Code       `json:"code" doc:"What the error is known by; docs/errors.md has the cure for each."`
	Detail string              `json:"detail" doc:"What is wrong, and what to do."`
	Errors []*huma.ErrorDetail `json:"errors,omitempty" doc:"What is wrong where in the request."`
}

// Error is the detail.
func (p *Problem) Error() string { return p.Detail }

// GetStatus is the HTTP status.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType is that of problems, for any JSON.
func (p *Problem) ContentType(string) string { return problemJSON }

const problemJSON = "application/problem+json"

// problemOf is the problem that an error is answered with; nil for nil.
func problemOf(err error) *Problem {
	e := protocol.AsError(err)
	if e == nil {
		return nil
	}
	status := e.Code.Status()
	return &Problem{Title: http.StatusText(status), Status: status, Code: e.Code, Detail: e.Message}
}

// newProblem is the problem of a request that never reached its operation: huma
// says a status, which has a code.
func newProblem(status int, message string, errs ...error) huma.StatusError {
	code := codeOf(status)
	p := problemOf(protocol.Errorf(code, "%s", message))
	for _, err := range errs {
		switch e := err.(type) { //nolint:errorlint // huma makes them itself, unwrapped
		case nil:
		case *Problem:
			return e
		case huma.ErrorDetailer:
			p.Errors = append(p.Errors, e.ErrorDetail())
		default:
			p.Errors = append(p.Errors, &huma.ErrorDetail{Message: err.Error()})
		}
	}
	return p
}

// codeOf is the code of what huma refuses with a status; the code's own status
// is answered.
func codeOf(status int) protocol.Code {
	switch {
	case status == http.StatusRequestEntityTooLarge:
		return protocol.CodePayloadTooLarge
	case status == http.StatusRequestTimeout:
		return protocol.CodeTimeout
	case status == http.StatusNotFound:
		return protocol.CodeNotFound
	case status >= http.StatusInternalServerError:
		return protocol.CodeInternal
	default:
		return protocol.CodeInvalidArgs
	}
}

// replaceErrors makes huma answer problems; a variable is the one way it has.
var replaceErrors = sync.OnceFunc(func() { huma.NewError = newProblem })

// answerProblem answers with a problem outside of huma.
func answerProblem(w http.ResponseWriter, p *Problem) {
	body, err := json.Marshal(p)
	if err != nil {
		answerText(w, http.StatusInternalServerError, "the answer could not be encoded\n")
		return
	}
	w.Header().Set("Content-Type", problemJSON)
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(body, '\n')) // the asker has gone; there is nobody to tell
}

// answerError answers with a problem of err.
func answerError(w http.ResponseWriter, err error) { answerProblem(w, problemOf(err)) }
