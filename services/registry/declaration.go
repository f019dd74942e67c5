package registry

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"slices"
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

// defaultPolicy is that of a queue whose subscriptions ask for nothing else.
func defaultPolicy(queue string) protocol.Policy {
	p := protocol.Policy{
		MaxRetries: protocol.DefaultMaxRetries, BackoffMs: protocol.DefaultBackoffMs, TimeoutMs: protocol.DefaultTimeoutMs,
	}
	switch n, _ := scope.SubscriberOf(queue); n.Kind {
	case scope.KindObserver, scope.KindGroup:
		p.TimeoutMs = protocol.DefaultObserverTimeoutMs
	case scope.KindListener:
		p.MaxRetries = 1
	default:
	}
	return p
}

// declare checks a Hello and makes it the worker's record, every default
// filled in. What stays the same keeps the time since when it stands.
func declare(h *protocol.Hello, before *protocol.Worker, now time.Time, d defaults) (protocol.Worker, error) {
	w := protocol.Worker{
		ID: h.WorkerID, Name: h.Name, Namespace: cmp.Or(h.Namespace, protocol.DefaultNamespace), User: localUser, SDK: h.SDK, Revision: h.Revision, Since: now, Functions: serve(h),
	}
	if h.Frames {
		w.Frames = deliverSubject(h, protocol.DeliverFrames)
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
	refs, observers := make(map[string]bool, len(h.Subscriptions)), make(map[string]bool)
	for i := range h.Subscriptions {
		sub, err := subscribe(h, h.Subscriptions[i], d)
		if err != nil {
			return w, err
		}
		if refs[sub.Ref] {
			return w, protocol.Errorf(protocol.CodeInvalidArgs, "two subscriptions have the ref %q: give each its own", sub.Ref)
		}
		refs[sub.Ref] = true
		if isClaimed(&sub) && observers[sub.Queue] {
			return w, protocol.Errorf(protocol.CodeInvalidArgs, "two subscriptions observe %s under the id %q: give each an id of its own, or both a group", sub.Topic, sub.ObserverID)
		}
		observers[sub.Queue] = true
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
	if h.Namespace != "" {
		if err := scope.CheckNamespace(h.Namespace); err != nil {
			return err
		}
	}
	if len(h.Subscriptions) > maxDeclared || len(h.Functions) > maxDeclared {
		return protocol.Errorf(protocol.CodeLimitExceeded, "%d subscriptions and %d functions in one worker; at most %d of each: use several workers",
			len(h.Subscriptions), len(h.Functions), maxDeclared)
	}
	for _, f := range h.Functions {
		if err := checkFunction(f.FunctionSpec); err != nil {
			return err
		}
		if f.Concurrency < 0 || f.Concurrency > protocol.MaxConcurrency {
			return protocol.Errorf(protocol.CodeInvalidArgs, "concurrency of the function %s is %d: it is from 1 to %d, or left out for as many as the queues of its jobs allow", f.ID, f.Concurrency, protocol.MaxConcurrency)
		}
	}
	return nil
}

// serve is where jobs for the worker's functions arrive, if it takes any.
func serve(h *protocol.Hello) []protocol.ServedFunction {
	var served []protocol.ServedFunction
	known := make(map[protocol.FunctionSpec]bool, len(h.Functions))
	for _, f := range h.Functions {
		if known[f.FunctionSpec] {
			continue
		}
		known[f.FunctionSpec] = true
		one := protocol.ServedFunction{DeclaredFunction: f}
		if h.Jobs {
			one.Deliver = deliverSubject(h, subscriptionID(h.WorkerID, functionRef+f.Namespace+"\x00"+f.ID))
		}
		served = append(served, one)
	}
	return served
}

// functionRef begins what no ref of a subscription can be.
const functionRef = "function\x00"

func checkFunction(f protocol.FunctionSpec) error {
	if f.IsOwn() {
		return protocol.Errorf(protocol.CodeForbidden, "%s in namespace %s is the mesh's own function: serve one of another name", f.ID, f.Namespace)
	}
	if err := scope.CheckNamespace(f.Namespace); err != nil {
		return err
	}
	return scope.CheckFunction(f.ID)
}

// checkText refuses what would spoil a listing.
func checkText(what, text string) error {
	if len(text) > maxText || !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
		return protocol.Errorf(protocol.CodeInvalidArgs, "%s has to be at most %d bytes of UTF-8 without control characters", what, maxText)
	}
	return nil
}

// subscribe checks one subscription and fills in its defaults.
func subscribe(h *protocol.Hello, asked protocol.SubscriptionSpec, d defaults) (protocol.Subscription, error) {
	spec := &asked
	if err := source(spec); err != nil {
		return protocol.Subscription{}, err
	}
	tuning, err := tune(spec)
	if err != nil {
		return protocol.Subscription{}, err
	}
	id := subscriptionID(h.WorkerID, spec.Ref)
	sub := protocol.Subscription{
		ID: id, Ref: spec.Ref, Worker: h.WorkerID, Kind: cmp.Or(spec.Kind, protocol.KindWork), Execution: spec.Execution,
		Deliver:     deliverSubject(h, id),
		Concurrency: protocol.DefaultConcurrency,
		Draining:    spec.Draining, Tuning: tuning,
	}
	if spec.Concurrency != nil {
		sub.Concurrency = *spec.Concurrency
	}
	subscribe := subscribeQueue
	switch sub.Kind {
	case protocol.KindWork:
	case protocol.KindListen, protocol.KindObserve:
		subscribe = subscribeTopic
	default:
		return sub, protocol.Errorf(protocol.CodeInvalidArgs, "a subscription is of the kind %.64q: %s, %s and %s are kinds", spec.Kind, protocol.KindWork, protocol.KindListen, protocol.KindObserve)
	}
	if err := subscribe(spec, &sub); err != nil {
		return sub, err
	}
	policy := defaultPolicy(sub.Queue)
	sub.MaxRetries = cmp.Or(spec.MaxRetries, policy.MaxRetries)
	sub.BackoffMs = cmp.Or(spec.BackoffMs, policy.BackoffMs)
	sub.TimeoutMs = cmp.Or(spec.TimeoutMs, policy.TimeoutMs)
	sub.TimeoutDefault = sub.Kind == protocol.KindObserve && spec.TimeoutMs == 0
	d.complete(spec, &sub)
	name := cmp.Or(spec.Name, sub.Route, sub.Topic)
	sub.Name = name
	if sub.Execution != "" {
		sub.Name = scope.SubscriptionName(name, sub.Execution)
	}
	if err := scope.CheckSubscription(name); err != nil {
		return sub, err
	}
	if err := order(spec, &sub); err != nil {
		return sub, err
	}
	if err := observe(spec, &sub, h); err != nil {
		return sub, err
	}
	err = checkNumbers(&sub)
	return sub, err
}

func subscribeQueue(spec *protocol.SubscriptionSpec, sub *protocol.Subscription) (err error) {
	if spec.Topic+spec.ObserverID+spec.Group != "" {
		return protocol.Errorf(protocol.CodeInvalidArgs, "a subscription to the route %q names a topic, an observer or a group: its kind is then %s or %s", spec.Route, protocol.KindListen, protocol.KindObserve)
	}
	if sub.Route, err = scope.Route(spec.Execution, spec.Route); err != nil {
		return err
	}
	if err := scope.CheckReserved(sub.Execution); err != nil {
		return err
	}
	sub.Queue = scope.ScopedName(sub.Execution, sub.Route)
	return nil
}

// subscribeTopic finds the queue of a subscription to a topic.
func subscribeTopic(spec *protocol.SubscriptionSpec, sub *protocol.Subscription) (err error) {
	if spec.Route != "" {
		return protocol.Errorf(protocol.CodeInvalidArgs, "a subscription of kind %s names the route %q: it has a topic instead", spec.Kind, spec.Route)
	}
	if spec.Execution != "" {
		if err := scope.CheckExecution(spec.Execution); err != nil {
			return err
		}
	}
	if sub.Topic, err = scope.Topic(spec.Topic); err != nil {
		return err
	}
	if err := scope.CheckReserved(sub.Topic); err != nil {
		return err
	}
	var name scope.Name
	switch {
	case sub.Kind == protocol.KindListen && (spec.ObserverID+spec.Group != "" || spec.MaxRetries > 1 || spec.BackoffMs != 0):
		return protocol.Errorf(protocol.CodeInvalidArgs, "a listener of %s has one attempt, and neither id nor group: use the kind %s for more", sub.Topic, protocol.KindObserve)
	case sub.Kind == protocol.KindListen:
		name = scope.ListenerName(sub.Topic, sub.ID)
	case spec.Group != "":
		sub.ObserverID, sub.Group = spec.ObserverID, spec.Group
		name = scope.GroupName(sub.Topic, sub.Group)
	default:
		sub.ObserverID = cmp.Or(spec.ObserverID, observerID(sub.ID))
		name = scope.ObserverName(sub.Topic, sub.ObserverID)
	}
	sub.Queue, err = scope.Ledger{}.Format(name)
	return err
}

// observerID is that of an observer who names none.
func observerID(subscription string) string {
	sum := sha256.Sum256([]byte(subscription))
	return hex.EncodeToString(sum[:16])
}

func checkNumbers(sub *protocol.Subscription) error {
	if sub.Ref == "" {
		return protocol.Errorf(protocol.CodeInvalidArgs, "a subscription of %s has no ref: give each of a worker's its own", sub.Queue)
	}
	if err := checkText("ref", sub.Ref); err != nil {
		return err
	}
	longest := maxMillis
	if sub.Kind == protocol.KindObserve {
		longest = protocol.MaxObserverTimeoutMs
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
		{"timeout_ms", sub.TimeoutMs, 1, longest, "leave it out for the default"},
	} {
		if n.value < n.low || n.value > n.high {
			return protocol.Errorf(protocol.CodeInvalidArgs, "%s of a subscription of %s is %d: it has to be from %d to %d; %s",
				n.name, sub.Queue, n.value, n.low, n.high, n.hint)
		}
	}
	return nil
}

func policyOf(sub *protocol.Subscription) protocol.Policy {
	timeout := sub.TimeoutMs
	if sub.TimeoutDefault { // the mesh's setting, and no wish of the subscription
		timeout = protocol.DefaultObserverTimeoutMs
	}
	return protocol.Policy{
		MaxRetries: sub.MaxRetries, BackoffMs: sub.BackoffMs, TimeoutMs: timeout,
		Type: sub.Type, OnDeadLetter: sub.OnDeadLetter, MaxPriority: sub.MaxPriority, Tuning: sub.Tuning,
	}
}

// deliverSubject is where deliveries arrive. Of a worker that takes frames, all
// are below one of its own, so that one subscription takes them.
func deliverSubject(h *protocol.Hello, last string) string {
	if h.Frames {
		last = subscriptionID(h.WorkerID, "") + "." + last
	}
	return protocol.DeliverSubject(localUser, last)
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
	if all, ok := strings.CutSuffix(w.Frames, protocol.DeliverFrames); ok {
		r.Deliver = all + "*"
	}
	if slices.ContainsFunc(w.Functions, func(f protocol.ServedFunction) bool { return f.Deliver != "" }) {
		r.Functions = w.Functions
	}
	for i := range w.Subscriptions {
		sub := &w.Subscriptions[i]
		r.Subscriptions = append(r.Subscriptions, protocol.RegisteredSubscription{
			Ref: sub.Ref, ID: sub.ID, Name: sub.Name, Queue: sub.Queue, Deliver: sub.Deliver,
		})
	}
	return r
}
