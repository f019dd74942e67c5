package registry

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

// Limits of a declaration.
const (
	maxDeclared = 4096                              // subscriptions, and functions, of one worker
	maxText     = 256                               // bytes of a worker's name, its SDK and a ref
	maxMillis   = int64(365 * 24 * time.Hour / 1e6) // of backoff_ms and timeout_ms: a year
	localUser   = "local"                           // of everybody, as nobody is authenticated
)

var defaultPolicy = protocol.Policy{
	MaxRetries: protocol.DefaultMaxRetries, BackoffMs: protocol.DefaultBackoffMs, TimeoutMs: protocol.DefaultTimeoutMs,
}

// declare checks a Hello and makes it the worker's record, every default
// filled in. What stays the same keeps the time since when it stands.
func declare(h *protocol.Hello, before *protocol.Worker, now time.Time) (protocol.Worker, error) {
	w := protocol.Worker{
		ID: h.WorkerID, Name: h.Name, User: localUser, SDK: h.SDK, Revision: h.Revision, Since: now, Functions: h.Functions,
	}
	if err := checkWorker(h); err != nil {
		return w, err
	}
	earlier := map[string]protocol.Subscription{}
	if before != nil {
		w.Since = before.Since
		for _, sub := range before.Subscriptions {
			earlier[sub.ID] = sub
		}
	}
	refs := make(map[string]bool, len(h.Subscriptions))
	for i := range h.Subscriptions {
		sub, err := subscribe(h.WorkerID, &h.Subscriptions[i])
		if err != nil {
			return w, err
		}
		if refs[sub.Ref] {
			return w, protocol.Errorf(protocol.CodeInvalidArgs, "two subscriptions have the ref %q: give each its own", sub.Ref)
		}
		refs[sub.Ref] = true
		sub.Since = now
		if old, ok := earlier[sub.ID]; ok && old.Queue == sub.Queue && policyOf(&old) == policyOf(&sub) {
			sub.Since = old.Since
		}
		w.Subscriptions = append(w.Subscriptions, sub)
	}
	return w, nil
}

func checkWorker(h *protocol.Hello) error {
	if err := scope.CheckToken(h.WorkerID); err != nil {
		return err
	}
	for what, text := range map[string]string{"name": h.Name, "sdk": h.SDK} {
		if err := checkText(what, text); err != nil {
			return err
		}
	}
	if len(h.Subscriptions) > maxDeclared || len(h.Functions) > maxDeclared {
		return protocol.Errorf(protocol.CodeLimitExceeded, "%d subscriptions and %d functions in one worker; at most %d of each: use several workers",
			len(h.Subscriptions), len(h.Functions), maxDeclared)
	}
	for _, f := range h.Functions {
		if err := scope.CheckNamespace(f.Namespace); err != nil {
			return err
		}
		if err := scope.CheckFunction(f.ID); err != nil {
			return err
		}
	}
	return nil
}

// checkText refuses what would spoil a listing.
func checkText(what, text string) error {
	if len(text) > maxText || !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
		return protocol.Errorf(protocol.CodeInvalidArgs, "%s has to be at most %d bytes of UTF-8 without control characters", what, maxText)
	}
	return nil
}

// subscribe checks one subscription and fills in its defaults.
func subscribe(worker string, spec *protocol.SubscriptionSpec) (protocol.Subscription, error) {
	route, err := scope.Route(spec.Execution, spec.Route)
	if err != nil {
		return protocol.Subscription{}, err
	}
	id := subscriptionID(worker, spec.Ref)
	sub := protocol.Subscription{
		ID: id, Ref: spec.Ref, Worker: worker,
		Queue: scope.ScopedName(spec.Execution, route), Execution: spec.Execution, Route: route,
		Deliver:     protocol.DeliverSubject(localUser, id),
		Concurrency: protocol.DefaultConcurrency,
		MaxRetries:  cmp.Or(spec.MaxRetries, protocol.DefaultMaxRetries),
		BackoffMs:   cmp.Or(spec.BackoffMs, protocol.DefaultBackoffMs),
		TimeoutMs:   cmp.Or(spec.TimeoutMs, protocol.DefaultTimeoutMs),
		Draining:    spec.Draining,
	}
	if spec.Concurrency != nil {
		sub.Concurrency = *spec.Concurrency
	}
	name := cmp.Or(spec.Name, route)
	sub.Name = scope.SubscriptionName(name, spec.Execution)
	if err := scope.CheckSubscription(name); err != nil {
		return sub, err
	}
	if err := order(spec, &sub); err != nil {
		return sub, err
	}
	return sub, checkNumbers(&sub)
}

func checkNumbers(sub *protocol.Subscription) error {
	if sub.Ref == "" {
		return protocol.Errorf(protocol.CodeInvalidArgs, "a subscription of %s has no ref: give each of a worker's its own", sub.Queue)
	}
	if err := checkText("ref", sub.Ref); err != nil {
		return err
	}
	for _, n := range []struct {
		name       string
		value, low int64
		high       int64
		hint       string
	}{
		{"concurrency", int64(sub.Concurrency), 0, protocol.MaxConcurrency, "0 pauses"},
		{"max_retries", int64(sub.MaxRetries), 1, protocol.MaxMaxRetries, "it is the number of failed deliveries before the dead letter"},
		{"backoff_ms", sub.BackoffMs, 1, maxMillis, "leave it out for the default"},
		{"timeout_ms", sub.TimeoutMs, 1, maxMillis, "leave it out for the default"},
	} {
		if n.value < n.low || n.value > n.high {
			return protocol.Errorf(protocol.CodeInvalidArgs, "%s of a subscription of %s is %d: it has to be from %d to %d; %s",
				n.name, sub.Queue, n.value, n.low, n.high, n.hint)
		}
	}
	return nil
}

func policyOf(sub *protocol.Subscription) protocol.Policy {
	return protocol.Policy{
		MaxRetries: sub.MaxRetries, BackoffMs: sub.BackoffMs, TimeoutMs: sub.TimeoutMs,
		Type: sub.Type, OnDeadLetter: sub.OnDeadLetter, MaxPriority: sub.MaxPriority,
	}
}

// subscriptionID is the same whenever the worker declares that ref, and as hard
// to guess as the worker's id.
func subscriptionID(worker, ref string) string {
	sum := sha256.Sum256([]byte(worker + "\x00" + ref))
	return base64.RawURLEncoding.EncodeToString(sum[:16])
}

// registered is the answer to a declaration.
func registered(w *protocol.Worker, keepalive time.Duration, warnings []string) protocol.Registered {
	r := protocol.Registered{User: w.User, KeepaliveMs: keepalive.Milliseconds(), Warnings: warnings}
	for i := range w.Subscriptions {
		sub := &w.Subscriptions[i]
		r.Subscriptions = append(r.Subscriptions, protocol.RegisteredSubscription{
			Ref: sub.Ref, ID: sub.ID, Name: sub.Name, Queue: sub.Queue, Deliver: sub.Deliver,
		})
	}
	return r
}
