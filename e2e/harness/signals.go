package harness

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Pause stops the process where it is, as a machine does that hangs: its
// connections stay open and answer nothing. It returns once all of it stands still.
func (n *Node) Pause() {
	n.t.Helper()
	n.send(syscall.SIGSTOP)
	Await(n.t, stopTime, "the process stands still", func() bool { return stopped(n.cmd.Process.Pid) })
}

// stopTime is long enough for every thread of a process to stop on a machine that is busy.
const stopTime = 30 * time.Second

// stopped reports whether no thread of a process runs.
func stopped(pid int) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		return false
	}
	for _, path := range threads {
		text, err := os.ReadFile(path)
		if err != nil {
			return false
		}
		// The state follows the name, which is in brackets and may hold anything.
		_, state, ok := strings.Cut(string(text[bytes.LastIndexByte(text, ')')+1:]), " ")
		if !ok || !strings.HasPrefix(state, "T") {
			return false
		}
	}
	return true
}

// Continue lets a paused process go on as if no time had passed.
func (n *Node) Continue() { n.send(syscall.SIGCONT) }

// Terminate asks the process to stop and does not wait for it.
func (n *Node) Terminate() { n.send(syscall.SIGTERM) }

func (n *Node) send(s syscall.Signal) {
	n.t.Helper()
	if err := n.cmd.Process.Signal(s); err != nil {
		n.t.Fatalf("signal %s: %v", s, err)
	}
}

// Running reports whether there is a process.
func (n *Node) Running() bool {
	if n.cmd == nil {
		return false
	}
	select {
	case <-n.exited:
		return false
	default:
		return true
	}
}

// Wipe empties the data folder of a node that does not run, as a new disk would.
func (n *Node) Wipe() {
	n.t.Helper()
	EmptyDir(n.t, n.opts.Dir)
}

// Restore makes the data folder of a node that does not run what a copy of it is.
func (n *Node) Restore(copied string) {
	n.t.Helper()
	EmptyDir(n.t, n.opts.Dir)
	CopyDir(n.t, copied, n.opts.Dir)
}

// EmptyDir removes what is in a folder, and lets the folder be.
func EmptyDir(t testing.TB, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
}

// FlipByte changes one byte of a file, as a disk does that forgets.
func FlipByte(t testing.TB, path string, at int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b [1]byte
	if _, err := f.ReadAt(b[:], at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 0xff
	if _, err := f.WriteAt(b[:], at); err != nil {
		t.Fatal(err)
	}
}
