package http_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waybill-mq/waybill/internal/operate"
	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/test/harness"
)

const api = "/api/v1"

const traced = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"

func TestAPayloadArrivesByteForByteWithItsHeaders(t *testing.T) {
	t.Parallel()
	m := harness.Start(t)
	came := deliveries(t, m, "e", "files.parse")
	for _, payload := range []string{"", "plain", "{\"not\": json", "\x00\xff\r\n\x00"} {
		ack := read[protocol.PublishAck](t, call(t, m.HTTP, "POST", api+"/queues/e/files.parse/messages", payload,
			"Waybill-Header-Colour", "blue", "Waybill-Header-X-Y", "ä", "Content-Type", "application/x-thing", "X-Correlation-Id", "c1",
			"Traceparent", traced, "Baggage", "a=b", "Waybill-Group", "g", "Waybill-Priority", "7", "X-Other", "not passed"), http.StatusOK)
		d := harness.Receive(t, "a delivery", came)
		if string(d.Data) != payload || d.ID != ack.MessageID || d.Group != "g" || d.Priority != 7 {
			t.Errorf("got %q of group %q, priority %d", d.Data, d.Group, d.Priority)
		}
		want := map[string]string{"colour": "blue", "x-y": "ä", "content-type": "application/x-thing", "x-correlation-id": "c1", "traceparent": traced, "baggage": "a=b"}
		got := d.Headers()
		if got["traceparent"] != traced { // the trace may go on with spans of the mesh's own
			if !strings.HasPrefix(got["traceparent"], traced[:35]) {
				t.Errorf("the trace is %q", got["traceparent"])
			}
			want["traceparent"] = got["traceparent"]
		}
		if !maps.Equal(got, want) {
			t.Errorf("headers %v, want %v", got, want)
		}
		if ack.Durability != protocol.DurabilityFsync || ack.Listeners != 1 || ack.Broker == "" {
			t.Errorf("acknowledged with %+v", ack)
		}
	}
}

func TestPublishingAgainAndForLater(t *testing.T) {
	t.Parallel()
	m := harness.Start(t)
	publish := func(headers ...string) protocol.PublishAck {
		t.Helper()
		return read[protocol.PublishAck](t, call(t, m.HTTP, "POST", api+"/queues/e/r/messages", "x", headers...), http.StatusOK)
	}
	first, second := publish("Nats-Msg-Id", "one"), publish("Nats-Msg-Id", "one")
	if first.Duplicate || !second.Duplicate || first.MessageID != second.MessageID {
		t.Errorf("published twice: %+v, then %+v", first, second)
	}
	due := time.Now().Add(time.Hour).Truncate(time.Second).UTC()
	later := publish("Waybill-Deliver-At", due.Format(time.RFC3339))
	delayed := publish("Waybill-Delay-Ms", "7200000")
	var page protocol.WaitingPage
	harness.Await(t, "both wait", func() bool {
		page = read[protocol.WaitingPage](t, call(t, m.HTTP, "GET", api+"/waiting?queue=e/r", ""), http.StatusOK)
		return len(page.Messages) == 2
	})
	if got := page.Messages[0]; got.MessageID != later.MessageID || !got.Due.Equal(due) || got.Why != protocol.WaitsForSchedule {
		t.Errorf("first due: %+v, want %s at %v", got, later.MessageID, due)
	}
	came := deliveries(t, m, "e", "r")
	if d := harness.Receive(t, "the one that does not wait", came); d.ID != first.MessageID {
		t.Errorf("%s came, want %s", d.ID, first.MessageID)
	}
	act := func(verb string, document map[string]any) int64 {
		t.Helper()
		return read[protocol.WaitingActReply](t, send(t, m.HTTP, "POST", api+"/waiting/"+verb, document), http.StatusOK).Count
	}
	if n := act("release", map[string]any{"message_id": delayed.MessageID}); n != 1 {
		t.Errorf("%d released", n)
	}
	if d := harness.Receive(t, "the one that was released", came); d.ID != delayed.MessageID || d.Attempt != 1 {
		t.Errorf("%s came for the %d. time, want %s", d.ID, d.Attempt, delayed.MessageID)
	}
	if n := act("cancel", map[string]any{"execution": "e"}); n != 1 {
		t.Errorf("%d cancelled", n)
	}
}

