package router

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// unasked are brokers that cannot be asked, with what they say of it: what they have
// is not known, which is not nothing.
type unasked map[string]string

// absent are those that have not been reached since the router began.
func (s *Service) absent() unasked {
	u := unasked{}
	for _, b := range s.placed().absent {
		u[b.ID] = protocol.AsError(b.err).Message
	}
	return u
}

// took takes note of a broker that does not answer; false: that is not what the error
// says.
func (u unasked) took(f *farQueue, err error) bool {
	if away := f.Away(); away != nil {
		err = away
	}
	if protocol.CodeOf(err) != protocol.CodeUnavailable && !errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	u[f.id] = protocol.AsError(err).Message
	return true
}

// told are what they say, one after the other.
func (u unasked) told() []string { return slices.Sorted(maps.Values(u)) }
