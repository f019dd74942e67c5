package rabbitmq_test

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waybill-mq/waybill/test/harness"
)

// A build without the adapter does not start with it, and names what is missing.
func TestBuiltWithoutIt(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 5*harness.Guard)
	defer cancel()
	program := filepath.Join(t.TempDir(), "waybill")
	if out, err := exec.CommandContext(ctx, "go", "build", "-tags", "no_rabbitmq", "-o", program, "github.com/waybill-mq/waybill/cmd/waybill").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := exec.CommandContext(ctx, program, "up", "--data", filepath.Join(t.TempDir(), "data"), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0",
		"--config", harness.OnRabbitMQ(t, "amqp://localhost:5672")[1]).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "without the feature rabbitmq") {
		t.Errorf("it ends with %v and says %s", err, out)
	}
}
