package up_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/waybill-mq/waybill/cmd/waybill/up"
	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func mustStart(t *testing.T, o up.Options) *up.Mesh {
	t.Helper()
	o.Listen, o.HTTP = "127.0.0.1:0", "127.0.0.1:0"
	if o.Data == "" {
		o.Data = t.TempDir()
	}
	m, err := up.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return m
}

func TestAMessageGoesThrough(t *testing.T) {
	m := mustStart(t, up.Options{})
	c, err := client.Connect(t.Context(), m.NATS())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	got := make(chan string, 1)
	if _, err := c.Work(t.Context(), "run", "step", func(_ context.Context, d *client.Delivery) error {
		got <- string(d.Data)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	receipt, err := c.Publish(t.Context(), client.Queue("run", "step"), []byte("hello"))
	if err != nil {
		t.Fatal(err)
	}
	if receipt.Durability != protocol.DurabilityFsync || receipt.MessageID == "" {
		t.Errorf("receipt %+v", receipt)
	}
	if text := <-got; text != "hello" {
		t.Errorf("handled %q", text)
	}
}

func stop(t *testing.T, m *up.Mesh) {
	t.Helper()
	if err := m.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func TestWhatIsStoredOutlivesTheMesh(t *testing.T) {
	o := up.Options{Data: t.TempDir()}
	m := mustStart(t, o)
	c, err := client.Connect(t.Context(), m.NATS())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	if _, err := c.Publish(t.Context(), client.Queue("run", "step"), []byte("hello")); err != nil {
		t.Fatal(err)
	}
	_, err = up.Start(t.Context(), up.Options{Data: o.Data, Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0"})
	if protocol.CodeOf(err) != protocol.CodeConflict {
		t.Fatalf("a second mesh on the directory: %v", err)
	}
	stop(t, m)
	stop(t, m)
	again := mustStart(t, o)
	c, err = client.Connect(t.Context(), again.NATS())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	got := make(chan string, 1)
	if _, err := c.Work(t.Context(), "run", "step", func(_ context.Context, d *client.Delivery) error {
		got <- string(d.Data)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if text := <-got; text != "hello" {
		t.Errorf("handled %q", text)
	}
}

func TestStartAndStopManyTimes(t *testing.T) {
	data := t.TempDir()
	for range 10 {
		m := mustStart(t, up.Options{Data: data, Sync: up.Sync(time.Minute)})
		if err := m.Err(); err != nil {
			t.Fatal(err)
		}
		stop(t, m)
	}
}

func TestAnAddressThatIsTakenLeavesNothingBehind(t *testing.T) {
	m := mustStart(t, up.Options{})
	o := up.Options{Data: t.TempDir(), Listen: "127.0.0.1:0", HTTP: strings.TrimPrefix(m.HTTP(), "http://")}
	if other, err := up.Start(t.Context(), o); err == nil {
		stop(t, other)
		t.Fatal("two meshes serve HTTP on one port")
	}
	mustStart(t, up.Options{Data: o.Data}) // the directory is free again
}
