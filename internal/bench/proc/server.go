package proc

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// CheckServer says why a process cannot be the node that listens on a port; nil where
// it may be. It may be by its command line, and else by the sockets that it listens
// on, which a namespace or another user's process does not show.
func CheckServer(pid int, port uint16) error {
	line, err := os.ReadFile(path(pid, "cmdline"))
	if err != nil {
		return explain(pid, err)
	}
	args := strings.Split(strings.TrimRight(string(line), "\x00"), "\x00")
	if serves(args) || listens(pid, port) {
		return nil
	}
	name := strings.Join(args, " ")
	if len(name) > 60 {
		name = name[:60] + "…"
	}
	return fmt.Errorf("process %d (%s) is no node that listens on port %d: give the one that pgrep -f 'tidewire serve' names", pid, name, port)
}

// serves reports a command line of tidewire serve.
func serves(args []string) bool {
	if !strings.HasPrefix(filepath.Base(args[0]), "tidewire") {
		return false
	}
	return len(args) > 1 && args[1] == "serve"
}

// listens reports whether a process has a socket that listens on a port.
func listens(pid int, port uint16) bool {
	mine := map[string]bool{}
	fds, err := filepath.Glob(path(pid, "fd/*"))
	if err != nil {
		return false
	}
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil {
			mine[to] = true
		}
	}
	const stateAt, inodeAt, listening = 3, 9, "0A"
	for _, table := range []string{"net/tcp", "net/tcp6"} {
		b, err := os.ReadFile(path(pid, table))
		if err != nil {
			continue
		}
		for line := range bytes.Lines(b) {
			f := strings.Fields(string(line))
			if len(f) <= inodeAt || f[stateAt] != listening || !mine["socket:["+f[inodeAt]+"]"] {
				continue
			}
			_, digits, _ := strings.Cut(f[1], ":")
			if n, err := strconv.ParseUint(digits, 16, 16); err == nil && uint16(n) == port {
				return true
			}
		}
	}
	return false
}
