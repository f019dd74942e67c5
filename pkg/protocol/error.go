package protocol

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Code is what an error is known by on the wire; docs/errors.md has the cure
// for each.
type Code string

// The codes.
const (
	CodeInvalidArgs        Code = "INVALID_ARGS"
	CodeInvalidName        Code = "INVALID_NAME"
	CodeInvalidFilter      Code = "INVALID_FILTER"
	CodeReservedHeader     Code = "RESERVED_HEADER"
	CodePayloadTooLarge    Code = "PAYLOAD_TOO_LARGE"
	CodeQuotaExceeded      Code = "QUOTA_EXCEEDED"
	CodeLimitExceeded      Code = "LIMIT_EXCEEDED"
	CodeExecutionClosed    Code = "EXECUTION_CLOSED"
	CodeForbidden          Code = "FORBIDDEN"
	CodeNotFound           Code = "NOT_FOUND"
	CodeConflict           Code = "CONFLICT"
	CodeObserverIDConflict Code = "OBSERVER_ID_CONFLICT"
	CodeObserverNotActive  Code = "OBSERVER_NOT_ACTIVE"
	CodeFunctionNotFound   Code = "FUNCTION_NOT_FOUND"
	CodeFunctionFailed     Code = "FUNCTION_FAILED"
	CodeTimeout            Code = "TIMEOUT"
	CodeUnavailable        Code = "UNAVAILABLE"
	CodeUnsupported        Code = "UNSUPPORTED"
	CodeInternal           Code = "INTERNAL"
)

// status is the HTTP-like number of a code, used by JetStream's error object,
// by NATS micro and by the gateway.
var status = map[Code]int{
	CodeInvalidArgs: 400, CodeInvalidName: 400, CodeInvalidFilter: 400,
	CodeReservedHeader: 400, CodePayloadTooLarge: 413, CodeQuotaExceeded: 429,
	CodeLimitExceeded: 429, CodeExecutionClosed: 410, CodeForbidden: 403, CodeNotFound: 404,
	CodeConflict: 409, CodeObserverIDConflict: 409, CodeObserverNotActive: 409,
	CodeFunctionNotFound: 404, CodeFunctionFailed: 502, CodeTimeout: 504,
	CodeUnavailable: 503, CodeUnsupported: 501, CodeInternal: 500,
}

// Codes lists every code in the order of the alphabet.
func Codes() []Code { return slices.Sorted(maps.Keys(status)) }

// Status is the HTTP-like number of the code; 500 for one that is not known.
func (c Code) Status() int {
	if s, ok := status[c]; ok {
		return s
	}
	return 500
}

// Error is a coded error. Its JSON form is {"code","message"}.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// Is makes errors.Is match any Error of the same code.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code && (t.Message == "" || t.Message == e.Message)
}

// Errorf makes a coded error.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// AsError finds the coded error in err's chain; a deadline that passed becomes
// TIMEOUT and any other error INTERNAL, with its text. It is nil for nil.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &Error{Code: CodeTimeout, Message: err.Error()}
	}
	return &Error{Code: CodeInternal, Message: err.Error()}
}

// CodeOf is the code of the coded error in err's chain, "" if there is none.
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

// errorBody is how an error answers a request: our own fields, and JetStream's
// error object so that a JetStream client library's publish reports it.
type errorBody struct {
	Error   *jsError `json:"error"`
	Code    Code     `json:"code"`
	Message string   `json:"message"`
}

type jsError struct {
	Code        int    `json:"code"`
	ErrCode     int    `json:"err_code,omitempty"`
	Description string `json:"description"`
}

// MarshalErrorBody is the body an endpoint answers an error with.
func MarshalErrorBody(e *Error) []byte {
	b, err := json.Marshal(errorBody{
		Error: &jsError{Code: e.Code.Status(), Description: e.Error()},
		Code:  e.Code, Message: e.Message,
	})
	if err != nil {
		return []byte(`{"code":"INTERNAL","message":"an error could not be encoded"}`)
	}
	return b
}

// ParseErrorBody reads the error from an answer's body; nil when the body is
// not an error.
func ParseErrorBody(body []byte) *Error {
	var b errorBody
	if isJSON := json.Unmarshal(body, &b) == nil; isJSON && b.Error != nil && b.Code != "" {
		return &Error{Code: b.Code, Message: b.Message}
	}
	return nil
}
