package turn

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// eventsAtOnce is how many sockets one look tells of.
const eventsAtOnce = 256

// poll is an epoll set of the sockets whose readers sleep. The set itself is one of the
// files that Go's runtime waits for, so waiting for it takes no thread. A socket stays in it
// until it is closed, but tells of nothing unless it is armed, and then once.
type poll struct {
	file *os.File
	raw  syscall.RawConn
}

// newPoll makes the set; nil: the process has no file left for it.
func newPoll() *poll {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil
	}
	if err := unix.SetNonblock(fd, true); err != nil { // has the runtime wait for it
		_ = unix.Close(fd)
		return nil
	}
	file := os.NewFile(uintptr(fd), "epoll")
	raw, err := file.SyscallConn()
	if err != nil {
		_ = file.Close()
		return nil
	}
	return &poll{file: file, raw: raw}
}

// arm has a socket tell once, by its ticket, that there is something to read.
func (p *poll) arm(socket syscall.RawConn, ticket uint64) error {
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT, Fd: int32(uint32(ticket)), Pad: int32(ticket >> 32)}
	var failed error
	err := p.raw.Control(func(set uintptr) {
		failed = socket.Control(func(fd uintptr) {
			if failed = unix.EpollCtl(int(set), unix.EPOLL_CTL_ADD, int(fd), &ev); failed == unix.EEXIST {
				failed = unix.EpollCtl(int(set), unix.EPOLL_CTL_MOD, int(fd), &ev)
			}
		})
	})
	return errors.Join(err, failed)
}

// run tells of sockets until ctx ends.
func (p *poll) run(ctx context.Context, tell func(ticket uint64)) error {
	defer context.AfterFunc(ctx, func() { _ = p.file.Close() })()
	events := make([]unix.EpollEvent, eventsAtOnce)
	for {
		var n int
		var failed error
		err := p.raw.Read(func(set uintptr) bool {
			n, failed = unix.EpollWait(int(set), events, 0)
			return n != 0
		})
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("wait for sockets: %w", err)
		case failed != nil && failed != unix.EINTR:
			return fmt.Errorf("look at sockets: %w", failed)
		}
		for _, ev := range events[:max(n, 0)] {
			tell(uint64(uint32(ev.Pad))<<32 | uint64(uint32(ev.Fd)))
		}
	}
}
