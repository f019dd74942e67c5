package live

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"syscall"
)

// ports finds n successive ports that are free. They are below those the system
// gives to clients: a client that looks for a server that is down must not be
// given the server's port, nor be connected to itself.
func ports(n int) ([]string, error) {
	const lowest, highest = 20000, 32000
	for range 100 {
		first := lowest + rand.IntN(highest-lowest-n)
		if !free(first, n) {
			continue
		}
		found := make([]string, n)
		for i := range found {
			found[i] = strconv.Itoa(first + i)
		}
		return found, nil
	}
	return nil, fmt.Errorf("no %d free ports in a row from %d to %d", n, lowest, highest)
}

func free(first, n int) bool {
	for port := first; port < first+n; port++ {
		fd, err := bound(port, 0)
		if err != nil || syscall.Close(fd) != nil {
			return false
		}
	}
	return true
}

// bound is a socket that has the port and does not listen there. With shares 0 it
// cannot be had while anybody else has it, also who was bound so.
func bound(port, shares int) (int, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		return 0, err
	}
	syscall.CloseOnExec(fd)
	err = errors.Join(
		syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, shares),
		syscall.Bind(fd, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}),
	)
	if err != nil {
		return 0, errors.Join(err, syscall.Close(fd))
	}
	return fd, nil
}

// reserve keeps the ports of a server that was killed from the servers of other tests,
// but for one that somebody has already; nobody answers there.
func (s *server) reserve() {
	for _, setting := range s.environment {
		name, value, _ := strings.Cut(setting, "=")
		port, err := strconv.Atoi(value)
		if err != nil || !strings.HasSuffix(name, "_PORT") {
			continue
		}
		if fd, err := bound(port, 1); err == nil {
			s.reserved = append(s.reserved, fd)
		}
	}
}

// release gives them back.
func (s *server) release() (err error) {
	for _, fd := range s.reserved {
		err = errors.Join(err, syscall.Close(fd))
	}
	s.reserved = nil
	return err
}
