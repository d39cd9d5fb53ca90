package harness

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// CPU is the processor time the process has used, user and system together.
// The kernel counts it in hundredths of a second.
func (n *Node) CPU() time.Duration {
	n.t.Helper()
	fields := n.stat()
	var ticks int64
	for _, f := range fields[11:13] { // utime, stime
		v, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			n.t.Fatal(err)
		}
		ticks += v
	}
	return time.Duration(ticks) * (time.Second / 100)
}

// stat has the fields of /proc/<pid>/stat behind the name, which may hold anything.
func (n *Node) stat() []string {
	n.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n.Pid()))
	if err != nil {
		n.t.Fatal(err)
	}
	return strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
}

// Load is what the machine says of its load: beside a figure of time it tells what the
// figure is worth.
func Load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "not known"
	}
	return strings.Join(strings.Fields(string(b))[:3], " ")
}

// RSS is the resident memory of the process, in bytes.
func (n *Node) RSS() int64 { return n.memory("VmRSS:") }

// PeakRSS is the most it has ever been.
func (n *Node) PeakRSS() int64 { return n.memory("VmHWM:") }

func (n *Node) memory(name string) int64 {
	n.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.Pid()))
	if err != nil {
		n.t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err != nil {
				n.t.Fatal(err)
			}
			return kib << 10
		}
	}
	n.t.Fatalf("no %s for process %d", name, n.Pid())
	return 0
}

// OpenFiles counts the descriptors of the process: all of them, and those that
// are files below a folder.
func (n *Node) OpenFiles(below string) (all, there int) {
	n.t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", n.Pid())
	entries, err := os.ReadDir(dir)
	if err != nil {
		n.t.Fatal(err)
	}
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(dir, e.Name()))
		if err != nil {
			continue // closed meanwhile
		}
		all++
		if strings.HasPrefix(target, below+string(filepath.Separator)) {
			there++
		}
	}
	return all, there
}
