package proc

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// spareFiles is what a load generator holds open beside its connections.
const spareFiles = 64

// RaiseFiles raises the soft limit of open files to the hard one and says what
// to do where that is not enough for so many connections.
func RaiseFiles(connections int) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("read the limit of open files: %w", err)
	}
	if limit.Cur < limit.Max {
		limit.Cur = limit.Max
		_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) // what counts is read again
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			return fmt.Errorf("read the limit of open files: %w", err)
		}
	}
	if need := uint64(connections + spareFiles); limit.Cur < need {
		return fmt.Errorf("%d connections need %d open files, and this process may have %d: raise the hard limit (ulimit -Hn %d as root, LimitNOFILE= under systemd), for the server too, or ask for fewer connections",
			connections, need, limit.Cur, need)
	}
	return nil
}
