package chromium

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// patience is how long the browser may take over anything; a busy machine is slow.
const patience = 90 * time.Second

// Browser is a running Chromium. Its methods may be called by several goroutines.
type Browser struct {
	t    testing.TB
	conn *websocket.Conn
	wg   sync.WaitGroup

	mu      sync.Mutex
	last    int64
	waiting map[int64]chan answer // nil once the browser is gone
	tabs    map[string]*Tab       // by session
}

// answer is what the browser says: to a command, or by itself.
type answer struct {
	ID      int64
	Method  string
	Session string `json:"sessionId"`
	Params  json.RawMessage
	Result  json.RawMessage
	Error   *struct{ Message string }
}

// Start runs a browser that ends with the test.
func Start(t testing.TB) *Browser {
	t.Helper()
	path := find()
	if path == "" {
		t.Skip("NOT TESTED: chromium is missing, so nothing was looked at in a browser")
	}
	// Not the test's own folder: what Chromium leaves running may still write.
	profile, err := os.MkdirTemp("", "tidewire-chromium-")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, path, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic",
		"--disable-background-networking", "--disable-component-update", "--disable-default-apps", "--disable-extensions", "--disable-sync",
		"--no-first-run", "--user-data-dir="+profile, "--remote-debugging-port=0", "about:blank")
	// A browser is many processes; all of them end, or the last would write to a
	// folder that is being removed.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	b := &Browser{t: t, waiting: map[int64]chan answer{}, tabs: map[string]*Tab{}}
	t.Cleanup(func() {
		cancel()
		if b.conn != nil {
			_ = b.conn.CloseNow() // its other end is gone
		}
		b.wg.Wait()
		_ = cmd.Wait() // it was killed
		_ = os.RemoveAll(profile)
	})
	dial, done := context.WithTimeout(ctx, patience)
	defer done()
	if b.conn, _, err = websocket.Dial(dial, b.address(out), nil); err != nil {
		t.Fatal(err)
	}
	b.conn.SetReadLimit(64 << 20)
	b.wg.Go(b.read)
	return b
}

func find() string {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// address reads where the browser listens from what it prints, and keeps reading, so
// that it never blocks on its own output.
func (b *Browser) address(out io.Reader) string {
	b.t.Helper()
	found := make(chan string, 1)
	b.wg.Go(func() {
		defer close(found)
		lines := bufio.NewScanner(out)
		for said := false; lines.Scan(); {
			if url, ok := strings.CutPrefix(lines.Text(), "DevTools listening on "); ok && !said {
				found <- url
				said = true
			}
		}
		_, _ = io.Copy(io.Discard, out) // after a line that was too long
	})
	select {
	case url, ok := <-found:
		if !ok {
			b.t.Fatal("the browser ended at its start")
		}
		return url
	case <-time.After(patience):
		b.t.Fatal("the browser does not say where its DevTools listen")
	}
	return ""
}

func (b *Browser) read() {
	for {
		_, data, err := b.conn.Read(context.Background())
		var a answer
		if err == nil {
			err = json.Unmarshal(data, &a)
		}
		b.mu.Lock()
		switch {
		case err != nil:
			for _, c := range b.waiting {
				close(c)
			}
			b.waiting = nil
			b.mu.Unlock()
			return
		case b.waiting[a.ID] != nil:
			b.waiting[a.ID] <- a
			delete(b.waiting, a.ID)
		case b.tabs[a.Session] != nil:
			b.tabs[a.Session].hear(a)
		}
		b.mu.Unlock()
	}
}

// ask sends a command to a session, "" for the browser itself, and waits for its answer.
func (b *Browser) ask(session, method string, params any) (json.RawMessage, error) {
	c := make(chan answer, 1)
	b.mu.Lock()
	if b.waiting == nil {
		b.mu.Unlock()
		return nil, errors.New("the browser is gone")
	}
	b.last++
	id := b.last
	b.waiting[id] = c
	b.mu.Unlock()
	command := map[string]any{"id": id, "method": method}
	if params != nil {
		command["params"] = params
	}
	if session != "" {
		command["sessionId"] = session
	}
	data, err := json.Marshal(command)
	if err == nil {
		err = b.conn.Write(context.Background(), websocket.MessageText, data)
	}
	if err != nil {
		return nil, err
	}
	select {
	case a, ok := <-c:
		switch {
		case !ok:
			return nil, errors.New("the browser is gone")
		case a.Error != nil:
			return nil, fmt.Errorf("%s: %s", method, a.Error.Message)
		}
		return a.Result, nil
	case <-time.After(2 * patience):
		return nil, fmt.Errorf("%s: no answer", method)
	}
}

// Tab opens an empty page.
func (b *Browser) Tab() *Tab {
	b.t.Helper()
	var target struct {
		ID      string `json:"targetId"`
		Session string `json:"sessionId"`
	}
	b.must(&target, "", "Target.createTarget", map[string]any{"url": "about:blank"})
	b.must(&target, "", "Target.attachToTarget", map[string]any{"targetId": target.ID, "flatten": true})
	tab := &Tab{b: b, session: target.Session}
	b.mu.Lock()
	b.tabs[target.Session] = tab
	b.mu.Unlock()
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		b.must(nil, target.Session, domain+".enable", nil)
	}
	return tab
}

func (b *Browser) must(result any, session, method string, params any) {
	b.t.Helper()
	raw, err := b.ask(session, method, params)
	if err == nil && result != nil {
		err = json.Unmarshal(raw, result)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}
