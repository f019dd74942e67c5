package natsserver_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/waybill-mq/waybill/internal/natsserver"
)

// childDir makes the test binary a server that stores messages there, and
// writes the sequence of each that was answered, until it is killed.
const childDir = "WAYBILL_TEST_CHILD_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		fmt.Fprintln(os.Stderr, child(dir, os.Stdout))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

func child(dir string, answered io.Writer) error {
	ctx := context.Background()
	s, err := natsserver.Start(ctx, natsserver.Options{DataDir: dir, Port: -1})
	if err != nil {
		return err
	}
	nc, err := nats.Connect(s.URL())
	if err != nil {
		return err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	if _, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}); err != nil {
		return err
	}
	for i := 0; ; i++ {
		ack, err := js.Publish(ctx, "s", bytes.Repeat([]byte{byte(i)}, i*997%300_000))
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(answered, ack.Sequence); err != nil {
			return err
		}
	}
}

func TestAKilledServerKeepsWhatItAnswered(t *testing.T) {
	dir := t.TempDir()
	for round := range 5 {
		last := killAfter(t, dir, 20+17*round)
		s := mustStart(t, dir)
		stream, err := mustConnect(t, s).Stream(t.Context(), "S")
		if err != nil {
			t.Fatal(err)
		}
		if got := stream.CachedInfo().State.LastSeq; got < last {
			t.Errorf("the stream ends at %d, %d was answered", got, last)
		}
		mustStop(t, s)
	}
}

// killAfter runs a child, kills it after n answers, and returns the last
// sequence it had answered.
func killAfter(t *testing.T, dir string, n int) (last uint64) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), childDir+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for i := 0; lines.Scan(); i++ {
		answered, err := strconv.ParseUint(lines.Text(), 10, 64)
		if err != nil {
			break // the line the kill cut
		}
		last = answered
		if i == n {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err == nil {
		t.Fatal("the child ended by itself")
	}
	return last
}
