//go:build !no_rabbitmq

package rabbitmq

import (
	"bufio"
	"net"
	"sync"
)

const (
	// wireOut is from which on what is held together is written, in bytes.
	wireOut = 32 << 10
	wireIn  = 32 << 10
)

// wire is a connection of the library's, which writes each thing by itself and reads
// little at once: many small writes cost both sides more than what is in them.
type wire struct {
	net.Conn
	in *bufio.Reader

	mu   sync.Mutex
	held int // how many hold together what they write
	out  []byte
	err  error // of a write whose writer was told it was done
}

func newWire(conn net.Conn) *wire { return &wire{Conn: conn, in: bufio.NewReaderSize(conn, wireIn)} }

// Read implements net.Conn.
func (w *wire) Read(b []byte) (int, error) { return w.in.Read(b) }

// Write implements net.Conn.
func (w *wire) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil && w.held == 0 {
		return w.Conn.Write(b)
	}
	w.out = append(w.out, b...)
	if len(w.out) >= wireOut {
		w.flush()
	}
	return len(b), w.err
}

// together has what f writes be written as one. Nothing that others write meanwhile
// waits for longer than that.
func (w *wire) together(f func()) {
	w.mu.Lock()
	w.held++
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.held--
		w.flush()
	}()
	f()
}

// flush writes what is held. mu is held.
func (w *wire) flush() {
	if w.err == nil && len(w.out) > 0 {
		_, w.err = w.Conn.Write(w.out)
	}
	w.out = w.out[:0]
}
