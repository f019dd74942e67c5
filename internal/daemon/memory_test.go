package daemon

import "testing"

// A heap that grows may not have less garbage than before: it would be collected
// over and over at that size.
func TestGarbageGrowsWithTheHeap(t *testing.T) {
	const mib, rounding = 1 << 20, 1.05 // shares are whole percents
	for live, before := uint64(mib), 0.0; live < 4<<30; live += mib {
		garbage := float64(live) / 100 * float64(garbageShare(live))
		if garbage*rounding < before {
			t.Fatalf("with %d MiB live %.0f MiB of garbage are let be, with 1 MiB less %.0f", live/mib, garbage/mib, before/mib)
		}
		before = garbage
		if garbage < leastGarbage/rounding || garbage > max(mostGarbage, float64(live)*largeShare/100)*rounding {
			t.Fatalf("with %d MiB live %.0f MiB of garbage are let be", live/mib, garbage/mib)
		}
	}
}
