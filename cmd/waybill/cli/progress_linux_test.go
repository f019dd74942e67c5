package cli

import (
	"bytes"
	"context"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waybill-mq/waybill/internal/mesh"
)

// terminal is a new terminal, and what was written to it so far.
func terminal(t *testing.T) (tty *os.File, written func() string) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if tty, err = os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var all bytes.Buffer
	var reading sync.WaitGroup
	reading.Go(func() {
		b := make([]byte, 4096)
		for {
			n, err := master.Read(b)
			mu.Lock()
			all.Write(b[:n])
			mu.Unlock()
			if err != nil {
				return // the other end is closed
			}
		}
	})
	t.Cleanup(func() {
		tty.Close()
		reading.Wait()
		master.Close()
	})
	return tty, func() string {
		mu.Lock()
		defer mu.Unlock()
		return all.String()
	}
}

// Long work shows on a terminal how far it is, and nowhere else.
func TestProgressOfLongWork(t *testing.T) {
	var remaining atomic.Int64
	left := func(context.Context) (int64, error) { return remaining.Load(), nil }
	for name, c := range map[string]struct {
		flags globals
		shows bool
	}{"people": {globals{}, true}, "machines": {globals{JSON: true}, false}} {
		t.Run(name, func(t *testing.T) {
			tty, written := terminal(t)
			a := &app{ctx: t.Context(), stderr: tty, flags: &c.flags}
			remaining.Store(200)
			err := a.during("redriven", left, func() error {
				remaining.Store(50)
				guard, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
				defer cancel()
				for c.shows && !strings.Contains(written(), "75.00%") {
					if !mesh.Pause(guard, 10*time.Millisecond) {
						t.Fatalf("the terminal shows %q", written())
					}
				}
				return nil
			})
			if err != nil || c.shows != strings.Contains(written(), "redriven") {
				t.Errorf("%v; the terminal shows %q", err, written())
			}
		})
	}
}

func TestNoProgressElsewhere(t *testing.T) {
	var out bytes.Buffer
	a := &app{ctx: t.Context(), stderr: &out, flags: &globals{}}
	asked := func(context.Context) (int64, error) { t.Error("it was asked what is left"); return 0, nil }
	if err := a.during("redriven", asked, func() error { return nil }); err != nil || out.Len() > 0 {
		t.Errorf("%v, %q", err, out.String())
	}
}
