package natsserver_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/waybill-mq/waybill/internal/natsserver"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

func mustStart(t *testing.T, dir string) *natsserver.Server {
	t.Helper()
	s, err := natsserver.Start(t.Context(), natsserver.Options{DataDir: dir, Port: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mustStop(t, s) })
	return s
}

func mustStop(t *testing.T, s *natsserver.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		t.Error(err)
	}
}

func mustConnect(t *testing.T, s *natsserver.Server, opts ...nats.Option) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(s.URL(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func mustStore(t *testing.T, s *natsserver.Server, messages int) {
	t.Helper()
	js := mustConnect(t, s)
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}); err != nil {
		t.Fatal(err)
	}
	for range messages {
		if _, err := js.Publish(t.Context(), "s", bytes.Repeat([]byte("x"), 100)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWhatIsAnsweredSurvivesARestart(t *testing.T) {
	dir := t.TempDir()
	first := mustStart(t, dir)
	mustStore(t, first, 10)
	mustStop(t, first)

	second := mustStart(t, dir)
	if second.Name() != first.Name() {
		t.Errorf("the server's name changed from %s to %s", first.Name(), second.Name())
	}
	st, err := mustConnect(t, second, nats.InProcessServer(second.InProcess())).Stream(t.Context(), "S")
	if err != nil {
		t.Fatal(err)
	}
	if n := st.CachedInfo().State.Msgs; n != 10 {
		t.Errorf("%d messages, want 10", n)
	}
}

// No kill of a process shows what a power cut takes: what is asked of the disk
// before each answer is.
func TestEachAnswerIsSyncedUnlessThereIsAnInterval(t *testing.T) {
	if c := mustStart(t, t.TempDir()).JetStream(); !c.SyncAlways {
		t.Errorf("without an interval: %+v", c)
	}
	s, err := natsserver.Start(t.Context(), natsserver.Options{DataDir: t.TempDir(), Port: -1, SyncInterval: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer mustStop(t, s)
	if c := s.JetStream(); c.SyncAlways || c.SyncInterval != time.Minute {
		t.Errorf("with an interval of a minute: %+v", c)
	}
}

func TestTwoCannotShareADirectory(t *testing.T) {
	dir := t.TempDir()
	mustStart(t, dir)
	_, err := natsserver.Start(t.Context(), natsserver.Options{DataDir: dir, Port: -1})
	if protocol.CodeOf(err) != protocol.CodeConflict {
		t.Fatalf("got %v, want CONFLICT", err)
	}
	for _, want := range []string{dir, "pid " + strconv.Itoa(os.Getpid())} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not name %s", err, want)
		}
	}
}

func TestAddressesThatAreRefused(t *testing.T) {
	taken := mustStart(t, t.TempDir())
	_, port, _ := strings.Cut(strings.TrimPrefix(taken.URL(), "nats://"), ":")
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		o    natsserver.Options
		code protocol.Code
	}{
		"public":       {natsserver.Options{Host: "0.0.0.0", Port: -1}, protocol.CodeForbidden},
		"taken":        {natsserver.Options{Port: n}, protocol.CodeUnavailable},
		"no directory": {natsserver.Options{Port: -1}, protocol.CodeInvalidArgs},
	} {
		t.Run(name, func(t *testing.T) {
			if c.code != protocol.CodeInvalidArgs {
				c.o.DataDir = t.TempDir()
			}
			_, err := natsserver.Start(t.Context(), c.o)
			if protocol.CodeOf(err) != c.code {
				t.Fatalf("got %v, want %s", err, c.code)
			}
			if c.o.DataDir != "" { // and the directory is free again
				mustStart(t, c.o.DataDir)
			}
		})
	}
}

func TestAStartThatIsCancelledLeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := natsserver.Start(ctx, natsserver.Options{DataDir: dir, Port: -1}); err != nil && !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want the context's error", err)
	} else if err == nil {
		t.Fatal("a cancelled start succeeded")
	}
	mustStart(t, dir)
}

func TestMessagesUpToTheLimitPass(t *testing.T) {
	s := mustStart(t, t.TempDir())
	js := mustConnect(t, s)
	if got := js.Conn().MaxPayload(); got != natsserver.DefaultMaxPayload {
		t.Errorf("max payload is %d, want %d", got, natsserver.DefaultMaxPayload)
	}
}

