package child

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// startTimeout bounds a start; a loaded machine is slow.
	startTimeout = 60 * time.Second
	// stopTimeout is the server's own drain and more.
	stopTimeout = 20 * time.Second
	// tailBytes of what a child logs are kept for when it fails.
	tailBytes = 8 << 10
)

// Process is a child that serves.
type Process struct {
	Addr   string // of its HTTP listener, host:port
	Gossip string // of its gossip; "": it has none
	PID    int
	// Listeners are all addresses that it has printed, by name.
	Listeners map[string]string

	process *os.Process
	err     error // once exited
	exited  chan struct{}
	wg      sync.WaitGroup
}

// Start runs this binary with some arguments and waits until it has printed
// "listening http=ADDRESS" and "ready in …". Once hurry is closed the child is
// killed, whatever it does.
func Start(ctx context.Context, hurry <-chan struct{}, args ...string) (*Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this binary: %w", err)
	}
	// By its own name, as a shell would: a test's binary tells its roles apart so.
	return Server{Binary: self, Name: "tidewire", Ready: "ready in "}.Start(ctx, hurry, args...)
}

// Server is a binary that serves, which may be another system's.
type Server struct {
	Binary string
	Name   string // its first argument; "": that of the file
	Ready  string // is in the line by which it says that it serves
}

// Start runs the server and waits until it has said that it serves.
func (s Server) Start(ctx context.Context, hurry <-chan struct{}, args ...string) (*Process, error) {
	cmd := exec.Command(s.Binary)
	cmd.Args = append([]string{cmp.Or(s.Name, filepath.Base(s.Binary))}, args...)
	cmd.SysProcAttr = attributes()
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	logs := &tail{}
	cmd.Stderr = logs
	p := &Process{exited: make(chan struct{})}
	started := make(chan error, 1)
	ready := make(chan map[string]string, 1)
	p.wg.Go(func() {
		// The kernel takes the end of the thread that started a child for the end
		// of its parent, so this one has to last as long as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.exited)
		if p.err = cmd.Start(); p.err != nil {
			started <- p.err
			return
		}
		p.process, p.PID = cmd.Process, cmd.Process.Pid
		started <- nil
		if listeners := listening(out, s.Ready); listeners != nil {
			ready <- listeners
		}
		_, _ = io.Copy(io.Discard, out) // until the child closes it
		p.err = cmd.Wait()
	})
	if err := <-started; err != nil {
		p.wg.Wait()
		return nil, fmt.Errorf("start %s: %w", strings.Join(cmd.Args, " "), err)
	}
	p.wg.Go(func() {
		select {
		case <-hurry:
			_ = p.process.Kill() // it may have ended already
		case <-p.exited:
		}
	})
	timeout := time.NewTimer(startTimeout)
	defer timeout.Stop()
	select {
	case listeners := <-ready:
		p.Listeners, p.Addr, p.Gossip = listeners, listeners["http"], listeners["gossip"]
		return p, nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-p.exited:
		err = fmt.Errorf("it ended before it was ready: %v\n%s", p.err, logs)
	case <-timeout.C:
		err = fmt.Errorf("it was not ready after %s\n%s", startTimeout, logs)
	}
	_ = p.process.Kill() // it may have ended already
	p.wg.Wait()
	return nil, fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
}

// listening reads what a child prints until it says that it is ready: its listeners by
// name; nil if it never did.
func listening(r io.Reader, ready string) map[string]string {
	listeners := map[string]string{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), "listening "); ok {
			if name, addr, ok := strings.Cut(rest, "="); ok {
				listeners[name] = addr
			}
		}
		if strings.Contains(lines.Text(), ready) {
			return listeners
		}
	}
	return nil
}

// Exited is closed when the child has ended, however.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Kill ends the child as kill -9 does, and waits for it.
func (p *Process) Kill() {
	_ = p.process.Kill() // it may have ended already
	p.wg.Wait()
}

// Signal tells the child something, without waiting for what it does.
func (p *Process) Signal(s os.Signal) error { return p.process.Signal(s) }

// Stop ends the child in order, or at once where that takes too long.
func (p *Process) Stop() {
	_ = p.process.Signal(syscall.SIGTERM) // it may have ended already
	timeout := time.NewTimer(stopTimeout)
	defer timeout.Stop()
	select {
	case <-p.exited:
	case <-timeout.C:
		_ = p.process.Kill()
	}
	p.wg.Wait()
}

// tail keeps the end of what is written to it.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, b...)
	if len(t.b) > 2*tailBytes {
		t.b = append(t.b[:0], t.b[len(t.b)-tailBytes:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.b)
}
