// Package http_test uses the gateway as its users do, over HTTP, on a mesh that
// runs as a process of its own.
package http_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// web keeps no connection that would count as left behind, and follows nothing.
var web = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// answer is what the gateway said.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// call asks a gateway; headers are pairs of name and value.
func call(t *testing.T, base, method, path, body string, headers ...string) answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Guard)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, base+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	if host := r.Header.Get("Host"); host != "" {
		r.Host = host
	}
	resp, err := web.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, text}
}

// send is call with a JSON document.
func send(t *testing.T, base, method, path string, document any) answer {
	t.Helper()
	body, err := json.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	return call(t, base, method, path, string(body), "Content-Type", "application/json")
}

// read is an answer's document, which has the status.
func read[T any](t *testing.T, a answer, status int) (document T) {
	t.Helper()
	if a.status != status {
		t.Fatalf("the answer is %d, not %d: %s", a.status, status, a.body)
	}
	if err := json.Unmarshal(a.body, &document); err != nil {
		t.Fatalf("%v in %s", err, a.body)
	}
	return document
}

// problem expects an error as RFC 9457 has it, with a code that has the status.
func problem(t *testing.T, a answer, status int, code protocol.Code) bool {
	t.Helper()
	var p struct {
		Title  string        `json:"title"`
		Status int           `json:"status"`
		Code   protocol.Code `json:"code"`
		Detail string        `json:"detail"`
	}
	if err := json.Unmarshal(a.body, &p); err != nil {
		t.Fatalf("%v in %s", err, a.body)
	}
	ok := a.status == status && p.Status == status && p.Code == code && p.Title != "" && p.Detail != "" && a.header.Get("Content-Type") == "application/problem+json"
	if !ok {
		t.Errorf("got %d %s %s, want %d %s", a.status, a.header.Get("Content-Type"), a.body, status, code)
	}
	return ok
}

// deliveries are those of a route, acknowledged.
func deliveries(t *testing.T, m *harness.Mesh, execution, route string) <-chan *client.Delivery {
	t.Helper()
	came := make(chan *client.Delivery, 100)
	_, err := m.Connect().Work(t.Context(), execution, route, func(_ context.Context, d *client.Delivery) error {
		came <- d
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return came
}
