package ledger_test

import (
	"testing"

	"github.com/waybill-mq/waybill/internal/ledger"
)

// The numbers are for good: a queue whose ledger changed would lose its
// messages. A topic and its subscribers' queues share one.
func TestAQueueKeepsItsLedger(t *testing.T) {
	for queue, want := range map[string]int{
		"/queue/019ce6d0/scraping.tasks": 1,
		"/queue/E1/r":                    0,
		"/topic/orders.created":          12,
		"orders.created::observer:a":     12,
		"orders.created::@billing":       12,
	} {
		if got := ledger.Of(queue, 16); got != want {
			t.Errorf("%s lies in ledger %d, want %d", queue, got, want)
		}
	}
}

func TestLedgersHaveNumberedNames(t *testing.T) {
	if got := ledger.Name("router", 3); got != "router-03" {
		t.Errorf("the fourth ledger is %s", got)
	}
	if got := ledger.StreamOf("router"); got != "WAYBILL_ROUTER" {
		t.Errorf("its stream is %s", got)
	}
}
