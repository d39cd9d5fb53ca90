package harness

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"tidewire/internal/testkit/ports"
)

// Options of a node.
type Options struct {
	Dir  string   // data folder; empty: one of the test's own
	Args []string // further flags of serve
	Env  []string // further variables, NAME=value
	Tags []string // build tags of the binary
	// OpenFiles is the most files the process may hold open; 0: what the
	// machine gives.
	OpenFiles int
	// Fixed says that the node has all of its addresses from the beginning on and comes
	// back at them, not at that of HTTP alone: other nodes know them.
	Fixed bool
	// More gives further flags at each start.
	More func() []string
}

// Node is one running process.
type Node struct {
	t    testing.TB
	opts Options
	bin  string
	Addr string // host:port of HTTP, the same through restarts
	URL  string
	kept map[string]string // host:port of the listeners that come back where they were, by name
	// Listeners has the host:port of each listener, by name.
	// It is set once the node is ready; see Listening for before.
	Listeners map[string]string

	client http.Client
	said   said
	reader sync.WaitGroup // of the process's output

	cmd    *exec.Cmd
	began  time.Time
	exited chan struct{}
	err    error // of the process, once exited
	ready  time.Duration
	stderr *tail
	file   io.Writer // the whole log, where somebody wants it
}

// said is what a process has printed so far.
type said struct {
	mu        sync.Mutex
	listeners map[string]string
	ready     chan struct{} // closed by the line that says so
}

// Start runs a node and waits until it is ready.
func Start(t testing.TB, opts Options) *Node {
	t.Helper()
	n := New(t, opts)
	if err := n.Run(); err != nil {
		t.Fatal(err)
	}
	return n
}

// New prepares a node without running it.
func New(t testing.TB, opts Options) *Node {
	t.Helper()
	if opts.Dir == "" {
		opts.Dir = t.TempDir()
	}
	n := &Node{t: t, opts: opts, bin: Binary(t, opts.Tags...), kept: map[string]string{}, file: logFile(t, opts.Dir)}
	for _, name := range listeners {
		if name == "http" || opts.Fixed {
			n.kept[name] = ports.Keep(t)
		}
	}
	n.Addr = n.kept["http"]
	t.Cleanup(func() {
		n.Kill()
		n.reader.Wait()
		if t.Failed() && n.stderr != nil {
			t.Logf("log of the node in %s:\n%s", opts.Dir, n.stderr)
		}
	})
	return n
}

// Dir is the data folder.
func (n *Node) Dir() string { return n.opts.Dir }

// Pid of the process.
func (n *Node) Pid() int { return n.cmd.Process.Pid }

// ReadyAfter is the time from the start of the process until it said it was ready.
func (n *Node) ReadyAfter() time.Duration { return n.ready }

// Log is the end of what the node has logged since it was started last.
func (n *Node) Log() string { return n.stderr.String() }

// startTimeout bounds a start; a loaded machine is slow.
const startTimeout = 60 * time.Second

// Run starts the process (again) and waits until it is ready. An error says
// that it ended first, with what it logged.
func (n *Node) Run() error {
	if err := n.Begin(); err != nil {
		return err
	}
	return n.AwaitReady()
}

// listeners are those that a node may have; which it has, its roles say.
var listeners = [...]string{"http", "rpc", "raft", "gossip"}

// Begin starts the process (again) and waits for nothing.
func (n *Node) Begin() error {
	args := []string{"serve", "--data", n.opts.Dir}
	for _, name := range listeners {
		args = append(args, "--"+name, cmp.Or(n.kept[name], "127.0.0.1:0"))
	}
	args = append(args, n.opts.Args...)
	if n.opts.More != nil {
		args = append(args, n.opts.More()...)
	}
	cmd := exec.Command(n.bin, args...)
	if n.opts.OpenFiles > 0 {
		shell := fmt.Sprintf(`ulimit -n %d && exec "$0" "$@"`, n.opts.OpenFiles)
		cmd = exec.Command("/bin/sh", append([]string{"-c", shell, cmd.Path}, args...)...)
	}
	cmd.Env = append(os.Environ(), n.opts.Env...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	stderr := &tail{}
	cmd.Stderr = io.MultiWriter(stderr, n.file)
	n.began = time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	n.cmd, n.stderr, n.exited = cmd, stderr, make(chan struct{})
	ready, exited := n.said.begin(), n.exited
	n.reader.Go(func() {
		n.said.listen(out, ready)
		_, _ = io.Copy(io.Discard, out) // until the process closes it
		n.err = cmd.Wait()
		close(exited)
	})
	return nil
}

// AwaitReady waits until the process that was begun is ready.
func (n *Node) AwaitReady() error {
	select {
	case <-n.said.ready:
		n.ready = time.Since(n.began)
		n.said.mu.Lock()
		n.Listeners = maps.Clone(n.said.listeners)
		n.said.mu.Unlock()
		if http, ok := n.Listeners["http"]; ok {
			n.Addr, n.URL = http, "http://"+http
		}
		return nil
	case <-n.exited:
		return fmt.Errorf("the node ended before it was ready: %v\n%s", n.err, n.stderr)
	case <-time.After(startTimeout):
		n.Kill()
		return fmt.Errorf("the node was not ready after %s\n%s", startTimeout, n.stderr)
	}
}

// Listening waits for a listener of a node that may not be ready yet.
func (n *Node) Listening(name string) (addr string, err error) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	timeout := time.After(startTimeout)
	for {
		if addr, ok := n.said.listener(name); ok {
			return addr, nil
		}
		select {
		case <-tick.C:
		case <-n.exited:
			return "", fmt.Errorf("the node ended before it listened on %s: %v\n%s", name, n.err, n.stderr)
		case <-timeout:
			return "", fmt.Errorf("the node does not listen on %s after %s\n%s", name, startTimeout, n.stderr)
		}
	}
}

