//go:build linux

package proc_test

import (
	"net"
	"os"
	"strings"
	"testing"

	"tidewire/internal/bench/proc"
)

func TestAProcessThatServesNothingIsNoNode(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).AddrPort().Port()
	if err := proc.CheckServer(proc.Self(), port); err != nil {
		t.Errorf("it listens on %d: %v", port, err)
	}
	if err := proc.CheckServer(os.Getppid(), port); err == nil || !strings.Contains(err.Error(), "pgrep -f") {
		t.Errorf("its parent: %v", err)
	}
	l.Close()
	if err := proc.CheckServer(proc.Self(), port); err == nil {
		t.Errorf("it does not listen on %d any more", port)
	}
	if err := proc.CheckServer(1<<30, port); err == nil || !strings.Contains(err.Error(), "1073741824") {
		t.Errorf("nobody: %v", err)
	}
}
