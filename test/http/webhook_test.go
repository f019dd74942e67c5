package http_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/test/harness"
)

// called is a call of a webhook.
type called struct {
	*http.Request
	payload string
	at      time.Time
}

// target is a web server that gives each call to the test and answers as reply
// does.
type target struct {
	*httptest.Server
	calls chan called
}

func newTarget(t *testing.T, reply func(w http.ResponseWriter, c called)) *target {
	t.Helper()
	target := &target{calls: make(chan called, 1000)}
	target.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // cut off
		}
		c := called{r, string(body), time.Now()}
		target.calls <- c
		reply(w, c)
	}))
	t.Cleanup(target.Close)
	return target
}

func ok(http.ResponseWriter, called) {}

type document = map[string]any

// addWebhook defines a webhook and returns its secret.
func addWebhook(t *testing.T, m *harness.Mesh, what document) string {
	t.Helper()
	w := read[protocol.WebhookSecret](t, send(t, m.HTTP, "POST", api+"/webhooks", what), http.StatusCreated)
	if !strings.HasPrefix(w.Secret, "whsec_") || w.Revision == 0 {
		t.Fatalf("defined: %+v", w)
	}
	return w.Secret
}

func publish(t *testing.T, m *harness.Mesh, route, payload string, headers ...string) string {
	t.Helper()
	return read[protocol.PublishAck](t, call(t, m.HTTP, "POST", api+"/queues/e/"+route+"/messages", payload, headers...), http.StatusOK).MessageID
}

func verify(t *testing.T, secret string, c called) {
	t.Helper()
	w, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Verify([]byte(c.payload), c.Header); err != nil {
		t.Errorf("the signature of %v: %v", c.Header, err)
	}
}