func TestADamagedStoreIsNamedAndLeftAlone(t *testing.T) {
	for name, damage := range map[string]func(stream string) (file string, err error){
		"description missing": func(stream string) (string, error) {
			return filepath.Join(stream, "meta.inf"), os.Remove(filepath.Join(stream, "meta.inf"))
		},
		"checksum missing": func(stream string) (string, error) {
			return filepath.Join(stream, "meta.sum"), os.Remove(filepath.Join(stream, "meta.sum"))
		},
		"description changed": func(stream string) (string, error) {
			return filepath.Join(stream, "meta.inf"), flip(filepath.Join(stream, "meta.inf"), 10)
		},
		"a message changed": func(stream string) (string, error) {
			return filepath.Join(stream, "msgs", "1.blk"), flip(filepath.Join(stream, "msgs", "1.blk"), 100)
		},
		"a length changed": func(stream string) (string, error) {
			return filepath.Join(stream, "msgs", "1.blk"), flip(filepath.Join(stream, "msgs", "1.blk"), 2)
		},
		"a piece cut out": func(stream string) (string, error) {
			file := filepath.Join(stream, "msgs", "1.blk")
			b, err := os.ReadFile(file)
			if err != nil {
				return file, err
			}
			return file, os.WriteFile(file, append(b[:50:50], b[90:]...), 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := mustStart(t, dir)
			mustStore(t, s, 3)
			mustStop(t, s)
			file, err := damage(filepath.Join(dir, "jetstream", "$G", "streams", "S"))
			if err != nil {
				t.Fatal(err)
			}
			before := snapshot(t, filepath.Join(dir, "jetstream"))
			_, err = natsserver.Start(t.Context(), natsserver.Options{DataDir: dir, Port: -1})
			var damaged *natsserver.StoreError
			if !errors.As(err, &damaged) || damaged.File != file {
				t.Fatalf("got %v, want a StoreError of %s", err, file)
			}
			if after := snapshot(t, filepath.Join(dir, "jetstream")); after != before {
				t.Error("files were changed")
			}
			accepting, err := natsserver.Start(t.Context(), natsserver.Options{DataDir: dir, Port: -1, AcceptLoss: true})
			if err != nil {
				t.Fatalf("with the loss accepted: %v", err)
			}
			mustStop(t, accepting)
		})
	}
}

// TestACrashIsNoDamage takes the store as a crash at any moment may leave it:
// copied while it is written to, its last block cut at any byte.
func TestACrashIsNoDamage(t *testing.T) {
	dir := t.TempDir()
	s := mustStart(t, dir)
	js := mustConnect(t, s)
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s.*"}, MaxMsgsPerSubject: 1}); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var writing sync.WaitGroup
	writing.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			msg := &nats.Msg{Subject: fmt.Sprintf("s.%d", i%7), Data: bytes.Repeat([]byte{byte(i)}, i%3000)}
			if i%2 == 0 {
				msg.Header = nats.Header{"h": {"v"}}
			}
			if _, err := js.PublishMsg(context.Background(), msg); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for i := range 20 {
		crashed := t.TempDir()
		if err := os.CopyFS(filepath.Join(crashed, "jetstream"), os.DirFS(filepath.Join(dir, "jetstream"))); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		blocks, err := filepath.Glob(filepath.Join(crashed, "jetstream", "$G", "streams", "S", "msgs", "*.blk"))
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 1 && len(blocks) == 1 {
			if err := cut(blocks[0], int64(i)); err != nil {
				t.Fatal(err)
			}
		}
		restarted, err := natsserver.Start(t.Context(), natsserver.Options{DataDir: crashed, Port: -1})
		if err != nil {
			t.Fatal(err)
		}
		mustStop(t, restarted)
	}
	close(done)
	writing.Wait()
}

func TestAStreamThatWasBeingMadeIsNoDamage(t *testing.T) {
	for name, crash := range map[string]func(stream string) error{
		"no checksum":    func(stream string) error { return os.Remove(filepath.Join(stream, "meta.sum")) },
		"no description": func(stream string) error { return os.Remove(filepath.Join(stream, "meta.inf")) },
		"half of it":     func(stream string) error { return cut(filepath.Join(stream, "meta.inf"), 50) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := mustStart(t, dir)
			mustStore(t, s, 0)
			mustStop(t, s)
			if err := crash(filepath.Join(dir, "jetstream", "$G", "streams", "S")); err != nil {
				t.Fatal(err)
			}
			mustStore(t, mustStart(t, dir), 1)
		})
	}
}

// cut takes the last n bytes off a file, or all it has.
func cut(file string, n int64) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	return os.Truncate(file, max(info.Size()-n, 0))
}

// flip changes one byte of a file.
func flip(file string, offset int) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	b[offset] ^= 0x40
	return os.WriteFile(file, b, 0o600)
}

// snapshot is every file below dir with its content.
func snapshot(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		all.WriteString(path + "\x00" + string(b) + "\x00")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}
