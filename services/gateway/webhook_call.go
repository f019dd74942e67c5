package gateway

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/propagation"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

const (
	dialTimeout  = 5 * time.Second
	idleTargets  = 64       // connections kept to a target
	maxDrained   = 64 << 10 // bytes of an answer that are read so that its connection can be used again
	maxQuoted    = 512      // bytes of an answer that stand in the error of a failure
	targetHeader = 64 << 10
)

// newCaller is the client that calls webhooks. It follows no redirects: where
// messages go is the operator's to say.
func newCaller() *http.Client {
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			DialContext:            (&net.Dialer{Timeout: dialTimeout}).DialContext,
			TLSHandshakeTimeout:    dialTimeout,
			ForceAttemptHTTP2:      true,
			DisableCompression:     true,
			MaxIdleConnsPerHost:    idleTargets,
			IdleConnTimeout:        idleTimeout,
			MaxResponseHeaderBytes: targetHeader,
		},
	}
}

// call hands a delivery to a webhook. Its result is that of a client.Handler.
func (h *webhooks) call(ctx context.Context, d *webhookDoc, m *client.Delivery) error {
	keys, err := h.keysOf(d)
	if err != nil {
		return fmt.Errorf("webhook %s: %w", d.Name, err)
	}
	r, err := h.request(ctx, d, keys, m, time.Now())
	if err != nil {
		return client.Reject(err) // it can never be sent
	}
	resp, err := h.caller.Do(r)
	h.count(ctx, d.Name, resp)
	if err != nil {
		return fmt.Errorf("webhook %s: %w", d.Name, withoutURL(err))
	}
	defer resp.Body.Close()                                      //nolint:errcheck // what matters was read
	quote, _ := io.ReadAll(io.LimitReader(resp.Body, maxQuoted)) // what came of it
	_, _ = io.CopyN(io.Discard, resp.Body, maxDrained)
	return verdictOf(d.Name, resp, quote, time.Now())
}

// withoutURL is the error of a call without its URL, which may hold a token.
func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// count counts a call, answered or not, by what came of it.
func (h *webhooks) count(ctx context.Context, name string, resp *http.Response) {
	result := protocol.Failed
	switch {
	case resp != nil:
		result = resultOf(resp.StatusCode)
	case errors.Is(ctx.Err(), context.Canceled): // the gateway shuts down
		result = protocol.Cancelled
	}
	h.calls.WithLabelValues(name, string(result)).Inc()
}

// resultOf is what a status says of the delivery: 2xx is acknowledged; 4xx but
// 429 is rejected; all else failed, a redirect too, which is not followed.
func resultOf(status int) protocol.Outcome {
	switch {
	case status >= 200 && status < 300:
		return protocol.Acknowledged
	case status >= 400 && status < 500 && status != http.StatusTooManyRequests:
		return protocol.Rejected
	default:
		return protocol.Failed
	}
}

// verdictOf is what an answer says of the delivery. One that failed is not to be
// tried again before the Retry-After of a 429 or 5xx.
func verdictOf(name string, resp *http.Response, quote []byte, now time.Time) error {
	err := fmt.Errorf("webhook %s answered %s%s", name, resp.Status, quoted(quote))
	switch resultOf(resp.StatusCode) {
	case protocol.Acknowledged:
		return nil
	case protocol.Rejected:
		return client.Reject(err)
	default:
		if after := retryAfter(resp.Header.Get("Retry-After"), now); after > 0 && resp.StatusCode >= 400 {
			return client.RetryAfter(err, after)
		}
		return err
	}
}

func quoted(body []byte) string {
	text := strings.TrimSpace(strings.ToValidUTF8(string(body), "\uFFFD"))
	if text == "" {
		return ""
	}
	return ": " + text
}

// retryAfter reads a Retry-After, seconds or a date; 0 for none.
func retryAfter(header string, now time.Time) time.Duration {
	header = strings.TrimSpace(header)
	if seconds, err := strconv.ParseInt(header, 10, 64); err == nil {
		const most = int64(protocol.MaxSchedule / time.Second)
		return time.Duration(max(min(seconds, most), 0)) * time.Second
	}
	at, err := http.ParseTime(header)
	if err != nil {
		return 0
	}
	return max(min(at.Sub(now), protocol.MaxSchedule), 0)
}

// request is the call of one delivery at one time: the payload as it is, the
// message's headers with headerPrefix, and what is known of the delivery.
func (h *webhooks) request(ctx context.Context, d *webhookDoc, keys []webhookKey, m *client.Delivery, at time.Time) (*http.Request, error) {
	signed, err := signatures(keys, m.ID, at, m.Data)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, d.URL, bytes.NewReader(m.Data))
	if err != nil {
		return nil, err
	}
	for name, value := range m.Headers() {
		r.Header.Set(headerPrefix+name, value)
	}
	for _, name := range passed {
		if value := m.Header(name); value != "" {
			r.Header.Del(headerPrefix + name)
			r.Header.Set(name, value)
		}
	}
	r.Header.Set("Content-Type", cmp.Or(r.Header.Get("Content-Type"), octets))
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(r.Header))
	for name, value := range map[string]string{
		"User-Agent":              "Waybill",
		"webhook-id":              m.ID,
		"webhook-timestamp":       strconv.FormatInt(at.Unix(), 10),
		"webhook-signature":       signed,
		protocol.HeaderMessageID:  m.ID,
		protocol.HeaderAttempt:    strconv.Itoa(m.Attempt),
		protocol.HeaderMaxRetries: number(m.MaxRetries),
		protocol.HeaderGeneration: number(m.Generation),
		protocol.HeaderGroup:      m.Group,
		protocol.HeaderPriority:   number(int(m.Priority)),
		"Waybill-Webhook":         d.Name,
		"Waybill-Execution":       m.Execution,
		"Waybill-Route":           m.Route,
		"Waybill-Topic":           m.Topic,
	} {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	return r, checkSendable(r.Header)
}

// checkSendable refuses what NATS carries in a header and HTTP does not.
func checkSendable(headers http.Header) error {
	for name, values := range headers {
		if strings.ContainsFunc(values[0], func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }) {
			return protocol.Errorf(protocol.CodeInvalidArgs, "the message cannot be sent over HTTP: its header %s has a control character", name)
		}
	}
	return nil
}

// number is n for a header, "" for 0.
func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}
