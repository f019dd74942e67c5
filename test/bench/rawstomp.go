package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-stomp/stomp/v3"
	"github.com/go-stomp/stomp/v3/frame"
	"golang.org/x/sync/semaphore"
)

// stompBroker is Artemis used over STOMP as its documentation says: persistent
// messages, a receipt for each within a window, a subscription with credit for each
// queue, an acknowledgement for each message. Nothing fails in what is measured of
// it.
type stompBroker struct {
	producer, worker *stomp.Conn
	taking           []*stomp.Subscription
	held             func() (int64, error) // what the broker has, of all queues
	room             *semaphore.Weighted
	inHand           atomic.Int64          // taken and not acknowledged
	failure          atomic.Pointer[error] // the first
	ending           sync.WaitGroup
}

// connectSTOMP connects to a broker that says itself how many messages it has.
func connectSTOMP(held func() (int64, error)) func(ctx context.Context, url string) (broker, error) {
	return func(ctx context.Context, at string) (broker, error) {
		b := &stompBroker{held: held, room: semaphore.NewWeighted(window)}
		var err error
		if b.producer, err = dialSTOMP(at); err == nil {
			b.worker, err = dialSTOMP(at)
		}
		if err != nil {
			return nil, errors.Join(err, b.close(ctx))
		}
		return b, nil
	}
}

func dialSTOMP(at string) (*stomp.Conn, error) {
	u, err := url.Parse(at)
	if err != nil {
		return nil, err
	}
	password, _ := u.User.Password()
	return stomp.Dial("tcp", u.Host, stomp.ConnOpt.Login(u.User.Username(), password), stomp.ConnOpt.AcceptVersion(stomp.V12),
		stomp.ConnOpt.HeartBeat(time.Minute, time.Minute), stomp.ConnOpt.WriteChannelCapacity(window), stomp.ConnOpt.ReadChannelCapacity(window),
		stomp.ConnOpt.ReadBufferSize(stompBuffer), stomp.ConnOpt.WriteBufferSize(stompBuffer))
}

// stompBuffer is in bytes.
const stompBuffer = 64 << 10

func (b *stompBroker) fail(err error) {
	if err != nil {
		b.failure.CompareAndSwap(nil, &err)
	}
}

func (b *stompBroker) work(_ context.Context, w work) error {
	if w.observers > 0 || w.backoff != nil {
		return errors.New("topics and failures are not measured on raw Artemis")
	}
	for queue := range w.queues {
		if err := b.consume(w, "/queue/"+route(queue)); err != nil {
			return err
		}
	}
	return nil
}

// credit is how many bytes a message of the benchmark takes of a window, at most.
const credit = 2048

func (b *stompBroker) consume(w work, queue string) error {
	sub, err := b.worker.Subscribe(queue, stomp.AckClientIndividual, stomp.SubscribeOpt.Header("consumer-window-size", strconv.Itoa(inHand/w.queues*credit)))
	if err != nil {
		return err
	}
	b.taking = append(b.taking, sub)
	b.ending.Go(func() {
		for m := range sub.C {
			if m.Err != nil {
				b.fail(m.Err)
				return
			}
			b.inHand.Add(1)
			w.handle(m.Body)
			b.fail(b.worker.Ack(m))
			b.inHand.Add(-1)
		}
	})
	return nil
}

// publish waits for the receipt in a goroutine of its own: this client has no other
// way to have many under way.
func (b *stompBroker) publish(ctx context.Context, queue int, payload []byte) error {
	if err := b.room.Acquire(ctx, 1); err != nil {
		return err
	}
	b.ending.Go(func() {
		defer b.room.Release(1)
		b.fail(b.producer.Send("/queue/"+route(queue), "", payload, stomp.SendOpt.Receipt, persistent))
	})
	return nil
}

func persistent(f *frame.Frame) error {
	f.Header.Add("persistent", "true")
	return nil
}

func (b *stompBroker) flush(ctx context.Context) error {
	if err := b.room.Acquire(ctx, window); err != nil {
		return err
	}
	b.room.Release(window)
	if failure := b.failure.Load(); failure != nil {
		return *failure
	}
	return nil
}

func (b *stompBroker) left(context.Context) (unsettled, dead int64, err error) {
	held, err := b.held()
	return held + b.inHand.Load(), 0, err
}

func (b *stompBroker) redrive(context.Context) error {
	return errors.New("a redrive is not measured on raw Artemis")
}

func (b *stompBroker) close(context.Context) error {
	failure := b.failure.Load()
	var err error
	for _, sub := range b.taking {
		err = errors.Join(err, sub.Unsubscribe())
	}
	for _, conn := range []*stomp.Conn{b.producer, b.worker} {
		if conn != nil {
			err = errors.Join(err, conn.Disconnect())
		}
	}
	b.ending.Wait()
	if failure != nil {
		err = errors.Join(err, fmt.Errorf("a subscription or a receipt: %w", *failure))
	}
	return err
}
