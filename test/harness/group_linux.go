package harness

import "syscall"

// ownGroup lets a process and its children be killed together, also if the
// test binary is.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
