package daemon

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

const (
	// largeHeap is from which on memory is worth more than the processor time
	// that collecting it more often takes, in bytes: a mesh without a backlog has
	// less.
	largeHeap = 128 << 20
	// smallHeap is how much garbage there may be at least, in bytes: with little that
	// is live, memory would be collected many times a second.
	smallHeap = 64 << 20
	// How much garbage there may be, in percent of what is live: Go's default,
	// and with a large heap.
	garbage      = 100
	garbageLarge = 30
	heapInterval = 500 * time.Millisecond
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

func spareMemory(ctx context.Context) {
	t := time.NewTicker(heapInterval)
	defer t.Stop()
	defer debug.SetGCPercent(garbage)
	for now := garbage; ; {
		if next := garbageFor(liveHeap()); next != now {
			debug.SetGCPercent(next)
			now = next
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

func garbageFor(live uint64) int {
	switch {
	case live > largeHeap:
		return garbageLarge
	case live >= smallHeap, live == 0:
		return garbage
	default:
		return int(smallHeap * garbage / live)
	}
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
