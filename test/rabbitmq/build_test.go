package rabbitmq_test

import (
	"testing"

	"github.com/waybill-mq/waybill/test/harness"
)

// A build without the adapter does not start with it, and names what is missing.
func TestBuiltWithoutIt(t *testing.T) {
	t.Parallel()
	harness.BuiltWithout(t, "rabbitmq")
}