func TestAWebhookIsCalledWithTheMessage(t *testing.T) {
	t.Parallel()
	m := harness.Start(t)
	hook := newTarget(t, ok)
	secret := addWebhook(t, m, document{"name": "w", "url": hook.URL + "/in?a=b", "execution": "e", "route": "r"})
	id := publish(t, m, "r", "\x00payload", "Content-Type", "text/x", "Waybill-Header-Colour", "blue", "Traceparent", traced,
		"Waybill-Header-Authorization", "not the gateway's", "Waybill-Header-Webhook-Signature", "v1,forged")
	c := harness.Receive(t, "the call", hook.calls)
	if c.Method != http.MethodPost || c.URL.String() != "/in?a=b" || c.payload != "\x00payload" {
		t.Errorf("%s %s with %q", c.Method, c.URL, c.payload)
	}
	for name, want := range map[string]string{
		"webhook-id": id, protocol.HeaderMessageID: id, protocol.HeaderAttempt: "1", "content-type": "text/x", "Waybill-Header-colour": "blue",
		"Waybill-Execution": "e", "Waybill-Route": "r", "Waybill-Webhook": "w", protocol.HeaderMaxRetries: "3", "Authorization": "",
	} {
		if got := c.Header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if got := c.Header.Get("Traceparent"); !strings.HasPrefix(got, traced[:35]) {
		t.Errorf("the trace is %q", got)
	}
	verify(t, secret, c)
	harness.Await(t, "it is settled", func() bool { return m.Queue("e", "r").Counters[protocol.CountAcknowledged] == 1 })
}

func TestWhatAWebhookAnswersIsTheOutcome(t *testing.T) {
	t.Parallel()
	m := harness.Start(t)
	hook := newTarget(t, func(w http.ResponseWriter, c called) {
		w.Header().Set("Location", "/elsewhere")
		var status int
		if _, err := fmt.Sscan(c.payload, &status); err != nil || status == 0 {
			panic(http.ErrAbortHandler) // the connection breaks
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, "because")
	})
	addWebhook(t, m, document{"name": "w", "url": hook.URL, "execution": "e", "route": "r", "backoff_ms": 1, "max_retries": 2})
	for payload, want := range map[string]struct {
		calls  int
		reason protocol.Reason
	}{
		"200": {1, ""}, "204": {1, ""}, "299": {1, ""},
		"400": {1, protocol.ReasonRejected}, "404": {1, protocol.ReasonRejected}, "410": {1, protocol.ReasonRejected}, "422": {1, protocol.ReasonRejected},
		"429": {2, protocol.ReasonFailed}, "500": {2, protocol.ReasonFailed}, "503": {2, protocol.ReasonFailed},
		"302": {2, protocol.ReasonFailed}, "308": {2, protocol.ReasonFailed},
		"0": {2, protocol.ReasonFailed},
	} {
		id := publish(t, m, "r", payload)
		for attempt := 1; attempt <= want.calls; attempt++ {
			if c := harness.Receive(t, "a call", hook.calls); c.URL.Path != "/" || c.Header.Get(protocol.HeaderAttempt) != strconv.Itoa(attempt) || c.Header.Get("Webhook-Id") != id {
				t.Errorf("%s: call %d was %s with %v", payload, attempt, c.URL, c.Header)
			}
		}
		if want.reason == "" {
			continue
		}
		harness.Await(t, payload+" is dead", func() bool { return dead(t, m, "").Total == 1 })
		letter := dead(t, m, "").Letters[0]
		said := payload == "0" || strings.Contains(letter.Error, payload) && strings.HasSuffix(letter.Error, ": because")
		if letter.MessageID != id || letter.Reason != want.reason || !said {
			t.Errorf("%s: %+v", payload, letter)
		}
		read[protocol.DeadActReply](t, send(t, m.HTTP, "POST", api+"/dead-letters/discard", document{"message_id": id}), http.StatusOK)
	}
	harness.Await(t, "all is settled", func() bool { return m.Queue("e", "r").Counters[protocol.CountAcknowledged] == 3 })
	for result, want := range map[string]float64{"acknowledged": 3, "rejected": 4, "failed": 12} {
		if n := m.Metric(`waybill_webhook_calls_total{result="` + result + `",webhook="w"}`); n != want {
			t.Errorf("%v calls are counted as %s, want %v", n, result, want)
		}
	}
}

// TestWhatHTTPCannotCarryIsRejected: trying again would not help, and what
// comes behind it is called with.
func TestWhatHTTPCannotCarryIsRejected(t *testing.T) {
	t.Parallel()
	m := harness.Start(t)
	hook := newTarget(t, ok)
	addWebhook(t, m, document{"name": "w", "url": hook.URL, "execution": "e", "route": "r", "backoff_ms": 1, "max_retries": 2})
	c := m.Connect()
	for _, opt := range []client.PublishOption{client.Header("a", "x\x01"), client.Header(protocol.HeaderCorrelation, "\x7f"), client.InGroup("g\x1b")} {
		if _, err := c.Publish(t.Context(), client.Queue("e", "r"), []byte("never"), opt); err != nil {
			t.Fatal(err)
		}
	}
	publish(t, m, "r", "called")
	if got := harness.Receive(t, "the call", hook.calls); got.payload != "called" {
		t.Errorf("it was called with %q", got.payload)
	}
	harness.Await(t, "the three are dead", func() bool { return dead(t, m, "").Total == 3 })
	for _, letter := range dead(t, m, "").Letters {
		if letter.Reason != protocol.ReasonRejected || letter.Attempts != 1 || !strings.Contains(letter.Error, "has a control character") {
			t.Errorf("%+v", letter)
		}
	}
}

func TestRetryAfterIsHonoured(t *testing.T) {
	t.Parallel()
	m := harness.Start(t)
	const seconds = 2
	var until sync.Map // payload → time
	hook := newTarget(t, func(w http.ResponseWriter, c called) {
		if c.Header.Get(protocol.HeaderAttempt) != "1" {
			return
		}
		after := time.Now().Add(seconds * time.Second)
		text := strconv.Itoa(seconds)
		if c.payload == "date" {
			after = after.Add(time.Second).Truncate(time.Second)
			text = after.UTC().Format(http.TimeFormat)
		}
		until.Store(c.payload, after)
		w.Header().Set("Retry-After", text)
		w.WriteHeader(map[string]int{"busy": 429, "down": 503, "date": 503}[c.payload])
	})
	addWebhook(t, m, document{"name": "w", "url": hook.URL, "execution": "e", "route": "r", "backoff_ms": 1})
	for _, payload := range []string{"busy", "down", "date"} {
		publish(t, m, "r", payload)
	}
	for range 6 {
		c := harness.Receive(t, "a call", hook.calls)
		if c.Header.Get(protocol.HeaderAttempt) == "1" {
			continue
		}
		after, known := until.Load(c.payload)
		if !known || c.at.Before(after.(time.Time)) {
			t.Errorf("%s was called again at %v, before %v", c.payload, c.at, after)
		}
	}
	harness.Await(t, "all is settled", func() bool { return m.Queue("e", "r").Counters[protocol.CountAcknowledged] == 3 })
}

func TestACallThatTakesTooLongHasFailed(t *testing.T) {
	t.Parallel()
	m := harness.Start(t)
	released := make(chan struct{})
	hook := newTarget(t, func(_ http.ResponseWriter, c called) {
		select {
		case <-c.Context().Done():
		case <-released:
		}
	})
	t.Cleanup(func() { close(released) })
	addWebhook(t, m, document{"name": "w", "url": hook.URL, "execution": "e", "route": "r", "backoff_ms": 1, "max_retries": 1, "timeout_ms": 2000})
	publish(t, m, "r", "x")
	harness.Await(t, "it is dead", func() bool { return dead(t, m, "").Total == 1 })
	if got := dead(t, m, "").Letters[0]; got.Reason != protocol.ReasonTimeout && got.Reason != protocol.ReasonFailed {
		t.Errorf("%+v", got)
	}
	c := harness.Receive(t, "the call", hook.calls)
	harness.Receive(t, "the call is given up", c.Context().Done())
}

func TestACallUnderWayAtShutdownIsHandedBackUnspent(t *testing.T) {
	t.Parallel()
	m := harness.Start(t, "--drain-timeout", "8s")
	released := make(chan struct{})
	hook := newTarget(t, func(_ http.ResponseWriter, c called) {
		select {
		case <-c.Context().Done():
		case <-released:
		}
	})
	addWebhook(t, m, document{"name": "w", "url": hook.URL, "execution": "e", "route": "r"})
	id := publish(t, m, "r", "x")
	first := harness.Receive(t, "the call", hook.calls)
	m.Terminate()
	harness.Receive(t, "the call is cut off", first.Context().Done())
	if code := m.Exit(harness.Guard); code != 0 {
		t.Errorf("the mesh ended with %d", code)
	}
	close(released)
	m.Restart()
	again := harness.Receive(t, "the call again", hook.calls)
	if again.Header.Get("Webhook-Id") != id || again.Header.Get(protocol.HeaderAttempt) != "1" {
		t.Errorf("called again with %v", again.Header)
	}
	harness.Await(t, "it is settled", func() bool {
		q := m.Queue("e", "r")
		return q.Counters[protocol.CountAcknowledged] == 1 && q.Counters[protocol.CountFailed] == 0 && q.Dead == 0
	})
}

func TestAnEndlessAnswerHoldsNothingUp(t *testing.T) {
	t.Parallel()
	m := harness.Start(t)
	hook := newTarget(t, func(w http.ResponseWriter, c called) {
		if c.payload == "failed" {
			w.WriteHeader(http.StatusInternalServerError)
		}
		for block := make([]byte, 8192); c.Context().Err() == nil; {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	})
	addWebhook(t, m, document{"name": "w", "url": hook.URL, "execution": "e", "route": "r", "max_retries": 1})
	publish(t, m, "r", "done")
	publish(t, m, "r", "failed")
	harness.Await(t, "one is settled, one dead", func() bool {
		return m.Queue("e", "r").Counters[protocol.CountAcknowledged] == 1 && dead(t, m, "").Total == 1
	})
	if letter := dead(t, m, "").Letters[0]; letter.Reason != protocol.ReasonFailed || len(letter.Error) > 1024 {
		t.Errorf("the error has %d bytes: %+v", len(letter.Error), letter)
	}
}

func TestConnectionsAreUsedAgain(t *testing.T) {
	t.Parallel()
	m := harness.Start(t)
	from := map[string]bool{}
	hook := newTarget(t, func(w http.ResponseWriter, _ called) { _, _ = w.Write(make([]byte, 16<<10)) })
	addWebhook(t, m, document{"name": "w", "url": hook.URL, "execution": "e", "route": "r", "concurrency": 1})
	for range 30 {
		publish(t, m, "r", "x")
		from[harness.Receive(t, "a call", hook.calls).RemoteAddr] = true
	}
	if len(from) != 1 {
		t.Errorf("30 calls, one after the other, took %d connections", len(from))
	}
}

func TestATopicsMessagesAreCalledWithOnce(t *testing.T) {
	t.Parallel()
	m := harness.Start(t)
	mine, observed := newTarget(t, ok), newTarget(t, ok)
	addWebhook(t, m, document{"name": "mine", "url": mine.URL, "topic": "orders"})
	addWebhook(t, m, document{"name": "observed", "url": observed.URL, "topic": "orders", "observer_id": "o1"})
	topic := func() protocol.PublishAck {
		return read[protocol.PublishAck](t, call(t, m.HTTP, "POST", api+"/topics/orders/messages", "x"), http.StatusOK)
	}
	queues := []string{"orders::@webhook:mine", "orders::observer:o1"}
	for _, queue := range queues {
		harness.Await(t, "somebody takes "+queue, func() bool { return m.QueueNamed(queue).Consumers == 1 })
	}
	ack := topic()
	if ack.Listeners != 2 {
		t.Errorf("%d listen", ack.Listeners)
	}
	for name, hook := range map[string]*target{"mine": mine, "observed": observed} {
		if c := harness.Receive(t, "the call", hook.calls); c.Header.Get("Waybill-Topic") != "orders" || c.Header.Get("Waybill-Webhook") != name || c.Header.Get("Webhook-Id") != ack.MessageID {
			t.Errorf("%s: %v", name, c.Header)
		}
	}
	for _, queue := range queues {
		harness.Await(t, queue+" is settled", func() bool { return m.QueueNamed(queue).Counters[protocol.CountAcknowledged] == 1 })
	}
}

func TestAWebhookIsChangedAndRemoved(t *testing.T) {
	t.Parallel()
	m := harness.Start(t)
	one, two := newTarget(t, ok), newTarget(t, ok)
	secret := addWebhook(t, m, document{"name": "w", "url": one.URL, "execution": "e", "route": "r"})
	problem(t, send(t, m.HTTP, "POST", api+"/webhooks", document{"name": "w", "url": two.URL, "execution": "e", "route": "r"}), http.StatusConflict, protocol.CodeConflict)
	publish(t, m, "r", "1")
	harness.Receive(t, "a call of the first", one.calls)

	shown := read[protocol.Webhook](t, call(t, m.HTTP, "GET", api+"/webhooks/w", ""), http.StatusOK)
	problem(t, send(t, m.HTTP, "PUT", api+"/webhooks/w?revision=999999", document{"url": two.URL, "execution": "e", "route": "r"}), http.StatusConflict, protocol.CodeConflict)
	moved := read[protocol.WebhookSecret](t, send(t, m.HTTP, "PUT", fmt.Sprintf("%s/webhooks/w?revision=%d", api, shown.Revision), document{"url": two.URL, "execution": "e", "route": "r"}), http.StatusOK)
	if moved.Revision <= shown.Revision || moved.Secret != "" || !moved.CreatedAt.Equal(shown.CreatedAt) {
		t.Errorf("replaced: %+v after %+v", moved, shown)
	}
	awaitCall := func(hook *target, route string) called {
		t.Helper()
		for {
			publish(t, m, route, "x")
			select {
			case c := <-hook.calls:
				return c
			case <-one.calls: // not converged yet
			case <-time.After(harness.Guard):
				t.Fatal("nobody is called")
			}
		}
	}
	verify(t, secret, awaitCall(two, "r"))

	// Another queue is another subscription.
	read[protocol.WebhookSecret](t, send(t, m.HTTP, "PUT", api+"/webhooks/w", document{"url": two.URL, "execution": "e", "route": "other"}), http.StatusOK)
	harness.Await(t, "it works on the other route alone", func() bool {
		page := read[protocol.SubscriptionsPage](t, call(t, m.HTTP, "GET", api+"/subscriptions", ""), http.StatusOK)
		return len(page.Subscriptions) == 1 && page.Subscriptions[0].Route == "other"
	})
	verify(t, secret, awaitCall(two, "other"))

	if a := call(t, m.HTTP, "DELETE", api+"/webhooks/w", ""); a.status != http.StatusNoContent {
		t.Fatalf("removed: %d %s", a.status, a.body)
	}
	harness.Await(t, "nobody works there", func() bool {
		return len(read[protocol.SubscriptionsPage](t, call(t, m.HTTP, "GET", api+"/subscriptions", ""), http.StatusOK).Subscriptions) == 0
	})
	problem(t, call(t, m.HTTP, "GET", api+"/webhooks/w", ""), http.StatusNotFound, protocol.CodeNotFound)
	problem(t, call(t, m.HTTP, "DELETE", api+"/webhooks/w", ""), http.StatusNotFound, protocol.CodeNotFound)
	if page := read[protocol.WebhooksPage](t, call(t, m.HTTP, "GET", api+"/webhooks", ""), http.StatusOK); len(page.Webhooks) != 0 {
		t.Errorf("listed: %+v", page)
	}
}

func TestASecretIsRotatedAndNeverShownAgain(t *testing.T) {
	t.Parallel()
	m := harness.Start(t, "--log-level", "debug")
	hook := newTarget(t, ok)
	const own = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	first := addWebhook(t, m, document{"name": "w", "url": hook.URL, "execution": "e", "route": "r", "secret": own})
	if first != own {
		t.Errorf("the secret is %q", first)
	}
	second := read[protocol.WebhookSecret](t, send(t, m.HTTP, "POST", api+"/webhooks/w/rotate", document{}), http.StatusOK).Secret
	signed := func(want ...string) {
		t.Helper()
		harness.Await(t, "calls are signed anew", func() bool {
			publish(t, m, "r", "x")
			return strings.Count(harness.Receive(t, "a call", hook.calls).Header.Get("Webhook-Signature"), "v1,") == len(want)
		})
		publish(t, m, "r", "x")
		c := harness.Receive(t, "a call", hook.calls)
		for _, secret := range want {
			verify(t, secret, c)
		}
	}
	signed(own, second)
	third := read[protocol.WebhookSecret](t, call(t, m.HTTP, "POST", api+"/webhooks/w/rotate", ""), http.StatusOK).Secret
	harness.Await(t, "the first secret signs no more", func() bool {
		publish(t, m, "r", "x")
		c := harness.Receive(t, "a call", hook.calls)
		w, err := standardwebhooks.NewWebhook(third)
		if err != nil {
			t.Fatal(err)
		}
		return w.Verify([]byte(c.payload), c.Header) == nil
	})
	signed(second, third)
	everything := string(call(t, m.HTTP, "GET", api+"/webhooks", "").body) + string(call(t, m.HTTP, "GET", api+"/webhooks/w", "").body) +
		string(send(t, m.HTTP, "PUT", api+"/webhooks/w", document{"url": hook.URL, "execution": "e", "route": "r"}).body) +
		string(call(t, m.HTTP, "GET", api+"/workers", "").body) + m.Process().Output()
	for _, secret := range []string{own, second, third} {
		if secret == "" || strings.Contains(everything, strings.TrimPrefix(secret, "whsec_")) {
			t.Errorf("%q is shown again", secret)
		}
	}
}

// A secret that is in a file is not stored: its name is. What the file has signs
// the next call, each line of it, and without it the webhook's messages wait.
func TestASecretIsInAFileOfTheGateway(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const first, second = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
	write := func(lines string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "bills"), []byte(lines), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m := harness.Start(t, "--webhook-secrets", dir, "--log-level", "debug")
	hook := newTarget(t, ok)
	what := document{"name": "w", "url": hook.URL, "execution": "e", "route": "r", "secret_file": "bills"}
	for _, bad := range []string{"absent", "../bills", ".bills", "a/b"} {
		problem(t, send(t, m.HTTP, "POST", api+"/webhooks", document{"name": "w", "url": hook.URL, "execution": "e", "route": "r", "secret_file": bad}), http.StatusBadRequest, protocol.CodeInvalidArgs)
	}
	for _, bad := range []string{"", "hunter2\n", strings.Repeat(first+"\n", 5)} {
		write(bad)
		if a := send(t, m.HTTP, "POST", api+"/webhooks", what); !problem(t, a, http.StatusBadRequest, protocol.CodeInvalidArgs) || strings.Contains(string(a.body), "hunter2") {
			t.Errorf("with %q in the file: %s", bad, a.body)
		}
	}
	write(first + "\n")
	w := read[protocol.WebhookSecret](t, send(t, m.HTTP, "POST", api+"/webhooks", what), http.StatusCreated)
	if w.Secret != "" || w.SecretFile != "bills" {
		t.Errorf("defined: %+v", w)
	}
	publish(t, m, "r", "x")
	verify(t, first, harness.Receive(t, "a call", hook.calls))
	write(second + "\n\n" + first + "\n")
	publish(t, m, "r", "x")
	c := harness.Receive(t, "a call", hook.calls)
	verify(t, first, c)
	verify(t, second, c)
	problem(t, send(t, m.HTTP, "POST", api+"/webhooks/w/rotate", document{}), http.StatusBadRequest, protocol.CodeInvalidArgs)
	if said := m.Run("webhook", "show", "w"); !strings.Contains(said.Stdout, "in the file bills") {
		t.Errorf("shown: %+v", said)
	}
	stored := document{"url": hook.URL, "execution": "e", "route": "r"}
	own := read[protocol.WebhookSecret](t, send(t, m.HTTP, "PUT", api+"/webhooks/w", stored), http.StatusOK).Secret
	harness.Await(t, "the stored secret signs", func() bool {
		publish(t, m, "r", "x")
		c := harness.Receive(t, "a call", hook.calls)
		w, err := standardwebhooks.NewWebhook(own)
		if err != nil {
			t.Fatal(err)
		}
		return w.Verify([]byte(c.payload), c.Header) == nil
	})
	said := m.Process().Output()
	for _, secret := range []string{first, second} {
		if strings.Contains(said, strings.TrimPrefix(secret, "whsec_")) {
			t.Error("a secret is in the log")
		}
	}
}

func TestWebhooksThatCouldNeverWorkAreRefused(t *testing.T) {
	t.Parallel()
	m := harness.Start(t)
	for name, bad := range map[string]struct {
		document
		code protocol.Code
	}{
		"name":      {document{"name": "a b", "url": "http://127.0.0.1", "topic": "t"}, protocol.CodeInvalidName},
		"scheme":    {document{"name": "w", "url": "ftp://example.com", "topic": "t"}, protocol.CodeInvalidArgs},
		"no host":   {document{"name": "w", "url": "http://", "topic": "t"}, protocol.CodeInvalidArgs},
		"relative":  {document{"name": "w", "url": "/hook", "topic": "t"}, protocol.CodeInvalidArgs},
		"user":      {document{"name": "w", "url": "http://u:p@example.com", "topic": "t"}, protocol.CodeInvalidArgs},
		"nothing":   {document{"name": "w", "url": "http://example.com"}, protocol.CodeInvalidArgs},
		"both":      {document{"name": "w", "url": "http://example.com", "topic": "t", "execution": "e", "route": "r"}, protocol.CodeInvalidArgs},
		"two names": {document{"name": "w", "url": "http://example.com", "topic": "t", "group": "g", "observer_id": "o"}, protocol.CodeInvalidArgs},
		"route":     {document{"name": "w", "url": "http://example.com", "execution": "e", "route": "r."}, protocol.CodeInvalidName},
		"negative":  {document{"name": "w", "url": "http://example.com", "topic": "t", "concurrency": -1}, protocol.CodeInvalidArgs},
		"type":      {document{"name": "w", "url": "http://example.com", "topic": "t", "type": "lifo"}, protocol.CodeInvalidArgs},
		"secret":    {document{"name": "w", "url": "http://example.com", "topic": "t", "secret": "hunter2"}, protocol.CodeInvalidArgs},
		"weak":      {document{"name": "w", "url": "http://example.com", "topic": "t", "secret": "whsec_aGVsbG8="}, protocol.CodeInvalidArgs},
	} {
		a := send(t, m.HTTP, "POST", api+"/webhooks", bad.document)
		if !problem(t, a, http.StatusBadRequest, bad.code) {
			t.Errorf("refused for its %s", name)
		}
		if strings.Contains(string(a.body), "hunter2") {
			t.Errorf("the secret is repeated: %s", a.body)
		}
	}
	problem(t, send(t, m.HTTP, "PUT", api+"/webhooks/none", document{"url": "http://example.com", "topic": "t"}), http.StatusNotFound, protocol.CodeNotFound)
}

func TestTheCommandsForWebhooks(t *testing.T) {
	t.Parallel()
	m := harness.Start(t)
	hook := newTarget(t, ok)
	run := func(args ...string) string {
		t.Helper()
		c := m.Run(args...)
		if c.Code != 0 {
			t.Fatalf("%v: exit %d\n%s%s", args, c.Code, c.Stdout, c.Stderr)
		}
		return c.Stdout
	}
	var added protocol.WebhookSecret
	if err := json.Unmarshal([]byte(run("--json", "webhook", "add", "w", hook.URL, "--queue", "e/r", "--max-retries", "5")), &added); err != nil {
		t.Fatal(err)
	}
	publish(t, m, "r", "x")
	verify(t, added.Secret, harness.Receive(t, "a call", hook.calls))
	for _, step := range []struct{ args, want string }{ // in this order: the last defines it anew
		{"webhook ls", "/queue/e/r"}, {"webhook show w", "tries          5"}, {"webhook rotate w", "secret: whsec_"},
		{"subscription ls", "webhook:w"}, {"webhook add w " + hook.URL + " --topic t --replace", "t::@webhook:w"},
	} {
		if out := run(strings.Fields(step.args)...); !strings.Contains(out, step.want) || strings.Contains(out, added.Secret) {
			t.Errorf("%s: %s", step.args, out)
		}
	}
	run("webhook", "rm", "w")
	if c := m.Run("webhook", "show", "w"); c.Code == 0 || !strings.Contains(c.Stderr, "NOT_FOUND") {
		t.Errorf("shown after it was removed: %+v", c)
	}
}

// A gateway that is killed in the middle of a call leaves its work to the
// others; one that comes finds what is defined.
func TestGatewaysShareAWebhooksWorkAndTakeOver(t *testing.T) {
	t.Parallel()
	mesh := harness.StartSeparate(t, map[string]int{"gateway": 2})
	m := mesh.Mesh
	held := make(chan struct{})
	hook := newTarget(t, func(_ http.ResponseWriter, c called) {
		select {
		case <-held:
		case <-c.Context().Done():
		}
	})
	addWebhook(t, m, document{"name": "w", "url": hook.URL, "execution": "e", "route": "r", "concurrency": 1})
	harness.Await(t, "both gateways work on it", func() bool {
		return len(read[protocol.SubscriptionsPage](t, call(t, m.HTTP, "GET", api+"/subscriptions", ""), http.StatusOK).Subscriptions) == 2
	})
	for i := range 2 {
		publish(t, m, "r", strconv.Itoa(i))
	}
	for range 2 { // one in the hands of each
		harness.Receive(t, "a call", hook.calls)
	}
	mesh.Instance("gateway-2").Kill()
	close(held)
	harness.Await(t, "all is settled", func() bool { return m.Queue("e", "r").Counters[protocol.CountAcknowledged] == 2 })
}

// An observer id belongs to one gateway at a time, and to the next when that
// one is gone.
func TestAWebhooksObserverIDIsTakenOver(t *testing.T) {
	t.Parallel()
	mesh := harness.StartSeparate(t, map[string]int{"gateway": 1})
	m := mesh.Mesh
	hook := newTarget(t, ok)
	addWebhook(t, m, document{"name": "w", "url": hook.URL, "topic": "orders", "observer_id": "o"})
	c := m.Connect()
	called := func() {
		t.Helper()
		receipt, err := c.Publish(t.Context(), client.Topic("orders"), []byte("x"))
		if err != nil {
			t.Fatal(err)
		}
		if got := harness.ReceiveWithin(t, 2*harness.Guard, "a call", hook.calls).Header.Get("Webhook-Id"); got != receipt.MessageID {
			t.Errorf("called with %s, not %s", got, receipt.MessageID)
		}
	}
	harness.Await(t, "the first gateway observes", func() bool {
		return len(read[protocol.SubscriptionsPage](t, call(t, m.HTTP, "GET", api+"/subscriptions", ""), http.StatusOK).Subscriptions) == 1
	})
	called()
	mesh.Add("gateway", "gateway-2")
	mesh.AwaitReady()
	mesh.Instance("gateway-1").Kill()
	called()
	harness.Await(t, "all is settled", func() bool { return m.QueueNamed("orders::observer:o").Counters[protocol.CountAcknowledged] == 2 })
}
