//go:build !unix || netbsd || openbsd || solaris

package natsserver

import "errors"

func diskSpace(string) (free, total int64, err error) { return 0, 0, errors.ErrUnsupported }
