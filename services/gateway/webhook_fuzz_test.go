package gateway_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/gateway"
)

func FuzzRetryAfter(f *testing.F) {
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	for _, text := range []string{
		"", "0", "120", "-1", "1.5", "9223372036854775807", "99999999999999999999", " 3 ",
		"Wed, 04 Mar 2026 05:06:17 GMT", "Wednesday, 04-Mar-26 05:06:17 GMT", "Wed Mar  4 05:06:17 2026", "Fri, 31 Dec 9999 23:59:59 GMT", "Wed, 04 Mar 2020 05:06:17 GMT",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		after := gateway.RetryAfter(text, now)
		if after < 0 || after > protocol.MaxSchedule {
			t.Errorf("%q is %v", text, after)
		}
		if at, err := http.ParseTime(text); err == nil && at.After(now) && at.Sub(now) < protocol.MaxSchedule && after != at.Sub(now) {
			t.Errorf("%q is %v, not until %v", text, after, at)
		}
	})
}

func FuzzWebhook(f *testing.F) {
	f.Add("w", "https://example.com/hook?a=b", "", "", "t", "", "", 1, int64(1))
	f.Add("w", "http://127.0.0.1:8080", "e", "r", "", "", "", 0, int64(0))
	f.Add("w", "http://[::1]:0/%zz", "e", "/queue/e/r", "", "", "", -1, int64(-1))
	f.Add("w", "http://u:p@h/", "", "", "/topic/t", "o", "g", 65536, int64(1<<62))
	f.Fuzz(func(t *testing.T, name, url, execution, route, topic, observer, group string, concurrency int, ms int64) {
		w := protocol.WebhookSpec{
			URL: url, Execution: execution, Route: route, Topic: topic, ObserverID: observer, Group: group,
			Concurrency: concurrency, MaxRetries: concurrency, BackoffMs: ms, TimeoutMs: ms,
		}
		if gateway.CheckWebhook(name, &w) != nil {
			return
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.URL, http.NoBody)
		if err != nil || r.URL.User != nil || r.URL.Host == "" {
			t.Errorf("%q was taken: %v", w.URL, err)
		}
		if err := gateway.CheckWebhook(name, &w); err != nil {
			t.Errorf("taken once, then refused: %v", err)
		}
	})
}

func FuzzSecret(f *testing.F) {
	f.Add("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	f.Add("whsec_")
	f.Add("hunter2-hunter2")
	f.Fuzz(func(t *testing.T, secret string) {
		key, err := gateway.SecretKey(secret)
		if err == nil && (len(key) < 24 || len(key) > 64) {
			t.Errorf("%q is a key of %d bytes", secret, len(key))
		}
		if err != nil && len(secret) > 12 && strings.Contains(err.Error(), secret) {
			t.Errorf("the error repeats the secret: %v", err)
		}
	})
}
