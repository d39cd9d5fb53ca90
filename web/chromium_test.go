package web

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// patience is how long the browser may take over anything.
const patience = 20 * time.Second

// tab is one page in a headless browser, spoken to over its DevTools protocol.
type tab struct {
	t       *testing.T
	conn    *websocket.Conn
	session string

	mu         sync.Mutex
	last       int64
	waiting    map[int64]chan reply
	complaints []string // of the page's console: errors, broken policy
}

type reply struct {
	Result json.RawMessage
	Error  *struct{ Message string }
}

// openTab starts a browser that ends with the test.
func openTab(t *testing.T) *tab {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		t.Skip("NOT TESTED: chromium is missing, so nothing looked at the page in a browser")
	}
	profile, err := os.MkdirTemp("", "tidewire-web-")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, path, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--no-first-run", "--user-data-dir="+profile, "--remote-debugging-port=0", "about:blank")
	// A browser is many processes; all of them end, or the last would write to
	// a folder that is being removed.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was killed
		_ = os.RemoveAll(profile)
	})
	b := &tab{t: t, waiting: map[int64]chan reply{}}
	b.connect(address(t, bufio.NewScanner(out)))
	return b
}

// address reads where the browser listens from what it prints, and keeps
// reading, so that it never blocks on its own output.
func address(t *testing.T, lines *bufio.Scanner) string {
	t.Helper()
	found := make(chan string, 1)
	go func() {
		defer close(found)
		for lines.Scan() {
			if _, url, ok := strings.Cut(lines.Text(), "DevTools listening on "); ok {
				found <- url
			}
		}
	}()
	select {
	case url, ok := <-found:
		if !ok {
			t.Fatal("the browser ended at its start")
		}
		return url
	case <-time.After(patience):
		t.Fatal("the browser did not say where it listens")
	}
	return ""
}

func (b *tab) connect(url string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, url, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	conn.SetReadLimit(64 << 20)
	b.conn = conn
	b.t.Cleanup(func() { _ = conn.CloseNow() })
	go b.read()

	var target struct{ TargetID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		b.call(domain+".enable", nil, nil)
	}
}

func (b *tab) read() {
	for {
		_, data, err := b.conn.Read(context.Background())
		if err != nil {
			return // the browser ended; who waits runs into the deadline
		}
		var m struct {
			ID     int64
			Method string
			Params json.RawMessage
			reply
		}
		if json.Unmarshal(data, &m) != nil {
			continue
		}
		b.mu.Lock()
		switch {
		case m.ID != 0:
			b.waiting[m.ID] <- m.reply
			delete(b.waiting, m.ID)
		case m.Method == "Runtime.exceptionThrown", m.Method == "Log.entryAdded":
			b.complaints = append(b.complaints, string(m.Params))
		}
		b.mu.Unlock()
	}
}

// call sends a command and waits for its answer.
func (b *tab) call(method string, params, result any) {
	b.t.Helper()
	b.mu.Lock()
	b.last++
	id, answer := b.last, make(chan reply, 1)
	b.waiting[id] = answer
	b.mu.Unlock()
	command := map[string]any{"id": id, "method": method}
	if params != nil {
		command["params"] = params
	}
	if b.session != "" {
		command["sessionId"] = b.session
	}
	data, err := json.Marshal(command)
	if err == nil {
		err = b.conn.Write(context.Background(), websocket.MessageText, data)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	select {
	case r := <-answer:
		if r.Error != nil {
			b.t.Fatalf("%s: %s", method, r.Error.Message)
		}
		if result != nil {
			if err := json.Unmarshal(r.Result, result); err != nil {
				b.t.Fatal(err)
			}
		}
	case <-time.After(2 * patience):
		b.t.Fatalf("%s: no answer", method)
	}
}

// eval runs JavaScript in the page and returns what its value is as JSON.
func (b *tab) eval(script string) string {
	b.t.Helper()
	var r struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	b.call("Runtime.evaluate", map[string]any{"expression": script, "awaitPromise": true, "returnByValue": true, "userGesture": true}, &r)
	if r.ExceptionDetails != nil {
		b.t.Fatalf("%s: %s %s", script, r.ExceptionDetails.Text, r.ExceptionDetails.Exception.Description)
	}
	return string(r.Result.Value)
}

// text is the text of the element with an id.
func (b *tab) text(id string) string {
	b.t.Helper()
	var s string
	_ = json.Unmarshal([]byte(b.eval(fmt.Sprintf("document.getElementById(%q).textContent", id))), &s)
	return s
}

// until waits in the page until an expression is true.
func (b *tab) until(condition string) {
	b.t.Helper()
	ok := b.eval(fmt.Sprintf(`new Promise((done) => {
		const end = performance.now() + %d;
		const look = () => (%s) ? done(true) : performance.now() > end ? done(false) : setTimeout(look, 10);
		look();
	})`, patience.Milliseconds(), condition))
	if ok != "true" {
		b.t.Fatalf("never came true: %s\nstate %q, feed %q", condition, b.text("state"), b.text("feed"))
	}
}

func (b *tab) open(url string) {
	b.t.Helper()
	b.call("Page.navigate", map[string]any{"url": url}, nil)
	b.until(`document.readyState === "complete" && location.href.startsWith("` + url + `")`)
}

// click and fill do what a person does to the element of an id.
func (b *tab) click(id string) {
	b.t.Helper()
	b.eval(fmt.Sprintf("document.getElementById(%q).click()", id))
}

func (b *tab) fill(id, value string) {
	b.t.Helper()
	b.eval(fmt.Sprintf("document.getElementById(%q).value = %q", id, value))
}

func (b *tab) submit(id string) {
	b.t.Helper()
	b.eval(fmt.Sprintf("document.getElementById(%q).requestSubmit()", id))
}

// look sets the size of the window and the colours the person prefers.
func (b *tab) look(width int, scheme string) {
	b.t.Helper()
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": false}, nil)
	b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}
