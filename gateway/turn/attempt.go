package turn

import (
	"syscall"
	"unsafe"
)

// Attempt is one write that does not wait. A worker has one, with the function
// that RawConn wants, so that a write allocates nothing.
type Attempt struct {
	write func(fd uintptr) // run
	p     []byte           // not empty
	n     int
	err   error
}

// run writes what the socket takes at once. It asks the kernel without telling
// the scheduler: the socket never makes it wait, and the scheduler, told of a
// system call that takes longer than it expects of one, would hand the
// processor to another thread in the midst of each round.
func (a *Attempt) run(fd uintptr) {
	a.n, a.err = 0, nil
	for {
		n, _, errno := syscall.RawSyscall(syscall.SYS_WRITE, fd, uintptr(unsafe.Pointer(unsafe.SliceData(a.p))), uintptr(len(a.p)))
		switch errno {
		case 0:
			a.n = int(n)
		case syscall.EINTR:
			continue
		case syscall.EAGAIN: // it is full
		default:
			a.err = errno
		}
		return
	}
}
