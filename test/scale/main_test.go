// Package scale_test measures how the mesh grows: with queues, with what waits,
// with what is published past somebody who does not take it, and on a disk that
// is full. In an ordinary run each test is small and looks at what comes out; with
// WAYBILL_SOAK it has its full size and bounds for memory and time as well.
package scale_test

import (
	"testing"

	"github.com/waybill-mq/waybill/test/harness"
)

func TestMain(m *testing.M) {
	harness.WithoutRace() // it multiplies memory and time
	harness.Main(m)
}
