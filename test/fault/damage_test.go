package fault_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/test/harness"
)

// damages are what can become of the file that holds a log.
var damages = map[string]func(path string, content []byte) error{
	"bytes changed in the middle": func(path string, content []byte) error {
		middle := len(content) / 2
		for i := range 16 {
			content[middle+i] ^= 0x55
		}
		return os.WriteFile(path, content, 0o600)
	},
	"cut short": func(path string, content []byte) error {
		return os.WriteFile(path, content[:len(content)-len(content)/3], 0o600)
	},
	"gone": func(path string, _ []byte) error { return os.Remove(path) },
	"emptied": func(path string, content []byte) error {
		return os.WriteFile(path, make([]byte, len(content)), 0o600)
	},
}

// A damaged store is found when the mesh starts, and named; the files stay as
// they are. On the operator's word the mesh starts without what is lost.
func TestDamagedStore(t *testing.T) {
	t.Parallel()
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const messages = 300
			m := harness.Start(t)
			c := m.Connect()
			for i := range messages {
				publish(t, c, "e", "r."+strconv.Itoa(i%30), []byte(strings.Repeat("x", 1000)))
			}
			m.Terminate()
			m.Exit(harness.Guard)
			path := largest(t, filepath.Join(m.Data, "jetstream"), "WAYBILL_ROUTER", ".blk")
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := damage(path, content); err != nil {
				t.Fatal(err)
			}
			refusesToStart(t, m.Data)
			m.RestartWith("--accept-loss")
			h := newHandle()
			handlesTheRest(t, m, keepsTheRest(t, m, messages), h)
			m.Terminate()
			m.RestartWith() // the word was needed once
			id := publish(t, m.Connect(), "e", "r.1", []byte("new"))
			same(t, h.next(t), id, 1, 0)
			h.answer <- nil
		})
	}
}

func refusesToStart(t *testing.T, data string) {
	t.Helper()
	before := blocks(t, data)
	p := harness.Up(t, data)
	if code := p.Exit(harness.Guard); code == 0 {
		t.Error("it ends as if nothing were")
	}
	said := p.Output()
	for _, word := range []string{"router", "waybill up --accept-loss"} {
		if !strings.Contains(strings.ToLower(said), word) {
			t.Errorf("it does not say %q", word)
		}
	}
	t.Logf("it says: %s", said)
	after := blocks(t, data)
	for path, content := range before {
		if !kept(content, after[path]) {
			t.Errorf("%s had %d bytes and has %d others", path, len(content), len(after[path]))
		}
	}
}

// kept says whether a block that was before is there after: the server may have
// cut off a record that is torn at its end, and services that start before the
// damage is met write that they did.
func kept(before, after []byte) bool {
	const record = 8 << 10 // as long as one of those published here, and more
	if len(bytes.Trim(before, "\x00")) == 0 {
		return true // nothing was there to keep
	}
	return bytes.HasPrefix(after, before) || bytes.HasPrefix(before, after) && len(before)-len(after) < record
}

// keepsTheRest says what is left of what was published.
func keepsTheRest(t *testing.T, m *harness.Mesh, published int64) (left int64) {
	t.Helper()
	for _, q := range m.Queues("e") {
		left += q.Ready
	}
	t.Logf("%d of %d messages are left", left, published)
	if left >= published {
		t.Error("nothing is lost: the damage hit nothing")
	}
	return left
}

func handlesTheRest(t *testing.T, m *harness.Mesh, left int64, h *handle) {
	t.Helper()
	c := m.Connect()
	for i := range 30 {
		work(t, c, "e", "r."+strconv.Itoa(i), h.run, client.Concurrency(1000))
	}
	for range left {
		h.next(t)
		h.answer <- nil
	}
	m.AwaitRest("e", harness.Guard)
	h.none(t)
}

// largest is the largest file below root whose path has both.
func largest(t *testing.T, root, part, suffix string) (path string) {
	t.Helper()
	size := int64(-1)
	walk(t, root, func(p string, info fs.FileInfo) {
		if strings.Contains(p, part) && strings.HasSuffix(p, suffix) && info.Size() > size {
			path, size = p, info.Size()
		}
	})
	if size <= 0 {
		t.Fatalf("no %s of %s below %s", suffix, part, root)
	}
	return path
}

// blocks are the files that hold what was stored.
func blocks(t *testing.T, data string) map[string][]byte {
	t.Helper()
	contents := make(map[string][]byte)
	walk(t, data, func(path string, _ fs.FileInfo) {
		if !strings.HasSuffix(path, ".blk") {
			return
		}
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		contents[path] = content
	})
	return contents
}

func walk(t *testing.T, root string, visit func(path string, info fs.FileInfo)) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			visit(path, info)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A data directory belongs to one process; a second one is told whose it is,
// and hurts nobody.
func TestSecondProcessOnTheDataDirectory(t *testing.T) {
	t.Parallel()
	m := harness.Start(t)
	second := harness.Up(t, m.Data)
	if code := second.Exit(harness.Guard); code == 0 {
		t.Error("the second ends as if nothing were")
	}
	pid := strconv.Itoa(m.Process().PID())
	if said := second.Output(); !strings.Contains(said, pid) || !strings.Contains(said, m.Data) {
		t.Errorf("the second does not name process %s and %s:\n%s", pid, m.Data, said)
	}
	c := m.Connect()
	h := newHandle()
	work(t, c, "e", "r", h.run)
	id := publish(t, c, "e", "r", nil)
	same(t, h.next(t), id, 1, 0)
	h.answer <- nil
}
