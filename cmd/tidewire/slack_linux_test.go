package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A program that is executed once more ends with its parent as before, on whatever
// thread that happens: else a benchmark that is killed leaves its server.
func TestWhoBeginsOnceMoreStillEndsWithItsParent(t *testing.T) {
	runtime.LockOSThread() // the kernel takes the end of a thread for that of a parent
	defer runtime.UnlockOSThread()
	cmd := exec.Command(os.Args[0])
	cmd.Args, cmd.Env = []string{"coarsened"}, append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGUSR2}
	out, err := cmd.CombinedOutput()
	if want := fmt.Sprintln(timerSlack, int(syscall.SIGUSR2)); err != nil || string(out) != want {
		t.Errorf("%v: has slack and signal %q, want %q", err, out, want)
	}
}

// coarsened is a program that coarsens its timers on a thread that is not its first one.
func coarsened() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if unix.Gettid() != os.Getpid() {
			say(coarsenTimers())
			return
		}
		other := make(chan struct{}) // this one keeps the first thread meanwhile
		go func() { defer close(other); say(coarsenTimers()) }()
		<-other
	}()
	<-done
}

func say(err error) {
	has, _ := slack()
	if err != nil {
		fmt.Println(err)
	}
	fmt.Println(has, deathSignal)
}
