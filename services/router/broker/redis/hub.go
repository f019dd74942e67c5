//go:build !no_redis

package redis

import (
	"context"
	"errors"
	"maps"
	"net"
	"sync"
	"sync/atomic"
	"time"

	client "github.com/redis/go-redis/v9"

	"github.com/waybill-mq/waybill/services/router/broker/remote"
)

const (
	silence  = 2 * time.Second // after which Redis is asked whether it is there
	hubAgain = 200 * time.Millisecond
)

// hub receives the channels that stores have subscribed to, on one connection.
type hub struct {
	b    *Broker
	wake chan struct{}
	// heard: Redis has said something in this session.
	heard atomic.Bool

	mu     sync.Mutex
	wanted map[string]*subscription // by channel
}

// subscription is a channel that a store receives.
type subscription struct {
	store *store
	topic string

	confirmed bool     // in this session
	waiting   []func() // for that
}

func newHub(b *Broker) *hub {
	return &hub{b: b, wake: make(chan struct{}, 1), wanted: make(map[string]*subscription)}
}

// subscribe has a store receive a topic, and calls done once it does.
func (h *hub) subscribe(s *store, topic string, done func()) {
	h.mu.Lock()
	at := h.wanted[channelOf(topic)]
	if at == nil {
		at = &subscription{}
		h.wanted[channelOf(topic)] = at
	}
	at.store, at.topic = s, topic
	if at.confirmed {
		h.mu.Unlock()
		done()
		return
	}
	at.waiting = append(at.waiting, done)
	h.mu.Unlock()
	h.changed()
}

// unsubscribe ends that, unless another store receives the topic now. Nobody has to wait
// for it any more.
func (h *hub) unsubscribe(s *store, topic string) {
	h.mu.Lock()
	at := h.wanted[channelOf(topic)]
	if at == nil || at.store != s {
		h.mu.Unlock()
		return
	}
	delete(h.wanted, channelOf(topic))
	waiting := at.waiting
	at.waiting = nil
	h.mu.Unlock()
	h.changed()
	for _, f := range waiting {
		f()
	}
}

func (h *hub) changed() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// run receives until the broker is closed, over lost connections.
func (h *hub) run() {
	for h.awaitWanted() {
		err := h.session()
		switch {
		case h.b.ctx.Err() != nil:
			return
		case err != nil && h.heard.Load(): // and not once more for each attempt
			h.b.log.Warn("the connection that receives messages was lost and is made again: what is published meanwhile does not arrive", "address", h.b.At, "error", err)
		}
		remote.Sleep(h.b.ctx, hubAgain)
	}
}

// awaitWanted waits until somebody receives anything; false: the broker is closed.
func (h *hub) awaitWanted() bool {
	for {
		h.mu.Lock()
		n := len(h.wanted)
		h.mu.Unlock()
		if n > 0 {
			return h.b.ctx.Err() == nil
		}
		select {
		case <-h.wake:
		case <-h.b.ctx.Done():
			return false
		}
	}
}

// session receives on one connection, and keeps it subscribed to what is wanted.
func (h *hub) session() error {
	h.heard.Store(false)
	h.mu.Lock()
	for _, at := range h.wanted {
		at.confirmed = false
	}
	h.mu.Unlock()
	ctx, cancel := context.WithCancel(h.b.ctx)
	defer cancel()
	conn := h.b.client.Subscribe(ctx)
	ended := make(chan error, 1)
	var receiving sync.WaitGroup
	defer func() {
		if err := conn.Close(); err != nil {
			h.b.log.Debug("a connection was not closed in order", "error", err)
		}
		receiving.Wait()
	}()
	subscribed, err := h.adjust(ctx, conn, nil)
	receiving.Go(func() { ended <- h.receive(ctx, conn) })
	for err == nil {
		select {
		case <-h.wake:
			subscribed, err = h.adjust(ctx, conn, subscribed)
		case err = <-ended:
		case <-ctx.Done():
			return nil
		}
	}
	return err
}

// adjust subscribes to what is wanted and unsubscribes from the rest.
func (h *hub) adjust(ctx context.Context, conn *client.PubSub, before map[string]*subscription) (map[string]*subscription, error) {
	h.mu.Lock()
	now := maps.Clone(h.wanted)
	h.mu.Unlock()
	var more, less []string
	for channel, at := range now {
		if before[channel] != at { // who subscribes anew is confirmed anew
			more = append(more, channel)
		}
	}
	for channel := range before {
		if now[channel] == nil {
			less = append(less, channel)
		}
	}
	if len(more) > 0 {
		if err := conn.Subscribe(ctx, more...); err != nil {
			return before, err
		}
	}
	if len(less) > 0 {
		if err := conn.Unsubscribe(ctx, less...); err != nil {
			return before, err
		}
	}
	return now, nil
}

// receive passes on what arrives, until the connection is lost or silent too long.
func (h *hub) receive(ctx context.Context, conn *client.PubSub) error {
	for asked := false; ; {
		got, err := conn.ReceiveTimeout(ctx, silence)
		late, isNet := errors.AsType[net.Error](err)
		switch {
		case err == nil:
			asked = false
			h.heard.Store(true)
			h.take(got)
			continue
		case !isNet || !late.Timeout() || asked:
			return err
		}
		asked = true
		if err := conn.Ping(ctx); err != nil {
			return err
		}
	}
}

func (h *hub) take(got any) {
	switch m := got.(type) {
	case *client.Message:
		if s, topic := h.receiver(m.Channel); s != nil {
			s.received(topic, m.Payload)
		}
	case *client.Subscription:
		if m.Kind == "subscribe" {
			h.confirm(m.Channel)
		}
	}
}

// receiver is the store that receives a channel, and its topic; nil: none does.
func (h *hub) receiver(channel string) (*store, string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := h.wanted[channel]
	if at == nil {
		return nil, ""
	}
	return at.store, at.topic
}

// confirm tells those who wait for a subscription that it is made.
func (h *hub) confirm(channel string) {
	h.mu.Lock()
	var waiting []func()
	if at := h.wanted[channel]; at != nil {
		at.confirmed = true
		waiting, at.waiting = at.waiting, nil
	}
	h.mu.Unlock()
	for _, f := range waiting {
		f()
	}
}
