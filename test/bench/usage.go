package main

import (
	"fmt"
	"runtime"
	"syscall"
	"time"
)

// usage is what a process has used since it began.
type usage struct {
	CPU     time.Duration `json:"cpu_ns"`
	Mallocs uint64        `json:"mallocs"`
	Bytes   uint64        `json:"bytes"`
	PeakRSS uint64        `json:"peak_rss_kib"`
}

func usageOfThis() usage {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u := usage{Mallocs: m.Mallocs, Bytes: m.TotalAlloc}
	// The peak of getrusage would be that of whoever started this process.
	if _, err := fmt.Sscan(field("/proc/self/status", "VmHWM"), &u.PeakRSS); err != nil {
		u.PeakRSS = m.Sys >> 10
	}
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err == nil {
		u.CPU = time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	return u
}

func (u usage) since(before usage) usage {
	return usage{CPU: u.CPU - before.CPU, Mallocs: u.Mallocs - before.Mallocs, Bytes: u.Bytes - before.Bytes, PeakRSS: u.PeakRSS}
}
