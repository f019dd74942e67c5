package ledger

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"go.uber.org/goleak"
)

// EnvServer makes the test binary a nats-server with "<port> <directory>", so
// that it can be killed.
const EnvServer = "LEDGER_TEST_SERVER"

func TestMain(m *testing.M) {
	if port, dir, ok := strings.Cut(os.Getenv(EnvServer), " "); ok {
		serve(port, dir)
		return
	}
	goleak.VerifyTestMain(m)
}

// serve runs until the test that started it ends.
func serve(port, dir string) {
	o := &server.Options{Host: "127.0.0.1", JetStream: true, StoreDir: dir, NoSigs: true, NoLog: true, SyncAlways: true, MaxPayload: 8 << 20}
	if _, err := fmt.Sscan(port, &o.Port); err != nil {
		panic(err)
	}
	s, err := server.NewServer(o)
	if err != nil {
		panic(err)
	}
	s.Start()
	_, _ = io.Copy(io.Discard, os.Stdin)
}
