package chaos_test

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/test/harness"
)

const (
	killsARound = 5
	killsInSoak = 60
)

// A job's life depends on its number alone, so that the book can say what every
// delivery must have been.
func life(job, generation, attempt int) protocol.Outcome {
	switch job % 20 {
	case 1, 2:
		return failedIf(attempt == 1)
	case 3:
		return failedIf(attempt < maxRetries)
	case 4: // dead, until it is redriven
		return failedIf(generation == 0)
	case 5:
		return rejectedIf(generation == 0)
	case 6: // redriven, it fails once more before it is done
		return failedIf(generation == 0 || attempt == 1)
	case 7: // most are done at once, few never
		return rejectedIf(job%200 == 7)
	default:
		return protocol.Acknowledged
	}
}

func failedIf(yes bool) protocol.Outcome {
	if yes {
		return protocol.Failed
	}
	return protocol.Acknowledged
}

func rejectedIf(yes bool) protocol.Outcome {
	if yes {
		return protocol.Rejected
	}
	return protocol.Acknowledged
}

// kill -9 of everything but the clients, while they publish, handle, fail and
// redrive: at rest each answered publish is acknowledged, dead or discarded, one
// of them, after exactly the deliveries that were its due. The workers outlive
// the mesh, so none of these came twice. And the books balance, now and then.
func TestKilledMeshLosesAndDoublesNothing(t *testing.T) {
	t.Parallel()
	m := harness.Start(t)
	soak := harness.Soak(t)
	began, kills := time.Now(), 0
	for round := 1; ; round++ {
		l := &load{t: t, mesh: m, execution: "round-" + strconv.Itoa(round), decide: life, lingers: someLinger}
		l.start()
		for range killsARound {
			killAndRestart(l)
			kills++
		}
		l.mesh.Balanced() // also while messages flow
		l.progress(1000)
		l.operated()
		if v := l.finish(); v.Repeated > 0 || v.Dead == 0 || v.Discarded == 0 || v.Redriven == 0 {
			t.Errorf("round %d: deliveries came twice, or something was never tried: %+v", round, v)
		}
		l.client.Close(t.Context())
		if t.Failed() || soak == 0 || kills >= killsInSoak && time.Since(began) > soak {
			t.Logf("%d kills", kills)
			return
		}
	}
}

// killAndRestart kills at any moment, often just after the last restart, and
// now and then in the middle of the next.
func killAndRestart(l *load) {
	l.t.Helper()
	l.progress(1 + rand.Int64N(20)*rand.Int64N(100))
	l.mesh.Kill()
	for rand.IntN(3) == 0 {
		l.mesh.Stumble(time.Duration(rand.IntN(500)) * time.Millisecond)
	}
	l.mesh.Restart()
}

// someLinger makes some handlers run while the mesh is away.
func someLinger(job int) time.Duration {
	if job%10 != 0 {
		return 0
	}
	return time.Duration(job%300) * time.Millisecond
}
