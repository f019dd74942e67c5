// Package chaos_test kills and stops whole meshes under load and counts, message
// by message, that nothing was lost, doubled or misplaced.
package chaos_test

import (
	"testing"

	"github.com/waybill-mq/waybill/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