func TestABatchSaysWhatBecameOfEach(t *testing.T) {
	t.Parallel()
	m := harness.Start(t)
	came := deliveries(t, m, "e", "r")
	out := read[struct {
		Results []struct {
			Ack   *protocol.PublishAck
			Error *protocol.Error
		}
		Failed int
	}](t, send(t, m.HTTP, "POST", api+"/messages", map[string]any{"messages": []map[string]any{
		{"execution": "e", "route": "r", "payload": "1", "headers": map[string]string{"Some-Case": "kept"}},
		{"execution": "e", "route": "no such route!"},
		{"topic": "t", "payload": "2"},
		{"topic": "t", "execution": "e", "route": "r"},
		{"execution": "e", "route": "r", "payload_base64": []byte{0xff, 0}},
		{"execution": "e", "route": "r", "headers": map[string]string{"Nats-X": "1"}},
		{"execution": "e", "route": "r", "dedup_id": "a\nb"},
	}}), http.StatusOK)
	if len(out.Results) != 7 || out.Failed != 4 {
		t.Fatalf("got %+v", out)
	}
	for i, code := range map[int]protocol.Code{1: protocol.CodeInvalidName, 3: protocol.CodeInvalidArgs, 5: protocol.CodeReservedHeader, 6: protocol.CodeInvalidArgs} {
		if r := out.Results[i]; r.Ack != nil || r.Error == nil || r.Error.Code != code {
			t.Errorf("message %d: %+v, want %s", i, r, code)
		}
	}
	one, two := harness.Receive(t, "the first", came), harness.Receive(t, "the second", came)
	if string(one.Data)+string(two.Data) != "1\xff\x00" && string(two.Data)+string(one.Data) != "1\xff\x00" {
		t.Errorf("got %q and %q", one.Data, two.Data)
	}
	if one.Header("Some-Case")+two.Header("Some-Case") != "kept" {
		t.Error("the header lost its case")
	}
	if ack := out.Results[2].Ack; ack == nil || ack.Listeners != 0 {
		t.Errorf("a topic without subscribers: %+v", ack)
	}
}

