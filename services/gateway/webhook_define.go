package gateway

import (
	"context"
	"net/url"
	"slices"
	"time"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

const (
	maxURL       = 2048              // bytes
	maxBackoffMs = 30 * 24 * 3600000 // a month
)

// set defines a webhook, or replaces it.
func (h *webhooks) set(ctx context.Context, q protocol.WebhookSetRequest) (protocol.WebhookSecret, error) {
	none := protocol.WebhookSecret{}
	if err := checkWebhook(q.Name, &q.WebhookSpec); err != nil {
		return none, err
	}
	if q.Replace {
		return h.replace(ctx, q)
	}
	secret, keys, err := h.secretOf(&q)
	if err != nil {
		return none, err
	}
	all, err := h.store.all(ctx)
	if err != nil {
		return none, err
	}
	if slices.ContainsFunc(all, func(d *webhookDoc) bool { return d.Name == q.Name }) {
		return none, protocol.Errorf(protocol.CodeConflict, "there is a webhook %s already: replace it, or take another name", q.Name)
	}
	if len(all) >= maxWebhooks {
		return none, protocol.Errorf(protocol.CodeLimitExceeded, "there are %d webhooks, and no more are taken: remove one", len(all))
	}
	now := time.Now().UTC()
	d := &webhookDoc{
		Webhook: protocol.Webhook{Name: q.Name, WebhookSpec: q.WebhookSpec, CreatedAt: now, UpdatedAt: now},
		Keys:    keys,
	}
	if err := h.store.write(ctx, d); err != nil {
		return none, err
	}
	h.log.Info("a webhook was defined", "webhook", d.Name, "revision", d.Revision)
	return protocol.WebhookSecret{Webhook: d.Webhook, Secret: secret}, nil
}

// secretOf is a new webhook's secret and the keys that are stored for it: none if
// they are in a file, which has to be there.
func (h *webhooks) secretOf(q *protocol.WebhookSetRequest) (string, []webhookKey, error) {
	if q.SecretFile != "" {
		if q.Secret != "" {
			return "", nil, protocol.Errorf(protocol.CodeInvalidArgs, "a secret and a secret_file are given: a webhook has one of them")
		}
		_, err := h.secrets.keys(q.SecretFile)
		return "", nil, err
	}
	secret, err := newSecret(q.Secret)
	return secret, []webhookKey{{Secret: secret}}, err
}

func (h *webhooks) replace(ctx context.Context, q protocol.WebhookSetRequest) (protocol.WebhookSecret, error) {
	none := protocol.WebhookSecret{}
	if q.Secret != "" {
		return none, protocol.Errorf(protocol.CodeInvalidArgs, "a webhook that is replaced keeps its secret: rotate it to give it another")
	}
	d, err := h.store.read(ctx, q.Name)
	if err != nil {
		return none, err
	}
	if q.Revision != 0 && q.Revision != d.Revision {
		return none, protocol.Errorf(protocol.CodeConflict, "webhook %s has revision %d, not %d: look at it, and replace it again", q.Name, d.Revision, q.Revision)
	}
	secret := "" // it keeps what it has, unless that was or is now in a file
	if q.SecretFile != "" || d.SecretFile != "" {
		if secret, d.Keys, err = h.secretOf(&q); err != nil {
			return none, err
		}
	}
	d.WebhookSpec, d.UpdatedAt = q.WebhookSpec, time.Now().UTC()
	if err := h.store.write(ctx, d); err != nil {
		return none, err
	}
	h.log.Info("a webhook was replaced", "webhook", d.Name, "revision", d.Revision)
	return protocol.WebhookSecret{Webhook: d.Webhook, Secret: secret}, nil
}

// rotate gives a webhook another secret; the former one signs a while longer.
func (h *webhooks) rotate(ctx context.Context, q protocol.WebhookRotateRequest) (protocol.WebhookSecret, error) {
	none := protocol.WebhookSecret{}
	secret, err := newSecret(q.Secret)
	if err != nil {
		return none, err
	}
	d, err := h.named(ctx, q.Name)
	if err != nil {
		return none, err
	}
	if d.SecretFile != "" {
		return none, protocol.Errorf(protocol.CodeInvalidArgs, "the secret of webhook %s is in the file %s of each gateway: put another line above the one that is there, and take that out when the receiver has changed over", d.Name, d.SecretFile)
	}
	now := time.Now().UTC()
	former := webhookKey{Secret: d.Keys[0].Secret, Until: now.Add(protocol.WebhookOverlap)}
	d.Keys, d.UpdatedAt = []webhookKey{{Secret: secret}, former}, now
	if err := h.store.write(ctx, d); err != nil {
		return none, err
	}
	h.log.Info("a webhook's secret was rotated", "webhook", d.Name, "revision", d.Revision)
	return protocol.WebhookSecret{Webhook: d.Webhook, Secret: secret}, nil
}

func (h *webhooks) show(ctx context.Context, q protocol.WebhookRequest) (protocol.Webhook, error) {
	d, err := h.named(ctx, q.Name)
	if err != nil {
		return protocol.Webhook{}, err
	}
	return d.Webhook, nil
}

func (h *webhooks) remove(ctx context.Context, q protocol.WebhookRequest) (protocol.Empty, error) {
	d, err := h.named(ctx, q.Name)
	if err == nil {
		err = h.store.remove(ctx, d)
	}
	if err == nil {
		h.log.Info("a webhook was removed", "webhook", d.Name)
	}
	return protocol.Empty{}, err
}

func (h *webhooks) named(ctx context.Context, name string) (*webhookDoc, error) {
	if err := scope.CheckToken(name); err != nil {
		return nil, err
	}
	return h.store.read(ctx, name)
}

func (h *webhooks) list(ctx context.Context, q protocol.WebhooksRequest) (protocol.WebhooksPage, error) {
	page := protocol.WebhooksPage{Webhooks: []protocol.Webhook{}}
	if q.Limit <= 0 || q.Limit > maxWebhooks {
		q.Limit = maxWebhooks
	}
	all, err := h.store.all(ctx)
	for _, d := range all {
		if d.Name <= q.After {
			continue
		}
		if page.More = len(page.Webhooks) == q.Limit; page.More {
			break
		}
		page.Webhooks = append(page.Webhooks, d.Webhook)
	}
	return page, err
}

// checkWebhook refuses what could never be worked for, and gives names their
// one form.
func checkWebhook(name string, w *protocol.WebhookSpec) error {
	if err := scope.CheckToken(name); err != nil {
		return err
	}
	if err := checkURL(w.URL); err != nil {
		return err
	}
	if err := checkSource(w); err != nil {
		return err
	}
	if err := checkSecretFile(w.SecretFile); err != nil {
		return err
	}
	for _, n := range []struct {
		field    string
		is, most int64
	}{
		{"concurrency", int64(w.Concurrency), protocol.MaxConcurrency},
		{"max_retries", int64(w.MaxRetries), protocol.MaxMaxRetries},
		{"backoff_ms", w.BackoffMs, maxBackoffMs},
		{"timeout_ms", w.TimeoutMs, protocol.DefaultTimeoutMs},
	} {
		if n.is < 0 || n.is > n.most {
			return protocol.Errorf(protocol.CodeInvalidArgs, "%s is %d: it is 1 to %d, or left out for the default", n.field, n.is, n.most)
		}
	}
	switch w.Type {
	case "", protocol.TypeConcurrent, protocol.TypeStandard, protocol.TypeFIFO:
		return nil
	default:
		return protocol.Errorf(protocol.CodeInvalidArgs, "type is %.64q: it is %s or %s", w.Type, protocol.TypeStandard, protocol.TypeFIFO)
	}
}

// checkURL refuses what cannot be posted to, or would show a password wherever
// the webhook is shown.
func checkURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case len(text) > maxURL:
		return protocol.Errorf(protocol.CodeInvalidArgs, "the url has %d bytes, more than %d", len(text), maxURL)
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return protocol.Errorf(protocol.CodeInvalidArgs, "the url is not that of a web server: it is such as https://example.com/hook")
	case u.User != nil:
		return protocol.Errorf(protocol.CodeInvalidArgs, "the url has a user in it, and it is shown to whoever lists webhooks: check the signature instead")
	case u.Fragment != "":
		return protocol.Errorf(protocol.CodeInvalidArgs, "the url has a fragment (#), which no server receives: leave it out")
	}
	return nil
}

func checkSource(w *protocol.WebhookSpec) (err error) {
	if err := scope.CheckReserved(w.Execution + w.Topic); err != nil { // it has one of them
		return err
	}
	switch {
	case w.Topic == "" && w.Execution != "" && w.Route != "" && w.ObserverID+w.Group == "":
		w.Route, err = scope.Route(w.Execution, w.Route)
		return err
	case w.Topic == "" || w.Execution+w.Route != "" || w.ObserverID != "" && w.Group != "":
		return protocol.Errorf(protocol.CodeInvalidArgs, "a webhook handles the messages of an execution and a route, or those of a topic, as an observer_id or a group: give one of these")
	}
	if w.Topic, err = scope.Topic(w.Topic); err != nil {
		return err
	}
	if w.ObserverID != "" {
		return scope.CheckObserver(w.ObserverID)
	}
	if w.Group != "" {
		return scope.CheckGroup(w.Group)
	}
	return nil
}
