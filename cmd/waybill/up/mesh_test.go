package up_test

import (
	"context"
	"testing"

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