// failing dead-letters n messages of a route, and returns their ids.
func failing(t *testing.T, m *harness.Mesh, execution, route string, n int) (ids []string, heal func()) {
	t.Helper()
	healed := make(chan struct{})
	_, err := m.Connect().Work(t.Context(), execution, route, func(context.Context, *client.Delivery) error {
		select {
		case <-healed:
			return nil
		default:
			return client.Reject(errors.New("no"))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		ack := read[protocol.PublishAck](t, call(t, m.HTTP, "POST", fmt.Sprintf("%s/queues/%s/%s/messages", api, execution, route), strconv.Itoa(i)), http.StatusOK)
		ids = append(ids, ack.MessageID)
	}
	harness.Await(t, "all are dead", func() bool { return dead(t, m, "?queue="+execution+"/"+route).Total == int64(n) })
	return ids, func() { close(healed) }
}

func dead(t *testing.T, m *harness.Mesh, query string) protocol.DeadPage {
	t.Helper()
	return read[protocol.DeadPage](t, call(t, m.HTTP, "GET", api+"/dead-letters"+query, ""), http.StatusOK)
}

func TestDeadLettersAreLookedAtRedrivenAndDiscarded(t *testing.T) {
	t.Parallel()
	m := harness.Start(t)
	ids, heal := failing(t, m, "e", "r", 5)
	_, _ = failing(t, m, "other", "r", 1)
	page := dead(t, m, "?queue=e/r&offset=1&limit=2")
	if page.Total != 5 || len(page.Letters) != 2 || page.Letters[0].MessageID != ids[1] || page.Letters[0].Reason != protocol.ReasonRejected {
		t.Errorf("a page: %+v", page)
	}
	letter := read[protocol.DeadLetter](t, call(t, m.HTTP, "GET", api+"/dead-letters/"+ids[0], ""), http.StatusOK)
	if string(letter.Payload) != "0" || letter.Error != "no" {
		t.Errorf("shown: %+v", letter)
	}
	problem(t, call(t, m.HTTP, "GET", api+"/dead-letters/01900000-0000-7000-8000-000000000000", ""), http.StatusNotFound, protocol.CodeNotFound)
	act := func(verb string, document map[string]any) answer {
		t.Helper()
		return send(t, m.HTTP, "POST", api+"/dead-letters/"+verb, document)
	}
	for _, unsafe := range []map[string]any{
		{}, {"all": false}, {"all": true, "queue": "e/r"}, {"message_id": ids[0], "topic": "t"}, {"queue": ""}, {"queue": "*"}, {"topic": "x y"},
	} {
		for _, verb := range []string{"redrive", "discard"} {
			if a := act(verb, unsafe); a.status != http.StatusBadRequest {
				t.Errorf("%s of %v: %d %s", verb, unsafe, a.status, a.body)
			}
		}
	}
	if n := dead(t, m, "").Total; n != 6 {
		t.Errorf("%d are left of 6 after what was refused", n)
	}
	if n := read[protocol.DeadActReply](t, act("discard", map[string]any{"message_id": ids[0]}), http.StatusOK).Count; n != 1 {
		t.Errorf("%d discarded", n)
	}
	heal()
	if n := read[protocol.DeadActReply](t, act("redrive", map[string]any{"queue": "/queue/e/r"}), http.StatusOK).Count; n != 4 {
		t.Errorf("%d redriven", n)
	}
	harness.Await(t, "what was redriven is handled", func() bool {
		q := m.Queue("e", "r")
		return q.Counters[protocol.CountAcknowledged] == 4 && q.Dead == 0
	})
	if page := dead(t, m, ""); page.Total != 1 || page.Letters[0].Queue != "/queue/other/r" {
		t.Errorf("left: %+v", page)
	}
	if n := read[protocol.DeadActReply](t, act("discard", map[string]any{"all": true}), http.StatusOK).Count; n != 1 {
		t.Errorf("%d discarded", n)
	}
}

func TestListsArePaged(t *testing.T) {
	t.Parallel()
	m := harness.Start(t)
	var want []string
	for i := range 7 {
		execution := fmt.Sprintf("run-%d", i)
		read[protocol.PublishAck](t, call(t, m.HTTP, "POST", api+"/queues/"+execution+"/r/messages", "x"), http.StatusOK)
		if i < 2 { // what waits is another service's
			read[protocol.PublishAck](t, call(t, m.HTTP, "POST", api+"/queues/"+execution+"/r/messages", "x", "Waybill-Delay-Ms", "3600000"), http.StatusOK)
		}
		want = append(want, "/queue/"+execution+"/r")
	}
	harness.Await(t, "what waits has arrived", func() bool { return m.Queue("run-0", "r").Waiting == 1 && m.Queue("run-1", "r").Waiting == 1 })
	var got []string
	for after := ""; ; {
		page := read[operate.QueuePage](t, call(t, m.HTTP, "GET", api+"/queues?limit=3&after="+after, ""), http.StatusOK)
		if len(page.Queues) > 3 {
			t.Fatalf("%d on a page of 3", len(page.Queues))
		}
		for _, q := range page.Queues {
			got = append(got, q.Queue)
			after = q.Queue
			if waits := int64(1); (q.Execution == "run-0" || q.Execution == "run-1") != (q.Waiting == waits) || q.Ready != 1 {
				t.Errorf("%+v", q)
			}
		}
		if !page.More {
			break
		}
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("got %v, want %v", got, want)
	}
	var executions []string
	for after := ""; ; {
		page := read[operate.ExecutionPage](t, call(t, m.HTTP, "GET", api+"/executions?limit=2&after="+after, ""), http.StatusOK)
		for _, e := range page.Executions {
			executions = append(executions, e.Execution)
			after = e.Execution
		}
		if !page.More {
			break
		}
	}
	if len(executions) != 7 || executions[6] != "run-6" {
		t.Errorf("executions %v", executions)
	}
	for _, bad := range []string{"queues?limit=0", "queues?limit=1001", "waiting?limit=-1", "dead-letters?offset=-1", "queues?queue=x::y", "queues?nonsense=1", "dead-letters?queue=a/b&topic=c"} {
		problem(t, call(t, m.HTTP, "GET", api+"/"+bad, ""), http.StatusBadRequest, protocol.CodeInvalidArgs)
	}
}

func TestAnExecutionIsClosedPurgedAndReopened(t *testing.T) {
	t.Parallel()
	m := harness.Start(t)
	publish := func() answer { return call(t, m.HTTP, "POST", api+"/queues/e/r/messages", "x") }
	read[protocol.PublishAck](t, publish(), http.StatusOK)
	if e := read[protocol.Execution](t, call(t, m.HTTP, "POST", api+"/executions/e/close", ""), http.StatusOK); e.State != protocol.ExecutionClosed || e.Left != 1 {
		t.Errorf("closed: %+v", e)
	}
	problem(t, publish(), http.StatusGone, protocol.CodeExecutionClosed)
	read[protocol.Execution](t, call(t, m.HTTP, "POST", api+"/executions/e/reopen", ""), http.StatusOK)
	read[protocol.PublishAck](t, publish(), http.StatusOK)
	read[protocol.Execution](t, call(t, m.HTTP, "POST", api+"/executions/e/purge", ""), http.StatusOK)
	harness.Await(t, "nothing is left", func() bool {
		page := read[operate.ExecutionPage](t, call(t, m.HTTP, "GET", api+"/executions", ""), http.StatusOK)
		return len(page.Executions) == 1 && page.Executions[0].State == protocol.ExecutionGone
	})
	problem(t, call(t, m.HTTP, "POST", api+"/executions/none/reopen", ""), http.StatusNotFound, protocol.CodeNotFound)
	problem(t, call(t, m.HTTP, "POST", api+"/executions/a.b/close", ""), http.StatusBadRequest, protocol.CodeInvalidName)
}

func TestWhoWorksAndWhatIsCounted(t *testing.T) {
	t.Parallel()
	m := harness.Start(t)
	deliveries(t, m, "e", "r")
	subscriptions := read[protocol.SubscriptionsPage](t, call(t, m.HTTP, "GET", api+"/subscriptions?execution=e", ""), http.StatusOK)
	workers := read[protocol.WorkersPage](t, call(t, m.HTTP, "GET", api+"/workers", ""), http.StatusOK)
	if len(subscriptions.Subscriptions) != 1 || subscriptions.Subscriptions[0].Route != "r" || len(workers.Workers) != 1 {
		t.Errorf("%+v of %+v", subscriptions, workers)
	}
	stats := read[struct{ Services []protocol.Stats }](t, call(t, m.HTTP, "GET", api+"/stats", ""), http.StatusOK)
	ready := read[struct {
		Ready    bool
		Services []protocol.Ready
	}](t, call(t, m.HTTP, "GET", api+"/ready", ""), http.StatusOK)
	if len(stats.Services) != 5 || !ready.Ready || len(ready.Services) != 5 {
		t.Errorf("stats %+v, ready %+v", stats, ready)
	}
}

func TestAFunctionIsCalled(t *testing.T) {
	t.Parallel()
	m := harness.Start(t)
	_, err := m.Connect().Handle(t.Context(), "default", "shout", func(_ context.Context, input []byte) ([]byte, error) {
		if len(input) == 0 {
			return nil, errors.New("nothing to shout")
		}
		return append([]byte("\x00"), strings.ToUpper(string(input))...), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if a := call(t, m.HTTP, "POST", api+"/functions/default/shout", "hey"); a.status != http.StatusOK || string(a.body) != "\x00HEY" {
		t.Errorf("called: %d %q", a.status, a.body)
	}
	page := read[protocol.FunctionsPage](t, call(t, m.HTTP, "GET", api+"/functions?namespace=default", ""), http.StatusOK)
	if !slices.ContainsFunc(page.Functions, func(f protocol.FunctionInfo) bool { return f.ID == "shout" }) {
		t.Errorf("listed: %+v", page)
	}
	problem(t, call(t, m.HTTP, "POST", api+"/functions/default/shout", ""), http.StatusBadGateway, protocol.CodeFunctionFailed)
	problem(t, call(t, m.HTTP, "POST", api+"/functions/default/nobody", ""), http.StatusNotFound, protocol.CodeFunctionNotFound)
}

func TestWhatIsRefusedIsAProblemWithACode(t *testing.T) {
	t.Parallel()
	m := harness.Start(t)
	const publish = api + "/queues/e/r/messages"
	for name, refused := range map[string]struct {
		a      answer
		status int
		code   protocol.Code
	}{
		"no such path":       {call(t, m.HTTP, "GET", api+"/nonsense", ""), 404, protocol.CodeNotFound},
		"a path not plain":   {call(t, m.HTTP, "GET", api+"//queues", ""), 404, protocol.CodeNotFound},
		"no such method":     {call(t, m.HTTP, "DELETE", api+"/queues", ""), 405, protocol.CodeInvalidArgs},
		"outside":            {call(t, m.HTTP, "POST", "/healthz", ""), 405, protocol.CodeInvalidArgs},
		"name":               {call(t, m.HTTP, "POST", api+"/queues/e/r%2A/messages", ""), 400, protocol.CodeInvalidName},
		"wildcard":           {call(t, m.HTTP, "POST", api+"/queues/*/r/messages", ""), 400, protocol.CodeInvalidName},
		"token":              {call(t, m.HTTP, "POST", api+"/topics/a..b/messages", ""), 400, protocol.CodeInvalidName},
		"reserved":           {call(t, m.HTTP, "POST", publish, "x", "Waybill-Header-X-Delivery-Attempt", "1"), 400, protocol.CodeReservedHeader},
		"twice":              {call(t, m.HTTP, "POST", publish, "x", "Waybill-Header-A", "1", "Waybill-Header-A", "2"), 400, protocol.CodeInvalidArgs},
		"dedup id twice":     {call(t, m.HTTP, "POST", publish, "x", "Nats-Msg-Id", "1", "nats-msg-id", "2"), 400, protocol.CodeInvalidArgs},
		"delay twice":        {call(t, m.HTTP, "POST", publish, "x", "Waybill-Delay-Ms", "1", "Waybill-Delay-Ms", "1"), 400, protocol.CodeInvalidArgs},
		"group twice":        {call(t, m.HTTP, "POST", api+"/topics/t/messages", "x", "Waybill-Group", "a", "Waybill-Group", "b"), 400, protocol.CodeInvalidArgs},
		"dedup id empty":     {call(t, m.HTTP, "POST", publish, "x", "Nats-Msg-Id", ""), 400, protocol.CodeInvalidArgs},
		"group empty":        {call(t, m.HTTP, "POST", publish, "x", "Waybill-Group", ""), 400, protocol.CodeInvalidArgs},
		"time empty":         {call(t, m.HTTP, "POST", publish, "x", "Waybill-Deliver-At", ""), 400, protocol.CodeInvalidArgs},
		"empty in a batch":   {send(t, m.HTTP, "POST", api+"/messages", map[string]any{"messages": []any{map[string]any{"topic": "t", "dedup_id": ""}}}), 400, protocol.CodeInvalidArgs},
		"content type twice": {call(t, m.HTTP, "POST", publish, "x", "Content-Type", "a/b", "Content-Type", "c/d"), 400, protocol.CodeInvalidArgs},
		"diagnosis":          {call(t, m.HTTP, "POST", api+"/queues/waybill-diagnosis-mine/r/messages", "x"), 400, protocol.CodeInvalidName},
		"diagnosis topic":    {call(t, m.HTTP, "POST", api+"/topics/waybill-diagnosis-mine.a/messages", "x"), 400, protocol.CodeInvalidName},
		"diagnosis webhook":  {send(t, m.HTTP, "POST", api+"/webhooks", document{"name": "w", "url": "http://127.0.0.1:1", "execution": "waybill-diagnosis-mine", "route": "r"}), 400, protocol.CodeInvalidName},
		"delay":              {call(t, m.HTTP, "POST", publish, "x", "Waybill-Delay-Ms", "-1"), 400, protocol.CodeInvalidArgs},
		"delay far away":     {call(t, m.HTTP, "POST", publish, "x", "Waybill-Delay-Ms", "9223372036854775807"), 400, protocol.CodeInvalidArgs},
		"both schedules":     {call(t, m.HTTP, "POST", publish, "x", "Waybill-Delay-Ms", "1", "Waybill-Deliver-At", "2030-01-01T00:00:00Z"), 400, protocol.CodeInvalidArgs},
		"no time":            {call(t, m.HTTP, "POST", publish, "x", "Waybill-Deliver-At", "tomorrow"), 400, protocol.CodeInvalidArgs},
		"priority":           {call(t, m.HTTP, "POST", publish, "x", "Waybill-Priority", "256"), 400, protocol.CodeInvalidArgs},
		"large":              {call(t, m.HTTP, "POST", publish, strings.Repeat("x", protocol.DefaultMaxPayload+1)), 413, protocol.CodePayloadTooLarge},
		"very large":         {call(t, m.HTTP, "POST", publish, strings.Repeat("x", 9<<20)), 413, protocol.CodePayloadTooLarge},
		"no JSON":            {call(t, m.HTTP, "POST", api+"/dead-letters/redrive", "{", "Content-Type", "application/json"), 400, protocol.CodeInvalidArgs},
		"no document":        {call(t, m.HTTP, "POST", api+"/dead-letters/redrive", "", "Content-Type", "application/json"), 400, protocol.CodeInvalidArgs},
		"another type":       {call(t, m.HTTP, "POST", api+"/dead-letters/redrive", "all: true", "Content-Type", "text/yaml"), 400, protocol.CodeInvalidArgs},
		"unknown field":      {send(t, m.HTTP, "POST", api+"/messages", map[string]any{"messages": []any{map[string]any{"rout": "r"}}}), 400, protocol.CodeInvalidArgs},
		"too many":           {send(t, m.HTTP, "POST", api+"/messages", map[string]any{"messages": make([]map[string]any, 1001)}), 400, protocol.CodeInvalidArgs},
		"queues of none":     {call(t, m.HTTP, "GET", api+"/queues?execution=a%20b", ""), 400, protocol.CodeInvalidName},
		"waiting of none":    {call(t, m.HTTP, "GET", api+"/waiting?execution=a%2Fb", ""), 400, protocol.CodeInvalidName},
		"subscribed to none": {call(t, m.HTTP, "GET", api+"/subscriptions?execution=*", ""), 400, protocol.CodeInvalidName},
		"another host":       {call(t, m.HTTP, "GET", api+"/queues", "", "Host", "evil.example"), 403, protocol.CodeForbidden},
		"another origin":     {call(t, m.HTTP, "POST", publish, "x", "Origin", "http://evil.example"), 403, protocol.CodeForbidden},
		"a page in a frame":  {call(t, m.HTTP, "POST", publish, "x", "Origin", "null"), 403, protocol.CodeForbidden},
		"another site":       {call(t, m.HTTP, "POST", publish, "x", "Sec-Fetch-Site", "cross-site"), 403, protocol.CodeForbidden},
		"another port":       {call(t, m.HTTP, "POST", publish, "x", "Sec-Fetch-Site", "same-site"), 403, protocol.CodeForbidden},
		"removed cross-site": {call(t, m.HTTP, "DELETE", api+"/webhooks/w", "", "Sec-Fetch-Site", "cross-site"), 403, protocol.CodeForbidden},
	} {
		if !problem(t, refused.a, refused.status, refused.code) {
			t.Errorf("in the case: %s", name)
		}
	}
	if q := m.Queues(""); len(q) != 0 {
		t.Errorf("something was stored: %v", q)
	}
	read[protocol.PublishAck](t, call(t, m.HTTP, "POST", publish, "x", "Origin", m.HTTP, "Sec-Fetch-Site", "same-origin"), http.StatusOK)
	if a := call(t, m.HTTP, "OPTIONS", publish, "", "Origin", "http://evil.example", "Access-Control-Request-Method", "POST"); a.status != http.StatusNoContent ||
		a.header.Get("Allow") != "POST" || a.header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("OPTIONS: %d %v", a.status, a.header)
	}
	if a := call(t, m.HTTP, "HEAD", api+"/queues", ""); a.status != http.StatusOK || len(a.body) != 0 {
		t.Errorf("HEAD: %d %q", a.status, a.body)
	}
}

func TestItDescribesItself(t *testing.T) {
	t.Parallel()
	m := harness.Start(t)
	described := read[struct {
		OpenAPI string
		Paths   map[string]map[string]struct {
			OperationID string
			Summary     string
		}
	}](t, call(t, m.HTTP, "GET", "/openapi.json", ""), http.StatusOK)
	if !strings.HasPrefix(described.OpenAPI, "3.1") || described.Paths[api+"/queues/{execution}/{route}/messages"]["post"].OperationID != "publish-to-queue" {
		t.Errorf("OpenAPI %s with %d paths", described.OpenAPI, len(described.Paths))
	}
	for path, operations := range described.Paths {
		for method, o := range operations {
			if o.OperationID == "" || o.Summary == "" {
				t.Errorf("%s %s is not described", method, path)
			}
		}
	}
	if a := call(t, m.HTTP, "GET", "/openapi.yaml", ""); a.status != http.StatusOK || !strings.Contains(string(a.body), "publish-to-queue") {
		t.Errorf("as YAML: %d", a.status)
	}
	docs := call(t, m.HTTP, "GET", "/docs/", "")
	if docs.status != http.StatusOK || strings.Contains(string(docs.body), "//cdn") || strings.Contains(string(docs.body), "unpkg") {
		t.Errorf("the page for people: %d\n%s", docs.status, docs.body)
	}
	for _, part := range []string{"swagger-ui.css", "swagger-ui-bundle.js"} {
		if a := call(t, m.HTTP, "GET", "/docs/"+part, ""); a.status != http.StatusOK || len(a.body) == 0 || !strings.Contains(string(docs.body), part) {
			t.Errorf("%s is not served here: %d", part, a.status)
		}
	}
	if !json.Valid(call(t, m.HTTP, "GET", "/openapi.json", "").body) {
		t.Error("no JSON")
	}
}
