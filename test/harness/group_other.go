//go:build unix && !linux

package harness

import "syscall"

// ownGroup lets a process and its children be killed together.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
