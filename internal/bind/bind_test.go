package bind_test

import (
	"strings"
	"testing"

	"github.com/waybill-mq/waybill/internal/bind"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

func TestOnlyLoopbackIsAllowed(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "127.8.8.8", "::1", "localhost"} {
		if err := bind.Check("HTTP", host); err != nil {
			t.Errorf("%s is refused: %v", host, err)
		}
	}
	for _, host := range []string{"", "0.0.0.0", "::", "10.0.0.1", "example.com", "localhost.example.com", "127.0.0.1.example.com"} {
		err := bind.Check("HTTP", host)
		if protocol.CodeOf(err) != protocol.CodeForbidden || !strings.Contains(err.Error(), "HTTP") {
			t.Errorf("%q: got %v, want FORBIDDEN naming what listens", host, err)
		}
	}
}
