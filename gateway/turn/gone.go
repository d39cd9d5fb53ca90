package turn

import (
	"sync"
	"syscall"
)

// scrap is room for bytes that nobody looks at.
var scrap = sync.Pool{New: func() any { b := make([]byte, 4<<10); return &b }}

// Gone returns once the client has closed its end, the connection has ended or
// its time to read is over, or the client has sent more than so many bytes, which
// are passed over. It waits with next to no stack, and no buffer: that is all that
// somebody costs who listens to a client that says nothing.
func (s *Socket) Gone(most int) {
	if s.raw != nil {
		_ = s.raw.Read(func(fd uintptr) bool { return !pass(int(fd), &most) })
		return
	}
	b := scrap.Get().(*[]byte)
	defer scrap.Put(b)
	for most >= 0 {
		n, err := s.Conn.Read(*b)
		if err != nil {
			return
		}
		most -= n
	}
}

// Hear passes over what the client has sent, as long as it is no more than so many bytes,
// which it takes away. It does not wait. It is false where Gone would return.
func (s *Socket) Hear(most *int) (more bool) {
	if s.raw == nil {
		return true
	}
	err := s.raw.Read(func(fd uintptr) bool {
		more = pass(int(fd), most)
		return true
	})
	return err == nil && more
}

// pass passes over what has come; false: there is no more to wait for.
func pass(fd int, most *int) bool {
	b := scrap.Get().(*[]byte)
	defer scrap.Put(b)
	for *most >= 0 {
		n, err := syscall.Read(fd, *b)
		switch {
		case err == syscall.EINTR:
		case err == syscall.EAGAIN:
			return true
		case n <= 0:
			return false
		default:
			*most -= n
		}
	}
	return false
}
