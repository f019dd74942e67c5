package daemon

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

const (
	// How much garbage there may be: as much as is live, which is Go's default, but
	// at least leastGarbage, as a small heap would be collected many times a second;
	// and at most mostGarbage, or in a heap so large that this is less largeShare
	// percent of it.
	leastGarbage = 64 << 20
	mostGarbage  = 96 << 20
	largeShare   = 30

	goDefault = 100 // GOGC, in percent of what is live
)

// SpareMemory keeps garbage from doubling a large heap, such as that of a
// mesh in which a million messages wait, and has a small one collected no more often
// than is worth it, until stop is called. It does nothing if GOGC is set in the
// environment: then that holds. It is begun after the start, which should not take
// longer for it.
func SpareMemory() (stop func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var sparing sync.WaitGroup
	sparing.Go(func() { spareMemory(ctx) })
	return func() {
		cancel()
		sparing.Wait()
	}
}

// spareMemory looks after each collection: a heap that has grown since would be let
// grow by its former share.
func spareMemory(ctx context.Context) {
	defer debug.SetGCPercent(goDefault)
	collected := make(chan struct{}, 1)
	for share := goDefault; ; {
		if next := garbageShare(liveHeap()); next*10 < share*9 || next*10 > share*11 {
			debug.SetGCPercent(next)
			share = next
		}
		notifyCollected(collected)
		select {
		case <-collected:
		case <-ctx.Done():
			return
		}
	}
}

// notifyCollected has the next collection told.
func notifyCollected(collected chan<- struct{}) {
	runtime.AddCleanup(new([64]byte), func(collected chan<- struct{}) {
		select {
		case collected <- struct{}{}:
		default:
		}
	}, collected)
}

// garbageShare is how much garbage there may be, in percent of what is live.
func garbageShare(live uint64) int {
	if live == 0 {
		return goDefault // never collected yet
	}
	most := max(mostGarbage, live/100*largeShare)
	return int(min(max(live, leastGarbage), most) * 100 / live)
}

// liveHeap is what was live when memory was last collected, in bytes.
func liveHeap() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return sample[0].Value.Uint64()
}
