//go:build linux

package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestTwoInterruptsLeaveNothing interrupts a benchmark twice at once while its node
// is under load: the node has ended and its folder is gone.
func TestTwoInterruptsLeaveNothing(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Args = []string{"tidewire", "bench", "publish", "--spawn", "--dir", dir, "--no-floors", "--duration", "1m", "--publishers", "2"}
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for { // until there is a topic: a node that is up takes a while to end
		if found, err := filepath.Glob(filepath.Join(dir, "*", "data", "topics", "*", "0")); err != nil || len(found) > 0 {
			break
		}
		select {
		case err := <-ended:
			t.Fatalf("ended with %v: %s", err, errs.String())
		case <-tick.C:
		}
	}
	for range 2 {
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		<-tick.C // two of a kind that wait are one
	}
	var exit *exec.ExitError
	if err := <-ended; !errors.As(err, &exit) || exit.ExitCode() != exitFailed {
		t.Errorf("ended with %v: %s", err, errs.String())
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
