package gateway

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// workPause is between a subscription that was refused and the next.
const workPause = 5 * time.Second

// webhooks are those this gateway works for: it keeps itself in line with the
// bucket, as every gateway does. Gateways share a webhook's messages as any
// workers do.
type webhooks struct {
	store   webhookStore
	secrets secretFiles
	client  *client.Client
	caller  *http.Client
	calls   *prometheus.CounterVec // by webhook and result
	log     *slog.Logger

	running map[string]*webhook // of follow alone
	working sync.WaitGroup
}

// webhook is one that is worked for.
type webhook struct {
	doc    atomic.Pointer[webhookDoc] // as it is now
	cancel context.CancelFunc
	done   chan struct{}
}

// follow works for what the bucket has until ctx ends, and returns when all of
// it has been handed back.
func (h *webhooks) follow(ctx context.Context) {
	defer h.working.Wait()
	defer func() {
		for name := range h.running {
			h.end(name)
		}
	}()
	var missing map[string]*webhook
	warned := false
	f := mesh.Follower{
		KV: h.store.kv, Keys: jetstream.AllKeys,
		Begin: func() { missing = maps.Clone(h.running) },
		See: func(ctx context.Context, entry jetstream.KeyValueEntry, _ bool) {
			delete(missing, entry.Key())
			h.see(ctx, entry)
		},
		Read: func() {
			warned = false
			for name := range missing {
				h.end(name)
			}
		},
		Failed: func(err error) {
			if !warned {
				h.log.Warn("webhooks cannot be watched; trying again until they can", "error", err)
				warned = true
			}
		},
	}
	f.Run(ctx)
}

// see takes one record.
func (h *webhooks) see(ctx context.Context, entry jetstream.KeyValueEntry) {
	name := entry.Key()
	former := h.running[name]
	if former != nil && entry.Revision() < former.doc.Load().Revision {
		return // of a replica that lags behind
	}
	if entry.Operation() != jetstream.KeyValuePut {
		h.end(name)
		return
	}
	d, err := readWebhook(entry)
	if err != nil {
		h.log.Warn("a webhook's record cannot be used", "webhook", name, "error", err)
		return
	}
	if former != nil && sameWork(former.doc.Load(), d) {
		former.doc.Store(d)
		return
	}
	h.end(name)
	h.begin(ctx, d, former)
}

// sameWork says whether only what each call reads anew differs.
func sameWork(a, b *webhookDoc) bool {
	x, y := a.WebhookSpec, b.WebhookSpec
	x.URL, y.URL = "", ""
	return x == y
}

// begin works for a webhook, once its former definition has been handed back.
func (h *webhooks) begin(ctx context.Context, d *webhookDoc, former *webhook) {
	ctx, cancel := context.WithCancel(ctx)
	one := &webhook{cancel: cancel, done: make(chan struct{})}
	one.doc.Store(d)
	h.running[d.Name] = one
	h.working.Go(func() {
		defer close(one.done)
		if former != nil {
			<-former.done
		}
		h.work(ctx, one)
	})
}

// end hands a webhook back; it does not wait for that.
func (h *webhooks) end(name string) {
	if one := h.running[name]; one != nil {
		one.cancel()
		delete(h.running, name)
	}
}

// work subscribes, again and again while that is refused, and hands back when
// ctx ends.
func (h *webhooks) work(ctx context.Context, one *webhook) {
	for refused := ""; ctx.Err() == nil; {
		w, err := h.subscribe(ctx, one)
		if err == nil {
			<-ctx.Done()
			if err := w.Stop(context.WithoutCancel(ctx)); err != nil {
				h.log.Warn("a webhook's calls did not end in time", "webhook", one.doc.Load().Name, "error", err)
			}
			return
		}
		if refused != err.Error() && ctx.Err() == nil {
			refused = err.Error()
			h.log.Warn("a webhook cannot be worked for; trying again until it can", "webhook", one.doc.Load().Name, "error", err)
		}
		mesh.Pause(ctx, workPause)
	}
}

func (h *webhooks) subscribe(ctx context.Context, one *webhook) (*client.Worker, error) {
	d := one.doc.Load()
	if _, err := h.keysOf(d); err != nil {
		return nil, err // other gateways may be able to
	}
	handler := func(ctx context.Context, m *client.Delivery) error { return h.call(ctx, one.doc.Load(), m) }
	opts := workOptions(d)
	if d.Topic == "" {
		return h.client.Work(ctx, d.Execution, d.Route, handler, opts...)
	}
	if d.ObserverID != "" {
		opts = append(opts, client.ID(d.ObserverID))
	} else {
		opts = append(opts, client.Group(cmp.Or(d.Group, defaultGroup(d.Name))))
	}
	return h.client.Observe(ctx, d.Topic, handler, opts...)
}

// defaultGroup is the group in which all gateways observe for a webhook.
func defaultGroup(name string) string { return "webhook:" + name }

// workOptions are a webhook's as the client takes them.
func workOptions(d *webhookDoc) []client.WorkOption {
	opts := []client.WorkOption{
		client.Name("webhook:" + d.Name),
		client.Timeout(time.Duration(cmp.Or(d.TimeoutMs, protocol.DefaultWebhookTimeoutMs)) * time.Millisecond),
	}
	if d.Concurrency > 0 {
		opts = append(opts, client.Concurrency(d.Concurrency))
	}
	if d.MaxRetries > 0 {
		opts = append(opts, client.MaxRetries(d.MaxRetries))
	}
	if d.BackoffMs > 0 {
		opts = append(opts, client.Backoff(time.Duration(d.BackoffMs)*time.Millisecond))
	}
	if d.Type == protocol.TypeFIFO {
		opts = append(opts, client.FIFO())
	}
	return opts
}