// begin forgets what the last process has said.
func (s *said) begin() (ready chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners, s.ready = map[string]string{}, make(chan struct{})
	return s.ready
}

// listener is one that was printed already.
func (s *said) listener(name string) (addr string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	addr, ok = s.listeners[name]
	return addr, ok
}

// listen reads the lines a node prints at its start until it is ready.
func (s *said) listen(r io.Reader, ready chan struct{}) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := lines.Text()
		if rest, ok := strings.CutPrefix(line, "listening "); ok {
			if name, addr, ok := strings.Cut(rest, "="); ok {
				s.mu.Lock()
				s.listeners[name] = addr
				s.mu.Unlock()
			}
		}
		if strings.HasPrefix(line, "ready in ") {
			close(ready)
			return
		}
	}
}

// logFile is where the whole log goes if TEST_TIDEWIRE_LOGS names a folder: what
// a failed test shows is its end.
func logFile(t testing.TB, folder string) io.Writer {
	dir := os.Getenv("TEST_TIDEWIRE_LOGS")
	if dir == "" {
		return io.Discard
	}
	name := strings.ReplaceAll(t.Name(), "/", "-") + "-" + filepath.Base(folder) + ".log"
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() }) // the process has ended by then
	return f
}

// Kill ends the process with SIGKILL and waits for it.
func (n *Node) Kill() { n.signal(syscall.SIGKILL) }

// Stop ends the process with SIGTERM, as an operator does, and waits for it.
func (n *Node) Stop() error {
	n.signal(syscall.SIGTERM)
	return n.err
}

func (n *Node) signal(s syscall.Signal) {
	if n.cmd == nil {
		return
	}
	select {
	case <-n.exited:
		return
	default:
	}
	_ = n.cmd.Process.Signal(s) // it may have ended just now
	<-n.exited
}

// Exited is closed when the process has ended by itself or otherwise.
func (n *Node) Exited() <-chan struct{} { return n.exited }

// ExitCode of the process that has ended.
func (n *Node) ExitCode() int {
	<-n.exited
	var exit *exec.ExitError
	if errors.As(n.err, &exit) {
		return exit.ExitCode()
	}
	return 0
}

// CLI runs a command of the binary against this node and returns what it
// printed and its exit code.
func (n *Node) CLI(ctx context.Context, stdin io.Reader, args ...string) (stdout, stderr string, code int) {
	n.t.Helper()
	cmd := exec.CommandContext(ctx, Binary(n.t), args...)
	cmd.Env = append(os.Environ(), "TIDEWIRE_SERVER="+n.URL)
	cmd.Stdin = stdin
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		code = exit.ExitCode()
	case err != nil:
		n.t.Fatal(err)
	}
	return out.String(), errs.String(), code
}

// Do sends one HTTP request and returns status and body.
func (n *Node) Do(method, path, contentType, body string, headers ...string) (int, string) {
	n.t.Helper()
	status, _, b, err := n.Try(method, path, contentType, body, headers...)
	if err != nil {
		n.t.Fatalf("%s %s: %v", method, path, err)
	}
	return status, b
}

// Try is Do for a node that may be down. headers are name, value, name, value.
func (n *Node) Try(method, path, contentType, body string, headers ...string) (int, http.Header, string, error) {
	req, err := http.NewRequest(method, n.URL+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, "", err
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := n.client.Do(req)
	if err != nil {
		return 0, nil, "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return res.StatusCode, res.Header, string(b), err
}

// tail keeps the end of what is written to it.
type tail struct {
	mu sync.Mutex
	b  []byte
}

const tailBytes = 64 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if len(t.b) > 2*tailBytes {
		t.b = append(t.b[:0], t.b[len(t.b)-tailBytes:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.b)
}
