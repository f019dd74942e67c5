package cli

import (
	"cmp"
	"strconv"

	"github.com/waybill-mq/waybill/internal/operate"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

type webhookCmd struct {
	Add    webhookAddCmd    `cmd:"" help:"Have the messages of a queue or a topic handled by an HTTP POST to a URL."`
	Ls     webhookLsCmd     `cmd:"" help:"List webhooks."`
	Show   webhookShowCmd   `cmd:"" help:"Show one webhook, without its secret."`
	Rotate webhookRotateCmd `cmd:"" help:"Give a webhook another secret; calls are signed with both for a day."`
	Rm     webhookRmCmd     `cmd:"" help:"Remove a webhook. What its queue holds stays there."`
}

type webhookAddCmd struct {
	Name        string `arg:"" help:"Name of the webhook: letters, digits, _ and -."`
	URL         string `arg:"" help:"Where messages are posted to: http or https."`
	Queue       string `help:"Handle the messages of this queue." placeholder:"EXECUTION/ROUTE" xor:"source"`
	Topic       string `help:"Handle a copy of each message of this topic." placeholder:"TOPIC" xor:"source"`
	ID          string `name:"id" help:"With --topic: observe under this id, one gateway at a time." placeholder:"ID"`
	Group       string `help:"With --topic: share this group's queue. Default a group of its own." placeholder:"GROUP"`
	Concurrency int    `help:"Calls at once, of each gateway. Default 10." placeholder:"N"`
	MaxRetries  int    `help:"Failed calls before the dead letter. Default 3." placeholder:"N"`
	BackoffMs   int64  `help:"Delay before the second call in milliseconds; it doubles. Default 1000." placeholder:"MS"`
	TimeoutMs   int64  `help:"Time limit of one call in milliseconds. Default 30000." placeholder:"MS"`
	FIFO        bool   `name:"fifo" help:"Handle the messages of a group in order, one at a time."`
	Secret      string `help:"Sign calls with this: whsec_ and 24 to 64 bytes in base64. Default a random one, shown once." placeholder:"SECRET" xor:"secret"`
	SecretFile  string `help:"Sign calls with what is in this file of each gateway's --webhook-secrets; no secret is stored then." placeholder:"NAME" xor:"secret"`
	Replace     bool   `help:"Define a webhook that is there anew; it keeps its secret."`
}

func (c *webhookAddCmd) Run(a *app) error {
	q := protocol.WebhookSetRequest{Name: c.Name, Secret: c.Secret, Replace: c.Replace, WebhookSpec: protocol.WebhookSpec{
		URL: c.URL, Topic: c.Topic, ObserverID: c.ID, Group: c.Group,
		Concurrency: c.Concurrency, MaxRetries: c.MaxRetries, BackoffMs: c.BackoffMs, TimeoutMs: c.TimeoutMs,
		SecretFile: c.SecretFile,
	}}
	if c.FIFO {
		q.Type = protocol.TypeFIFO
	}
	if c.Queue != "" {
		queue, err := operate.QueueName(c.Queue)
		if err != nil {
			return err
		}
		if q.Execution, q.Route, err = scope.ParseScoped(queue); err != nil {
			return err
		}
	}
	set, err := ask[protocol.WebhookSecret](a, protocol.SubjectWebhookSet, q)
	if err != nil {
		return err
	}
	return a.show(set, func() {
		a.sayf("%s handles %s with POST %s", set.Name, webhookSource(&set.Webhook), printable(set.URL))
		a.tellSecret(&set)
	})
}

// tellSecret shows a new secret, once.
func (a *app) tellSecret(w *protocol.WebhookSecret) {
	if w.Secret != "" {
		a.sayf("secret: %s", w.Secret)
		a.hintf("keep the secret: it is not shown again; it checks the header webhook-signature (Standard Webhooks)")
	}
}

// webhookSource is where a webhook's messages come from.
func webhookSource(w *protocol.Webhook) string {
	if w.Topic == "" {
		return scope.ScopedName(w.Execution, w.Route)
	}
	if w.ObserverID != "" {
		return w.Topic + "::observer:" + w.ObserverID
	}
	return w.Topic + "::@" + cmp.Or(w.Group, "webhook:"+w.Name)
}

type webhookLsCmd struct{ watching }

func (c *webhookLsCmd) Run(a *app) error { return c.watching.run(a, c.list) }

func (c *webhookLsCmd) list(a *app) error {
	all := protocol.WebhooksPage{Webhooks: []protocol.Webhook{}}
	for q := (protocol.WebhooksRequest{}); ; {
		page, err := ask[protocol.WebhooksPage](a, protocol.SubjectWebhooks, q)
		if err != nil {
			return err
		}
		all.Webhooks = append(all.Webhooks, page.Webhooks...)
		if !page.More || len(page.Webhooks) == 0 {
			break
		}
		q.After = page.Webhooks[len(page.Webhooks)-1].Name
	}
	return a.show(all.Webhooks, func() {
		if len(all.Webhooks) == 0 {
			a.sayf("no webhooks; %s makes one", command(a.flags.NATS, "webhook add NAME URL --queue EXECUTION/ROUTE"))
			return
		}
		g := newGrid("NAME", "HANDLES", "URL", "CHANGED", "REVISION")
		for _, w := range all.Webhooks {
			g.row(w.Name, webhookSource(&w), short(w.URL, 80), ago(w.UpdatedAt), w.Revision)
		}
		g.write(a.stdout)
	})
}

type webhookNamed struct {
	Name string `arg:"" help:"Name of the webhook."`
}

type webhookShowCmd struct{ webhookNamed }

func (c *webhookShowCmd) Run(a *app) error {
	w, err := ask[protocol.Webhook](a, protocol.SubjectWebhookShow, protocol.WebhookRequest{Name: c.Name})
	if err != nil {
		return err
	}
	return a.show(w, func() {
		for _, line := range [][2]string{
			{"name", w.Name}, {"handles", webhookSource(&w)}, {"url", w.URL},
			{"concurrency", strconv.Itoa(cmp.Or(w.Concurrency, protocol.DefaultConcurrency))},
			{"tries", strconv.Itoa(cmp.Or(w.MaxRetries, protocol.DefaultMaxRetries))},
			{"backoff", milliseconds(cmp.Or(w.BackoffMs, protocol.DefaultBackoffMs))},
			{"timeout", milliseconds(cmp.Or(w.TimeoutMs, protocol.DefaultWebhookTimeoutMs))},
			{"type", string(cmp.Or(w.Type, protocol.TypeStandard))}, {"secret", secretPlace(&w)},
			{"made", ago(w.CreatedAt)}, {"changed", ago(w.UpdatedAt)}, {"revision", strconv.FormatUint(w.Revision, 10)},
		} {
			a.sayf("%-14s %s", line[0], printable(line[1]))
		}
	})
}

// secretPlace is where its secret is.
func secretPlace(w *protocol.Webhook) string {
	if w.SecretFile == "" {
		return "stored in the mesh"
	}
	return "in the file " + w.SecretFile + " of each gateway"
}

type webhookRotateCmd struct {
	webhookNamed

	Secret string `help:"The new secret. Default a random one, shown once." placeholder:"SECRET"`
}

func (c *webhookRotateCmd) Run(a *app) error {
	w, err := ask[protocol.WebhookSecret](a, protocol.SubjectWebhookRotate, protocol.WebhookRotateRequest{Name: c.Name, Secret: c.Secret})
	if err != nil {
		return err
	}
	return a.show(w, func() {
		a.sayf("%s has a new secret; its calls are signed with the former one too until %s from now", w.Name, protocol.WebhookOverlap)
		a.tellSecret(&w)
	})
}

type webhookRmCmd struct{ webhookNamed }

func (c *webhookRmCmd) Run(a *app) error {
	_, err := ask[protocol.Empty](a, protocol.SubjectWebhookRemove, protocol.WebhookRequest{Name: c.Name})
	if err != nil {
		return err
	}
	return a.show(protocol.Empty{}, func() { a.sayf("%s is removed", c.Name) })
}
