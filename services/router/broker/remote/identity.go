package remote

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// Identity is which broker is meant, for people.
type Identity struct {
	ID    string // how the mesh's notes call it
	Shown string // how people call it
	At    string // where it is, without its password
}

// Name is how the mesh's notes call it.
func (i Identity) Name() string { return i.ID }

// Faultf is an error with that code which says something of the broker.
func (i Identity) Faultf(code protocol.Code, format string, args ...any) error {
	return protocol.Errorf(code, "the broker %s at %s %s", i.Shown, i.At, fmt.Sprintf(format, args...))
}

// Unreachable is why it could not be opened, Missing why nothing can be published now.
func (i Identity) Unreachable(err error) error {
	return i.Faultf(protocol.CodeUnavailable, "cannot be reached: %v", err)
}

// Refuses is why it could not be opened though it is there: it does not let the mesh in.
func (i Identity) Refuses(err error) error {
	return i.Faultf(protocol.CodeForbidden, "does not let the mesh in (%v): give its address in the configuration a user and password that it knows, and that may do what the guide says", err)
}

// Missing is Unreachable once it was open.
func (i Identity) Missing(err error) error {
	return i.Faultf(protocol.CodeUnavailable, "cannot be reached (%v): try again when it is back", err)
}

// Failed is an error of the broker's with a code; nil if there is none.
func (i Identity) Failed(what string, err error) error {
	if _, coded := errors.AsType[*protocol.Error](err); err == nil || coded {
		return err
	}
	return protocol.Errorf(protocol.CodeUnavailable, "the broker %s at %s: %s: %v", i.Shown, i.At, what, err)
}

// Version is the first two numbers of a version, 0 for what is none.
func Version(text string) (major, minor int) {
	parts := strings.SplitN(text, ".", 3)
	if len(parts) < 2 {
		return 0, 0
	}
	major, err := strconv.Atoi(parts[0])
	if err != nil {
		return 0, 0
	}
	minor, err = strconv.Atoi(parts[1])
	if err != nil {
		return 0, 0
	}
	return major, minor
}

// Within returns when f has, or when ctx ends, and leaves f to itself then.
func Within(ctx context.Context, f func()) error {
	done := make(chan struct{})
	go func() {
		f()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
