package scale_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/test/harness"
)

// disk is a file system of its own, in memory. Making it takes the rights of
// root.
func disk(t *testing.T, size string) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "disk")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Fatalf("a small disk cannot be mounted on %s: %v: this test needs the rights of root", dir, err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmounting %s: %v", dir, err)
		}
	})
	return dir
}

func enlarge(t *testing.T, dir, size string) {
	t.Helper()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size="+size); err != nil {
		t.Fatal(err)
	}
}

// filling publishes numbered messages and knows which were answered.
type filling struct {
	t         *testing.T
	publisher *client.Publisher

	mu        sync.Mutex
	published int
	answered  map[int]bool
	refusals  []error
	book      *book
}

const (
	fillSize = 32 << 10
	fillMost = 8192 // messages: far more than the disk takes
)

func startFilling(t *testing.T, m *harness.Mesh) *filling {
	t.Helper()
	publisher, err := m.Connect().NewPublisher(client.Window(64), client.AnswerTimeout(5*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	return &filling{t: t, publisher: publisher, answered: make(map[int]bool), book: newBook(t, fillMost)}
}

// publish publishes the next message.
func (f *filling) publish() {
	f.t.Helper()
	f.mu.Lock()
	number := f.published
	f.published++
	f.mu.Unlock()
	if number >= fillMost {
		f.t.Fatalf("there is no end to %d messages of %d B", number, fillSize)
	}
	done := func(_ *client.Receipt, err error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if err != nil {
			f.refusals = append(f.refusals, err)
			return
		}
		f.answered[number] = true
	}
	message := client.Message{To: client.Queue("e", "r"), Data: numbered(number, fillSize)}
	if err := f.publisher.PublishFunc(f.t.Context(), message, done); err != nil {
		done(nil, err)
	}
}

// flush waits for the answers and returns the refusals since the last.
func (f *filling) flush() []error {
	f.t.Helper()
	_ = f.publisher.Flush(f.t.Context()) // it returns one of the refusals
	f.mu.Lock()
	defer f.mu.Unlock()
	refusals := f.refusals
	f.refusals = nil
	return refusals
}

// fill publishes until it is refused.
func (f *filling) fill() []error {
	f.t.Helper()
	for {
		for range 64 {
			f.publish()
		}
		if refusals := f.flush(); len(refusals) > 0 {
			return refusals
		}
	}
}

// taken publishes until a message is taken.
func (f *filling) taken() {
	f.t.Helper()
	harness.Await(f.t, "a publish is taken", func() bool {
		f.publish()
		return len(f.flush()) == 0
	})
}

// handled works the queue until all that was answered is handled. What was not
// answered is handled once or never.
func (f *filling) handled(m *harness.Mesh) {
	f.t.Helper()
	b := f.book
	c := m.Connect()
	if _, err := c.Work(f.t.Context(), "e", "r", b.handle, client.Concurrency(16)); err != nil {
		f.t.Fatal(err)
	}
	m.AwaitRest("e", harness.Guard)
	b.once(func(number int) bool { return f.answered[number] || b.times[number].Load() == 1 })
	if err := c.Close(f.t.Context()); err != nil {
		f.t.Error(err)
	}
}

// A disk that its mesh fills up: publishes are refused with a code, before there
// is too little left to work off what is stored. They are taken again when that
// is done, and when the disk grows; all that was answered is handled.
func TestDiskIsFilled(t *testing.T) {
	alone(t)
	dir := disk(t, "64m")
	m := harness.StartOn(t, filepath.Join(dir, "data"))
	f := startFilling(t, m)
	for round := range 3 {
		for _, err := range f.fill() {
			if protocol.CodeOf(err) != protocol.CodeQuotaExceeded {
				t.Fatalf("round %d: a full disk is answered with %v", round, err)
			}
		}
		if round < 2 {
			f.handled(m)
		} else {
			enlarge(t, dir, "256m")
		}
		f.taken()
	}
	f.handled(m)
	figuref(t, "a disk of 64 MiB: %d of %d messages of %d KiB taken", len(f.answered), f.published, fillSize>>10)
}

// So it is with NATS and each service in a process of its own, and two routers that
// fill the disk together.
func TestDiskOfANATSOfItsOwnIsFilled(t *testing.T) {
	alone(t)
	dir := disk(t, "64m")
	m := harness.StartSeparateOn(t, filepath.Join(dir, "data"), map[string]int{"router": 2})
	f := startFilling(t, m.Mesh)
	for _, err := range f.fill() {
		if protocol.CodeOf(err) != protocol.CodeQuotaExceeded {
			t.Fatalf("a full disk is answered with %v", err)
		}
	}
	f.handled(m.Mesh)
	f.taken()
	f.handled(m.Mesh)
}

// A disk that somebody else fills to the last byte: the mesh refuses with a code
// and goes on, or it ends and says why; with room it has all that was answered.
func TestDiskIsFilledByOthers(t *testing.T) {
	alone(t)
	dir := disk(t, "64m")
	m := harness.StartOn(t, filepath.Join(dir, "data"))
	f := startFilling(t, m)
	for range 256 {
		f.publish()
	}
	if refusals := f.flush(); len(refusals) > 0 {
		t.Fatal(refusals)
	}
	hog(t, filepath.Join(dir, "hog"))
	for _, err := range f.fill() {
		switch protocol.CodeOf(err) {
		case protocol.CodeQuotaExceeded, protocol.CodeUnavailable, protocol.CodeTimeout:
		default:
			t.Errorf("a full disk is answered with %v", err)
		}
	}
	// A lease is renewed every second, which is written.
	harness.AwaitWithin(t, harness.Guard, "the mesh ends", m.Process().Ended)
	if code := m.Exit(harness.Guard); code != 1 || !strings.Contains(m.Process().Output(), "NATS could not write to its store") {
		t.Errorf("the mesh ends with %d", code)
	}
	enlarge(t, dir, "256m")
	m.Restart()
	f.taken()
	f.handled(m)
}

// hog writes a file until the disk is full.
func hog(t *testing.T, name string) {
	t.Helper()
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for block := make([]byte, 4<<10); err == nil; {
		_, err = file.Write(block)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}
