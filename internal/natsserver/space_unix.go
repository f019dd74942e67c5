//go:build unix && !netbsd && !openbsd && !solaris

package natsserver

import "syscall"

func diskSpace(dir string) (free, total int64, err error) {
	var disk syscall.Statfs_t
	if err := syscall.Statfs(dir, &disk); err != nil {
		return 0, 0, err
	}
	block := int64(disk.Bsize) //nolint:unconvert // it is of another type on other systems
	return int64(disk.Bavail) * block, int64(disk.Blocks) * block, nil
}
