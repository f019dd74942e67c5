package ledger_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/internal/ledger"
)

// blocks are the stream's block files, in order.
func blocks(t *testing.T, dir string) []string {
	t.Helper()
	var list []string
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".blk") {
			list = append(list, path)
		}
		return err
	})
	if err != nil || len(list) == 0 {
		t.Fatalf("no block files: %v", err)
	}
	return list
}

// damage changes a file with f.
func damage(t *testing.T, path string, f func([]byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, f(b), 0o600); err != nil {
		t.Fatal(err)
	}
}

func sums(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	for _, path := range blocks(t, dir) {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s %x\n", path, sha256.Sum256(data))
	}
	return b.String()
}

// TestDamageIsNamed flips a byte, and cuts a file, of a store at rest: the
// ledger is not opened, the error names what is lost, and nothing is changed.
// With the operator's word it opens without it.
func TestDamageIsNamed(t *testing.T) {
	flip := func(body string) func([]byte) []byte {
		return func(b []byte) []byte {
			i := bytes.Index(b, []byte(body))
			if i < 0 {
				t.Fatalf("%q is not in the file", body)
			}
			b[i] ^= 0x40
			return b
		}
	}
	cases := map[string]struct {
		change func([]byte) []byte
		lost   int
	}{
		"a byte flipped in the middle":  {flip("q 2"), 1},
		"a byte flipped in the last":    {flip("q 4"), 1},
		"a byte flipped in the first":   {flip("q 0"), 1},
		"the end of the file cut":       {func(b []byte) []byte { return b[:len(b)-20] }, 1},
		"the middle of the file zeroed": {func(b []byte) []byte { clear(b[len(b)/2 : len(b)/2+40]); return b }, 1},
		"half of the file cut":          {func(b []byte) []byte { return b[:len(b)/2] }, 3},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := runServer(t, dir)
			nc := connect(t, s.ClientURL())
			makeStream(t, nc)
			l := openLedger(t, nc, "test-00")
			for i := range 5 {
				l.do(func(led *ledger.Ledger) {
					_ = led.Accept(message(fmt.Sprint("q ", i)), []ledger.Meta{{Queue: "q"}}, nil, nil)
				})
				l.until(t, "a publish", func() bool { return l.commits(ledger.KindAccept) == i+1 })
			}
			l.stop()
			nc.Close()
			stopServer(s)
			damage(t, blocks(t, dir)[0], c.change)

			nc = connect(t, runServer(t, dir).ClientURL())
			before := sums(t, dir)
			_, err := tryOpen(t, nc, "test-00")
			t.Logf("%v", err)
			var d *ledger.DamageError
			if !errors.As(err, &d) || d.Ledger != "test-00" {
				t.Fatalf("it opens with %v", err)
			}
			if after := sums(t, dir); after != before {
				t.Errorf("the files were changed:\n%s\n%s", before, after)
			}
			l = openLedger(t, nc, "test-00", func(o *ledger.Options) { o.AcceptLoss = true })
			l.do(func(led *ledger.Ledger) {
				if n, _ := led.Live(); int(n) != 5-c.lost {
					t.Errorf("%d messages are left, want %d", n, 5-c.lost)
				}
			})
			l.publish(1, "q")
			l.stop()
			leftBehind(t, nc, 6-c.lost)
		})
	}
}

// leftBehind opens the ledger without the operator's word, which was needed once.
func leftBehind(t *testing.T, nc *nats.Conn, live int) {
	t.Helper()
	l, err := tryOpen(t, nc, "test-00")
	if err != nil {
		t.Fatalf("the damage is met again: %v", err)
	}
	l.do(func(led *ledger.Ledger) {
		if n, _ := led.Live(); int(n) < live {
			t.Errorf("%d messages are left, want %d", n, live)
		}
	})
	l.stop()
}
