package main

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// timerSlack is by how much the kernel may let this process sleep too long.
//
// A thread of the Go runtime, sysmon, sleeps for 20 µs again and again for as long as
// anything runs. With the kernel's usual 50 µs of slack it wakes fourteen times in a
// millisecond, and a node that is lightly loaded spends half of its time on that (ADR
// 8 has the figures). No timer of a node needs to be more exact than a millisecond.
const timerSlack = time.Millisecond

// deathSignal is what the kernel sends this process when its parent ends; 0: nothing.
// The kernel keeps that for the first thread alone, and variables of a package are set on
// that one, before main: later nobody knows on which thread anything runs.
var deathSignal = parentDeathSignal()

func parentDeathSignal() (signal int32) {
	if unix.Prctl(unix.PR_GET_PDEATHSIG, uintptr(unsafe.Pointer(&signal)), 0, 0, 0) != nil {
		return 0 // the kernel knows no such thing
	}
	return signal
}

// coarsenTimers gives all threads of this process that slack. A thread inherits it, and
// sysmon is there before any code of ours: so the program begins once more, as the same
// process. It returns where that is done, or cannot be.
func coarsenTimers() error {
	runtime.LockOSThread() // what is set counts for this thread, and for what it executes
	defer runtime.UnlockOSThread()
	has, err := slack()
	if err != nil || has >= timerSlack {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(timerSlack), 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl", err)
	}
	if has, err = slack(); err != nil || has < timerSlack {
		return err // a real-time thread has none, whatever is set
	}
	// What belongs to the first thread ends with it: the one that executes takes its place.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(deathSignal), 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl", err)
	}
	binary, err := os.Executable()
	if err != nil {
		return err
	}
	return fmt.Errorf("execute %s again: %w", binary, syscall.Exec(binary, os.Args, os.Environ()))
}

func slack() (time.Duration, error) {
	ns, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	return time.Duration(ns), os.NewSyscallError("prctl", err)
}
