package mesh

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	rereadEvery = time.Minute // all keys are read anew
	followPause = time.Second // between a watch that ended and the next
)

// Follower keeps its owner in line with keys of a KV bucket that others write
// too. Each watch begins with all of them, and ends after a while, so that a
// change which was missed, however it was, is made good. All funcs are called
// from Run's goroutine; those that are nil are not.
type Follower struct {
	KV   jetstream.KeyValue
	Keys string // a subject of keys
	// Begin is called before all keys are read. See takes each key's newest entry,
	// deletions too, and then every change; first says that it was there when the watch
	// began. Read is called when all of those were seen.
	Begin func()
	See   func(ctx context.Context, entry jetstream.KeyValueEntry, first bool)
	Read  func()
	// Failed is told why the keys cannot be watched; they are tried again.
	Failed func(err error)
}

// Run follows until ctx ends.
func (f *Follower) Run(ctx context.Context) {
	for ctx.Err() == nil {
		err := f.once(ctx)
		if err == nil || ctx.Err() != nil {
			continue
		}
		if f.Failed != nil {
			f.Failed(err)
		}
		Pause(ctx, followPause)
	}
}

// once watches until it is time to read everything anew.
func (f *Follower) once(ctx context.Context) error {
	if f.Begin != nil {
		f.Begin()
	}
	w, err := f.KV.Watch(ctx, f.Keys)
	if err != nil {
		return err
	}
	defer w.Stop() //nolint:errcheck // fails only with the connection gone
	end := time.NewTimer(rereadEvery)
	defer end.Stop()
	for first := true; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-end.C:
			return nil
		case entry, open := <-w.Updates():
			switch {
			case !open:
				return errors.New("the watch has ended")
			case entry != nil:
				f.See(ctx, entry, first)
			default:
				first = false
				if f.Read != nil {
					f.Read()
				}
			}
		}
	}
}
