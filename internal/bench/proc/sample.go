package proc

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Sample is what a process has used since its start.
type Sample struct {
	CPU      time.Duration // user and system; the kernel counts hundredths of a second
	Switches int64         // context switches of the threads that live
	Reads    int64         // system calls that read, of whatever; -1: not told
	Writes   int64         // and that wrote
}

// Sub is what was used since an earlier sample.
func (s Sample) Sub(before Sample) Sample {
	d := Sample{CPU: s.CPU - before.CPU, Switches: max(0, s.Switches-before.Switches), Reads: -1, Writes: -1}
	if s.Reads >= 0 && before.Reads >= 0 {
		d.Reads, d.Writes = s.Reads-before.Reads, s.Writes-before.Writes
	}
	return d
}

// Add is what two processes have used together.
func (s Sample) Add(other Sample) Sample {
	sum := Sample{CPU: s.CPU + other.CPU, Switches: s.Switches + other.Switches, Reads: -1, Writes: -1}
	if s.Reads >= 0 && other.Reads >= 0 {
		sum.Reads, sum.Writes = s.Reads+other.Reads, s.Writes+other.Writes
	}
	return sum
}

// Self is this process.
func Self() int { return os.Getpid() }

func path(pid int, name string) string { return filepath.Join("/proc", strconv.Itoa(pid), name) }

// Read samples a process.
func Read(pid int) (Sample, error) {
	s := Sample{Reads: -1, Writes: -1}
	b, err := os.ReadFile(path(pid, "stat"))
	if err != nil {
		return s, explain(pid, err)
	}
	if s.CPU, err = cpu(b); err != nil {
		return s, fmt.Errorf("process %d: %w", pid, err)
	}
	tasks, err := filepath.Glob(path(pid, "task/*/status"))
	if err != nil {
		return s, err
	}
	for _, task := range tasks {
		b, err := os.ReadFile(task)
		if err != nil {
			continue // the thread has ended meanwhile
		}
		s.Switches += max(0, field(b, "voluntary_ctxt_switches:")) + max(0, field(b, "nonvoluntary_ctxt_switches:"))
	}
	// Another user's process does not show this; the rest is still worth having.
	if b, err := os.ReadFile(path(pid, "io")); err == nil {
		s.Reads, s.Writes = field(b, "syscr:"), field(b, "syscw:")
	}
	return s, nil
}

// cpu is user and system time of the text of /proc/PID/stat. The name of the
// process, in brackets, may hold anything.
func cpu(stat []byte) (time.Duration, error) {
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 13 {
		return 0, errors.New("its /proc/PID/stat is not as expected")
	}
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("its /proc/PID/stat is not as expected: %w", err)
		}
		ticks += n
	}
	return time.Duration(ticks) * (time.Second / 100), nil // USER_HZ is 100 wherever Go runs
}

// field is the number of a line such as "name: 42 kB"; -1 where there is none.
func field(b []byte, name string) int64 {
	for line := range strings.Lines(string(b)) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok {
			continue
		}
		text, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n
		}
	}
	return -1
}

func explain(pid int, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("no process %d on this machine, or no /proc as Linux has it", pid)
	}
	return fmt.Errorf("look at process %d: %w", pid, err)
}
