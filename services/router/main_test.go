package router_test

import (
	"testing"

	"github.com/waybill-mq/waybill/internal/mesh/meshtest"
)

func TestMain(m *testing.M) { meshtest.Main(m) }
