package main

import (
	"os"
	"runtime/pprof"
)

// profiler writes this process's profiles.
type profiler struct{ cpu *os.File }

// start begins a CPU profile in prefix.cpu and writes what was allocated until
// now to prefix.before, for `go tool pprof -base`.
func (p *profiler) start(prefix string) (err error) {
	if err := writeAllocations(prefix + ".before"); err != nil {
		return err
	}
	if p.cpu, err = os.Create(prefix + ".cpu"); err != nil {
		return err
	}
	return pprof.StartCPUProfile(p.cpu)
}

// stop ends it and writes what was allocated to prefix.allocs.
func (p *profiler) stop(prefix string) error {
	pprof.StopCPUProfile()
	if err := p.cpu.Close(); err != nil {
		return err
	}
	return writeAllocations(prefix + ".allocs")
}

func writeAllocations(file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	if err := pprof.Lookup("allocs").WriteTo(f, 0); err != nil {
		return err
	}
	return f.Close()
}
