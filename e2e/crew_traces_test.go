package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"tidewire/e2e/harness"
)

// traces are what a process holds that it may forget to give back.
type traces struct{ pid, files, goroutines int }

func tracesOf(m *harness.Member) traces {
	files, kept := m.OpenFiles(m.Dir()) // segments stay open for a while, as many as there are
	t := traces{pid: m.Pid(), files: files - kept}
	if m.Has("gateway") {
		t.goroutines = int(m.Metric("go_goroutines"))
	}
	return t
}

// Partitions that have been written to keep a few connections open, and have work of
// their own.
const (
	filesOfACrew           = 12 // other nodes are called that were not before
	filesOfAPartition      = 2
	goroutinesOfAPartition = 4
	filesOfANode           = 10
	goroutinesOfANode      = 40
)

// nothingLeft wants every process that has lived through it all to hold about what
// it held before the crew came, once the crew is gone.
func (w *crew) nothingLeft() {
	w.t.Helper()
	partitions := len(w.topic.Layout.Partitions)
	// A node has something for each other one.
	more := max(0, len(w.cluster.Members)-len(w.before))
	for _, m := range w.cluster.Members {
		before, ok := w.before[m.Name]
		if !ok || !m.Running() || m.Pid() != before.pid {
			continue
		}
		files := before.files*11/10 + filesOfACrew + filesOfAPartition*partitions + filesOfANode*more
		goroutines := before.goroutines*11/10 + goroutinesOfAPartition*partitions + goroutinesOfANode*more
		now := tracesOf(m)
		for deadline := time.Now().Add(15 * time.Second); now.files > files || now.goroutines > goroutines; now = tracesOf(m) {
			if time.Now().After(deadline) {
				w.t.Errorf("%s may hold %d files and %d goroutines at most:\n%s", m.Name, files, goroutines, fileList(m))
				break
			}
			pause(w.t.Context(), betweenTries)
		}
		w.t.Logf("%s held %d files and %d goroutines before, %d and %d after", m.Name, before.files, before.goroutines, now.files, now.goroutines)
	}
}

// fileList is what the descriptors of a process are.
func fileList(m *harness.Member) (list string) {
	dir := fmt.Sprintf("/proc/%d/fd", m.Pid())
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err.Error()
	}
	for _, e := range entries {
		if target, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil {
			list += target + "\n"
		}
	}
	return list
}
