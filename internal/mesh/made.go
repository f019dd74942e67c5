package mesh

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	madeTry    = 2 * time.Second
	madeAgain  = 100 * time.Millisecond
	madeWithin = 30 * time.Second
)

// Made opens what several instances make at the same time, if it is not there:
// in a cluster, NATS may leave the one who comes second without an answer, and
// what has just been made is not known to all servers at once. So open is tried
// for 2 s at a time, until ctx ends or for 30 s.
func Made[T any](ctx context.Context, open func(ctx context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, madeWithin)
	defer cancel()
	for {
		made, err := madeOnce(ctx, open)
		if err == nil || ctx.Err() != nil || !isUnmade(err) {
			return made, err
		}
		again := time.NewTimer(madeAgain)
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return made, err
		}
	}
}

func madeOnce[T any](ctx context.Context, open func(ctx context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, madeTry)
	defer cancel()
	return open(ctx)
}

func isUnmade(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) || errors.Is(err, nats.ErrNoResponders) ||
		errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrBucketNotFound)
}

// Bucket opens a KV bucket as it is, and makes it if it is not there.
func Bucket(ctx context.Context, js jetstream.JetStream, cfg jetstream.KeyValueConfig) (jetstream.KeyValue, error) {
	kv, err := Made(ctx, func(ctx context.Context) (jetstream.KeyValue, error) {
		kv, err := js.KeyValue(ctx, cfg.Bucket)
		if errors.Is(err, jetstream.ErrBucketNotFound) {
			return js.CreateOrUpdateKeyValue(ctx, cfg)
		}
		return kv, err
	})
	if err != nil {
		return nil, fmt.Errorf("opening the bucket %s: %w", cfg.Bucket, err)
	}
	return kv, nil
}
