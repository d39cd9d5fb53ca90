package turn

import "golang.org/x/sys/unix"

// queuedBytes is SIOCOUTQ: what is written and not acknowledged.
func queuedBytes(fd int) int {
	n, err := unix.IoctlGetInt(fd, unix.TIOCOUTQ)
	if err != nil {
		return 0
	}
	return n
}
