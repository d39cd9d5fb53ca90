package proc

import (
	"os"
)

// Memory is what a process holds at the moment.
type Memory struct {
	RSS       int64 `json:"rss_bytes"`       // resident now
	Anonymous int64 `json:"anonymous_bytes"` // of it its own, and not a file's such as its binary
	Peak      int64 `json:"rss_peak_bytes"`  // the most it has ever been
	Files     int   `json:"files"`           // open descriptors; -1: not told
}

// ReadMemory looks at a process.
func ReadMemory(pid int) (Memory, error) {
	b, err := os.ReadFile(path(pid, "status"))
	if err != nil {
		return Memory{}, explain(pid, err)
	}
	m := Memory{RSS: field(b, "VmRSS:") << 10, Anonymous: field(b, "RssAnon:") << 10, Peak: field(b, "VmHWM:") << 10, Files: -1}
	if entries, err := os.ReadDir(path(pid, "fd")); err == nil {
		m.Files = len(entries)
	}
	return m, nil
}
