//go:build unix

package webhook

import (
	"errors"
	"syscall"
)

// What a look at a quiet socket found.
const (
	foundNothing = iota
	foundData
	foundEnd
)

// peeker looks at a socket without taking anything from it. The closure is made once, so that looking allocates nothing. One goroutine
// at a time uses it.
type peeker struct {
	control func(fd uintptr)
	buf     [1]byte
	n       int
	err     error
}

func (p *peeker) prepare() {
	p.control = func(fd uintptr) {
		p.n, _, p.err = syscall.Recvfrom(int(fd), p.buf[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	}
}

// look returns an error for a socket that is closed here or was reset.
func (p *peeker) look(c syscall.RawConn) (int, error) {
	if err := c.Control(p.control); err != nil {
		return foundNothing, err
	}
	switch {
	case errors.Is(p.err, syscall.EAGAIN), errors.Is(p.err, syscall.EINTR):
		return foundNothing, nil
	case p.err != nil:
		return foundNothing, p.err
	case p.n == 0:
		return foundEnd, nil
	}
	return foundData, nil
}
