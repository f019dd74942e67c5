package sdk_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// A mesh whose routers know no named queues is told apart from one without
// routers, and what to do instead is said.
func TestEarlierRoutersAreToldApart(t *testing.T) {
	s := startStandIn(t)
	c := s.connect()
	soon, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := c.Enqueue(soon, "mail", "send", []byte("{}")); protocol.CodeOf(err) != protocol.CodeUnavailable {
		t.Errorf("without routers: %v", err)
	}
	s.on(protocol.SubjectQueues, func(m *nats.Msg) { s.respond(m, protocol.QueuesPage{}) })
	s.flush()
	if _, err := c.Enqueue(t.Context(), "mail", "send", []byte("{}")); protocol.CodeOf(err) != protocol.CodeUnsupported || !strings.Contains(err.Error(), "publish to a route or a topic") {
		t.Errorf("with earlier ones: %v", err)
	}
}
