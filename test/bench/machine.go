package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	natsd "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// machine is what the figures are true of.
type machine struct {
	When       time.Time     `json:"when"`
	CPU        string        `json:"cpu"`
	Cores      int           `json:"cores"`
	MemoryGiB  float64       `json:"memory_gib"`
	System     string        `json:"system"`
	Disk       string        `json:"disk"`
	Fsync      time.Duration `json:"fsync_ns"` // median, of 4 KiB
	Load       string        `json:"load"`     // before the run
	Waybill    string        `json:"waybill"`
	NATSServer string        `json:"nats_server"`
	NATSClient string        `json:"nats_client"`
	Go         string        `json:"go"`
}

// describe looks at the machine; what it cannot find out is left out.
func describe(data string) machine {
	return machine{
		When: time.Now().UTC().Truncate(time.Second), CPU: field("/proc/cpuinfo", "model name"), Cores: runtime.NumCPU(),
		MemoryGiB: memory(), System: kernel(), Disk: fileSystem(data), Fsync: fsync(data), Load: load(),
		Waybill: version, NATSServer: natsd.VERSION, NATSClient: nats.Version, Go: runtime.Version(),
	}
}

func (m *machine) String() string {
	return fmt.Sprintf("%s, %d cores, %.0f GiB; %s; %s, fsync of 4 KiB %.2f ms; load before the run %s\n"+
		"waybill %s, nats-server %s, nats.go %s, %s; %s",
		m.CPU, m.Cores, m.MemoryGiB, m.System, m.Disk, m.Fsync.Seconds()*1000, m.Load,
		m.Waybill, m.NATSServer, m.NATSClient, m.Go, m.When.Format(time.RFC3339))
}

// field is the first value of a name in one of the kernel's "name : value" files.
func field(file, name string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func memory() float64 {
	var kib float64
	if _, err := fmt.Sscan(field("/proc/meminfo", "MemTotal"), &kib); err != nil {
		return 0
	}
	return kib / (1 << 20)
}

func kernel() string {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return runtime.GOOS + "/" + runtime.GOARCH
	}
	return runtime.GOOS + "/" + runtime.GOARCH + " " + strings.TrimSpace(string(release))
}

func load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(b), " ")
	return first
}

// fileSystem names the kind of the directory's file system by its magic number.
func fileSystem(dir string) string {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return "unknown file system"
	}
	kinds := map[int64]string{0xef53: "ext4", 0x58465342: "xfs", 0x9123683e: "btrfs", 0x01021994: "tmpfs (memory: fsync costs nothing)", 0x794c7630: "overlayfs"}
	if kind, known := kinds[s.Type]; known {
		return kind
	}
	return fmt.Sprintf("file system %#x", s.Type)
}

// fsync is the median time of writing 4 KiB and waiting for the disk.
func fsync(dir string) time.Duration {
	f, err := os.Create(filepath.Join(dir, fmt.Sprintf("waybill-bench-fsync-%d", os.Getpid())))
	if err != nil {
		return 0
	}
	defer os.Remove(f.Name())
	defer f.Close()
	block := make([]byte, 4096)
	times := make([]time.Duration, 100)
	for i := range times {
		start := time.Now()
		if _, err := f.Write(block); err != nil {
			return 0
		}
		if err := f.Sync(); err != nil {
			return 0
		}
		times[i] = time.Since(start)
	}
	slices.Sort(times)
	return times[len(times)/2]
}
