// Package trace_test reads the traces that a mesh of separate processes exports,
// from a collector of the test's own that speaks OTLP.
package trace_test

import (
	"testing"

	"github.com/waybill-mq/waybill/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
