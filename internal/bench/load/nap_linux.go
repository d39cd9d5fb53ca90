package load

import (
	"time"

	"golang.org/x/sys/unix"
)

// sharpen lets the kernel wake this thread when it is asked to, not within 50 µs.
func sharpen() {
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) // without it wakes are only later, and that is reported
}

// nap sleeps, or less where a signal comes.
func nap(d time.Duration) {
	if d <= 0 {
		return
	}
	t := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&t, nil) // the caller looks at the clock again
}
