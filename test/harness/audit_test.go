package harness

import (
	"strings"
	"testing"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// An audit that finds nothing must be one that would have found it.
func TestAuditFinds(t *testing.T) {
	ack := run{0, 1, protocol.Acknowledged, false}
	fail1 := run{0, 1, protocol.Failed, false}
	fail2 := run{0, 2, protocol.Failed, true}
	reject := run{0, 1, protocol.Rejected, true}
	ackAgain := run{1, 1, protocol.Acknowledged, false}
	letter := protocol.DeadLetter{Generation: 0, Attempts: 1}
	letters := func(n int) (all []protocol.DeadLetter) {
		for range n {
			all = append(all, letter)
		}
		return all
	}
	for name, c := range map[string]struct {
		message
		dead  int
		fault string // "" for none
	}{
		"handled":                   {message{runs: []run{ack}}, 0, ""},
		"an answer was lost":        {message{runs: []run{ack, ack}}, 0, ""},
		"handed back":               {message{runs: []run{{0, 1, protocol.Cancelled, false}, ack}}, 0, ""},
		"dead":                      {message{runs: []run{reject}}, 1, ""},
		"redriven":                  {message{runs: []run{reject, ackAgain}}, 0, ""},
		"discarded":                 {message{runs: []run{reject}, discarded: surely}, 0, ""},
		"perhaps discarded, is not": {message{runs: []run{reject}, discarded: perhaps}, 1, ""},
		"never came":                {message{answered: true}, 0, "lost"},
		"a failure forgotten":       {message{runs: []run{fail1}}, 0, "lost"},
		"a dead letter forgotten":   {message{runs: []run{fail1, fail2}}, 0, "lost"},
		"twice dead":                {message{runs: []run{reject}}, 2, "twice dead"},
		"dead and done":             {message{runs: []run{ack}}, 1, "although it was acknowledged"},
		"dead and discarded":        {message{runs: []run{reject}, discarded: surely}, 1, "although it was discarded"},
		"done and discarded":        {message{runs: []run{reject, ackAgain}, discarded: surely}, 0, "after it was discarded"},
		"dead too early":            {message{runs: []run{fail1}}, 1, "not of the last delivery"},
		"dead of an older failure":  {message{runs: []run{reject, {1, 1, protocol.Rejected, true}}}, 1, "not of the last delivery"},
		"an attempt skipped":        {message{runs: []run{fail2}}, 0, "delivery 1 is"},
		"a failure not counted":     {message{runs: []run{fail1, ack}}, 0, "delivery 2 is"},
		"past its budget":           {message{runs: []run{fail1, fail2, {0, 3, protocol.Acknowledged, false}}}, 0, "delivery 3 is"},
		"back after it was done":    {message{runs: []run{ack, {0, 2, protocol.Acknowledged, false}}}, 0, "delivery 2 is"},
		"redriven while alive":      {message{runs: []run{fail1, ackAgain}}, 0, "delivery 2 is"},
	} {
		fault := c.settle(&Verdict{}, letters(c.dead))
		if (fault == "") != (c.fault == "") || !strings.Contains(fault, c.fault) {
			t.Errorf("%s: %q, want %q", name, fault, c.fault)
		}
	}
}
