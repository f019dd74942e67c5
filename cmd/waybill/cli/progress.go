package cli

import (
	"context"
	"sync"
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"

	"github.com/waybill-mq/waybill/internal/mesh"
)

const (
	// longTimeout bounds work on very many messages.
	longTimeout = 10 * time.Minute
	// progressAfter is how long work goes on before its progress is shown.
	progressAfter = 500 * time.Millisecond
	progressEvery = 250 * time.Millisecond
)

// during does long work, and shows beside it how much of it is left, on a
// terminal alone. left asks that; nil for work that is not long.
func (a *app) during(doing string, left func(ctx context.Context) (int64, error), do func() error) error {
	if left == nil || !isTerminal(a.stderr) || a.flags.JSON {
		return do()
	}
	total, err := left(a.ctx)
	if err != nil || total == 0 {
		return do()
	}
	ctx, done := context.WithCancel(a.ctx)
	var showing sync.WaitGroup
	showing.Go(func() { a.showProgress(ctx, doing, total, left) })
	err = do()
	done()
	showing.Wait()
	return err
}

// showProgress shows it until ctx ends.
func (a *app) showProgress(ctx context.Context, doing string, total int64, left func(ctx context.Context) (int64, error)) {
	if !mesh.Pause(ctx, progressAfter) {
		return
	}
	bar := &progress.Tracker{Message: doing, Total: total}
	w := progress.NewWriter()
	w.SetOutputWriter(a.stderr)
	w.SetUpdateFrequency(progressEvery)
	w.SetTrackerLength(30)
	w.Style().Visibility.TrackerOverall = false
	w.AppendTracker(bar)
	var rendering sync.WaitGroup
	rendering.Go(w.Render)
	for mesh.Pause(ctx, progressEvery) {
		if n, err := left(ctx); err == nil {
			bar.SetValue(max(total-n, 0))
		}
	}
	bar.MarkAsDone()
	w.Stop()
	rendering.Wait()
}
