//go:build !no_pulsar

package pulsar

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker/remote"
)

// watchEvery is how often it is looked whether the broker is there. Its client
// makes its connections again by itself, and says nothing of it.
const watchEvery = time.Second

// watch is whether the broker is there.
type watch struct {
	mu  sync.Mutex
	err error
}

// say says what holds now, and returns whether that is new.
func (w *watch) say(err error) (isNew bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	isNew = (w.err == nil) != (err == nil)
	w.err = err
	return isNew
}

// Away says why the broker cannot be used now.
func (b *Broker) Away() error {
	b.watch.mu.Lock()
	defer b.watch.mu.Unlock()
	if b.watch.err == nil {
		return nil
	}
	return b.Missing(b.watch.err)
}

func (b *Broker) keepWatch(ctx context.Context) {
	for remote.Sleep(ctx, watchEvery) {
		err := b.look(ctx)
		if ctx.Err() != nil {
			return
		}
		switch isNew := b.watch.say(err); {
		case isNew && err != nil:
			b.log.Warn("the broker is away", "address", b.At, "error", err)
		case isNew:
			b.log.Info("the broker is back", "address", b.At)
		}
	}
}

// look asks for something that needs the broker and its metadata.
func (b *Broker) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	return b.admin.do(ctx, http.MethodGet, "namespaces/"+b.admin.space+"/messageTTL", nil, nil)
}

// policies are those of a namespace that would act instead of the mesh.
type policies struct {
	TTL          int `json:"message_ttl_in_seconds"`
	Expiration   int `json:"subscription_expiration_time_minutes"`
	BacklogQuota map[string]struct {
		Policy string `json:"policy"`
	} `json:"backlog_quota_map"`
	Delayed *struct {
		Active bool `json:"active"`
	} `json:"delayed_delivery_policies"`
}

// examine refuses a namespace in which the mesh could not keep its word.
func (b *Broker) examine(ctx context.Context) error {
	var p policies
	err := b.admin.do(ctx, http.MethodGet, "namespaces/"+b.admin.space, nil, &p)
	switch {
	case errors.Is(err, errNotThere):
		return b.Faultf(protocol.CodeUnavailable, "has no namespace %s: create it there, or name another by tenant and namespace", b.admin.space)
	case err != nil:
		return b.Faultf(protocol.CodeUnavailable, "cannot be reached over its admin interface %s: %v; start it, or correct admin_url", b.admin.base, err)
	}
	refuse := func(setting, why string) error {
		return protocol.Errorf(protocol.CodeConflict, "the namespace %s of the broker %s at %s has %s, which %s: change it there, or name another namespace", b.admin.space, b.Shown, b.At, setting, why)
	}
	switch {
	case p.TTL > 0:
		return refuse("a message TTL", "drops messages that wait")
	case p.Expiration > 0:
		return refuse("a subscription expiration time", "drops queues that nobody consumes")
	case p.Delayed != nil && !p.Delayed.Active:
		return refuse("delayed delivery switched off", "brings failed messages back at once")
	}
	for _, quota := range p.BacklogQuota {
		if quota.Policy == "consumer_backlog_eviction" {
			return refuse("the backlog quota policy consumer_backlog_eviction", "drops messages that wait")
		}
	}
	return nil
}
