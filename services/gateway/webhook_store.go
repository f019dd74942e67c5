package gateway

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/waybill-mq/waybill/internal/document"
	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// WebhookBucket is the KV bucket with a record per webhook, under its name.
const WebhookBucket = "WAYBILL_WEBHOOKS"

// maxWebhooks bounds how many there are: each is a subscription of every
// gateway.
const maxWebhooks = 1000

// webhookDoc is a webhook as it is stored.
type webhookDoc struct {
	document.Head
	protocol.Webhook
	// Keys sign its calls, the newest first: one, or two while a rotation lasts;
	// none with a SecretFile.
	Keys []webhookKey `json:"keys"`
}

type webhookKey struct {
	Secret string    `json:"secret"`
	Until  time.Time `json:"until,omitzero"` // of one that was replaced
}

// webhookStore is the bucket.
type webhookStore struct{ kv jetstream.KeyValue }

// openWebhooks makes the bucket if it is not there.
func openWebhooks(ctx context.Context, nc *nats.Conn, replicas int) (webhookStore, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return webhookStore{}, err
	}
	kv, err := mesh.Bucket(ctx, js, jetstream.KeyValueConfig{
		Bucket: WebhookBucket, Description: "Waybill: webhooks", History: 1, Replicas: replicas,
	})
	return webhookStore{kv}, err
}

// read reads a webhook. NOT_FOUND: there is none.
func (s webhookStore) read(ctx context.Context, name string) (*webhookDoc, error) {
	entry, err := s.kv.Get(ctx, name)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, protocol.Errorf(protocol.CodeNotFound, "there is no webhook %s: `waybill webhook ls` lists those there are", name)
	}
	if err != nil {
		return nil, noWebhooks(err)
	}
	return readWebhook(entry)
}

func readWebhook(entry jetstream.KeyValueEntry) (*webhookDoc, error) {
	d := &webhookDoc{}
	if err := document.Unmarshal(entry.Value(), d); err != nil {
		return nil, err
	}
	d.Revision = entry.Revision()
	return d, nil
}

// write writes a webhook over the revision it was read at, 0 if there was none,
// and sets the new one. CONFLICT: that has changed.
func (s webhookStore) write(ctx context.Context, d *webhookDoc) error {
	data, err := document.Marshal(d)
	if err != nil {
		return err
	}
	var revision uint64
	if d.Revision == 0 {
		revision, err = s.kv.Create(ctx, d.Name, data)
	} else {
		revision, err = s.kv.Update(ctx, d.Name, data, d.Revision)
	}
	switch {
	case errors.Is(err, jetstream.ErrKeyExists), errors.Is(err, jetstream.ErrKeyRevisionMismatch):
		return protocol.Errorf(protocol.CodeConflict, "webhook %s was defined by somebody else meanwhile: look at it, and replace it if it is to change", d.Name)
	case err != nil:
		return noWebhooks(err)
	}
	d.Revision = revision
	return nil
}

// remove removes a webhook at the revision it was read at.
func (s webhookStore) remove(ctx context.Context, d *webhookDoc) error {
	err := s.kv.Purge(ctx, d.Name, jetstream.LastRevision(d.Revision))
	if errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
		return protocol.Errorf(protocol.CodeConflict, "webhook %s was changed meanwhile: look at it, and remove it again", d.Name)
	}
	return noWebhooks(err)
}

// all are the webhooks in order of name.
func (s webhookStore) all(ctx context.Context) ([]*webhookDoc, error) {
	w, err := s.kv.WatchAll(ctx, jetstream.IgnoreDeletes())
	if err != nil {
		return nil, noWebhooks(err)
	}
	defer w.Stop() //nolint:errcheck // fails only with the connection gone
	var all []*webhookDoc
	for {
		select {
		case <-ctx.Done():
			return nil, protocol.Errorf(protocol.CodeTimeout, "the bucket of webhooks did not answer in time")
		case entry, open := <-w.Updates():
			if !open {
				return nil, protocol.Errorf(protocol.CodeUnavailable, "the bucket of webhooks stopped answering: try again")
			}
			if entry == nil {
				slices.SortFunc(all, func(a, b *webhookDoc) int { return strings.Compare(a.Name, b.Name) })
				return all, nil
			}
			d, err := readWebhook(entry)
			if err != nil {
				return nil, err
			}
			all = append(all, d)
		}
	}
}

// noWebhooks codes an error of the bucket; nil for nil.
func noWebhooks(err error) error {
	if err == nil {
		return nil
	}
	return protocol.Errorf(protocol.CodeUnavailable, "the bucket of webhooks does not answer (%v): is NATS there, with JetStream? Try again", err)
}
