package harness

import (
	"bufio"
	"os"
	"strconv"
	"strings"
	"testing"
)

// Memory is what a process holds, in bytes.
type Memory struct {
	Now, Peak int64
}

// Memory reads what the process holds of the machine's memory (RSS), and the
// most it has held. Only Linux tells.
func (p *Process) Memory() (m Memory) {
	p.t.Helper()
	f, err := os.Open("/proc/" + strconv.Itoa(p.PID()) + "/status")
	if err != nil {
		p.t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ":")
		switch name {
		case "VmRSS":
			m.Now = kibibytes(p.t, value)
		case "VmHWM":
			m.Peak = kibibytes(p.t, value)
		}
	}
	if m.Now == 0 || m.Peak == 0 {
		p.t.Fatalf("%s does not say what memory it has", f.Name())
	}
	return m
}

// kibibytes reads "  123 kB".
func kibibytes(t testing.TB, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(text), " kB"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n << 10
}
