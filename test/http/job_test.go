package http_test

import (
	"context"
	"net/http"
	"slices"
	"testing"

	"github.com/waybill-mq/waybill/internal/operate"
	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/test/harness"
)

func TestJobs(t *testing.T) {
	t.Parallel()
	m := harness.Start(t)
	const tasks = api + "/job-queues/tasks"
	for _, changed := range []bool{true, false} {
		r := read[protocol.DefineReply](t, send(t, m.HTTP, "PUT", tasks, document{"max_retries": 1}), http.StatusOK)
		if r.Queue != "tasks" || r.Changed != changed {
			t.Errorf("%+v, want changed %v", r, changed)
		}
	}
	problem(t, send(t, m.HTTP, "PUT", tasks, document{"max_retrys": 1}), http.StatusBadRequest, protocol.CodeInvalidArgs)
	listed := read[protocol.DefinitionsPage](t, call(t, m.HTTP, "GET", api+"/job-queues", ""), http.StatusOK)
	var names []string
	for _, q := range listed.Queues {
		names = append(names, q.Queue)
	}
	if !slices.Equal(names, []string{"default", "tasks"}) {
		t.Errorf("queues %v", names)
	}

	const enqueue = tasks + "/jobs?function=task::do&namespace=app"
	ack := read[protocol.PublishAck](t, call(t, m.HTTP, "POST", enqueue+"&receipt=r1", `{"n": 1}`, "Nats-Msg-Id", "a", "Waybill-Header-Kind", "first"), http.StatusOK)
	again := read[protocol.PublishAck](t, call(t, m.HTTP, "POST", enqueue, `{"n": 1}`, "Nats-Msg-Id", "a"), http.StatusOK)
	if !again.Duplicate || again.MessageID != ack.MessageID {
		t.Errorf("%+v after %+v", again, ack)
	}
	harness.Await(t, "the queue holds a job that nobody serves", func() bool {
		shown := read[operate.NamedQueue](t, call(t, m.HTTP, "GET", tasks, ""), http.StatusOK)
		return shown.Config.MaxRetries == 1 && shown.Holds.Ready == 1
	})
	problem(t, call(t, m.HTTP, "DELETE", tasks, ""), http.StatusConflict, protocol.CodeConflict)
	got := make(chan string, 1)
	_, err := m.Connect().Handle(t.Context(), "app", "task::do", func(ctx context.Context, input []byte) ([]byte, error) {
		d := client.JobOf(ctx)
		got <- d.ID + string(input) + d.Header(protocol.HeaderReceipt) + d.Header("kind")
		return nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if have, want := harness.Receive(t, "the job", got), ack.MessageID+`{"n": 1}r1first`; have != want {
		t.Errorf("%s, want %s", have, want)
	}
	harness.Await(t, "it is done", func() bool {
		return read[operate.QueuePage](t, call(t, m.HTTP, "GET", api+"/queues?queue=tasks", ""), http.StatusOK).Queues[0].Counters[protocol.CountAcknowledged] == 1
	})

	read[protocol.PublishAck](t, call(t, m.HTTP, "POST", tasks+"/jobs?function=no::body", ``), http.StatusOK)
	removed := read[protocol.QueueRemoved](t, call(t, m.HTTP, "DELETE", tasks+"?purge=true", ""), http.StatusOK)
	if !removed.Removed || removed.Discarded != 1 {
		t.Errorf("%+v", removed)
	}
	problem(t, call(t, m.HTTP, "DELETE", tasks, ""), http.StatusNotFound, protocol.CodeNotFound)
	problem(t, call(t, m.HTTP, "GET", tasks, ""), http.StatusNotFound, protocol.CodeNotFound)
	problem(t, call(t, m.HTTP, "POST", enqueue, ""), http.StatusNotFound, protocol.CodeNotFound)
	problem(t, call(t, m.HTTP, "POST", tasks+"/jobs", ""), http.StatusBadRequest, protocol.CodeInvalidArgs)
}
