package e2e_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"tidewire/e2e/harness"
	"tidewire/internal/testkit/chromium"
)

const chromiumPath = "/usr/bin/chromium"

// browser is a headless Chromium, driven over its DevTools protocol.
type browser struct {
	t    *testing.T
	conn *websocket.Conn
	wg   sync.WaitGroup

	mu         sync.Mutex
	next       int64
	waiting    map[int64]chan cdpMessage
	complaints []string // of pages: what was thrown, what their policy kept from them
	lost       error
}

type cdpMessage struct {
	ID      int64           `json:"id"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
	Result  json.RawMessage `json:"result"`
	Session string          `json:"sessionId"`
	Error   *struct {
		Message string `json:"message"`
	} `json:"error"`
}

func startBrowser(t *testing.T) *browser {
	t.Helper()
	if _, err := os.Stat(chromiumPath); err != nil {
		t.Skipf("NOT TESTED: the page needs chromium: %v", err)
	}
	// Not the test's own folder: what Chromium leaves running may still write.
	profile, err := os.MkdirTemp("", "tidewire-browser-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		harness.Await(t, 20*time.Second, "the browser's folder can be removed", func() bool { return os.RemoveAll(profile) == nil })
	})
	cmd := exec.Command(chromiumPath, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
		"--disable-default-apps", "--disable-extensions", "--remote-debugging-port=0", "--user-data-dir="+profile, "about:blank")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	b := &browser{t: t, waiting: map[int64]chan cdpMessage{}}
	address := make(chan string, 1)
	b.wg.Go(func() {
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			if rest, ok := strings.CutPrefix(lines.Text(), "DevTools listening on "); ok {
				address <- rest
			}
		}
		_, _ = io.Copy(io.Discard, stderr) // after a line that was too long
	})
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended already
		_ = cmd.Wait()         // killed, so never without an error
		if b.conn != nil {
			_ = b.conn.CloseNow() // its other end is gone
		}
		b.wg.Wait()
	})
	select {
	case url := <-address:
		b.conn, _, err = websocket.Dial(t.Context(), url, nil)
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(60 * time.Second):
		t.Fatal("chromium does not say where its DevTools listen")
	}
	b.conn.SetReadLimit(64 << 20)
	b.wg.Go(b.read)
	return b
}

func (b *browser) read() {
	for {
		_, raw, err := b.conn.Read(context.Background())
		var m cdpMessage
		if err == nil {
			err = json.Unmarshal(raw, &m)
		}
		b.mu.Lock()
		switch {
		case err != nil:
			b.lost = err
			for _, c := range b.waiting {
				close(c)
			}
			b.waiting = nil
			b.mu.Unlock()
			return
		case m.Method == "Runtime.exceptionThrown", m.Method == "Log.entryAdded" && !unreachable.Match(m.Params):
			b.complaints = append(b.complaints, string(m.Params))
		case b.waiting[m.ID] != nil:
			b.waiting[m.ID] <- m
			delete(b.waiting, m.ID)
		}
		b.mu.Unlock()
	}
}

// unreachable is what Chromium logs of every call that fails, or is refused: pages
// handle that.
var unreachable = regexp.MustCompile(`"source":"network"`)

// call sends one command and waits for its answer.
func (b *browser) call(session, method string, params any) (json.RawMessage, error) {
	answer := make(chan cdpMessage, 1)
	b.mu.Lock()
	if b.lost != nil {
		b.mu.Unlock()
		return nil, b.lost
	}
	b.next++
	id := b.next
	b.waiting[id] = answer
	b.mu.Unlock()
	command := map[string]any{"id": id, "method": method, "params": params}
	if session != "" {
		command["sessionId"] = session
	}
	raw, err := json.Marshal(command)
	if err != nil {
		return nil, err
	}
	if err := b.conn.Write(b.t.Context(), websocket.MessageText, raw); err != nil {
		return nil, err
	}
	select {
	case m, ok := <-answer:
		switch {
		case !ok:
			return nil, errors.New("chromium is gone")
		case m.Error != nil:
			return nil, fmt.Errorf("%s: %s", method, m.Error.Message)
		}
		return m.Result, nil
	case <-time.After(30 * time.Second):
		return nil, fmt.Errorf("%s: no answer", method)
	}
}

// tab is one page.
type tab struct {
	*browser
	session string
}

// open loads an address in a new tab.
func (b *browser) open(url string) *tab {
	b.t.Helper()
	var target struct {
		ID      string `json:"targetId"`
		Session string `json:"sessionId"`
	}
	for _, c := range []struct {
		method string
		params func() any
	}{
		{"Target.createTarget", func() any { return map[string]any{"url": "about:blank"} }},
		{"Target.attachToTarget", func() any { return map[string]any{"targetId": target.ID, "flatten": true} }},
	} {
		raw, err := b.call("", c.method, c.params())
		if err == nil {
			err = json.Unmarshal(raw, &target)
		}
		if err != nil {
			b.t.Fatal(err)
		}
	}
	p := &tab{b, target.Session}
	for _, method := range []string{"Runtime.enable", "Page.enable", "Log.enable"} {
		if _, err := b.call(p.session, method, map[string]any{}); err != nil {
			b.t.Fatal(err)
		}
	}
	if _, err := b.call(p.session, "Page.navigate", map[string]any{"url": url}); err != nil {
		b.t.Fatal(err)
	}
	p.await("the page is loaded", `document.readyState === "complete" && document.getElementById("state") !== null`)
	b.t.Cleanup(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.complaints) > 0 {
			b.t.Errorf("the page complains: %s", p.complaints)
		}
	})
	return p
}

// look sets the size of the window and the colours that the person prefers.
func (p *tab) look(width int, scheme string) {
	p.t.Helper()
	for method, params := range map[string]any{
		"Emulation.setDeviceMetricsOverride": map[string]any{"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false},
		"Emulation.setEmulatedMedia":         map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}},
	} {
		if _, err := p.call(p.session, method, params); err != nil {
			p.t.Fatal(err)
		}
	}
}

// press sends a key as the keyboard does, to whatever has the focus.
func (p *tab) press(key string) {
	p.t.Helper()
	for _, kind := range []string{"keyDown", "keyUp"} {
		params := map[string]any{"type": kind, "key": key}
		if kind == "keyDown" && len(key) == 1 {
			params["text"] = key
		}
		if _, err := p.call(p.session, "Input.dispatchKeyEvent", params); err != nil {
			p.t.Fatal(err)
		}
	}
}

// eval runs an expression in the page and gives its value as text.
func (p *tab) eval(expression string) string {
	p.t.Helper()
	raw, err := p.call(p.session, "Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true})
	if err != nil {
		p.t.Fatalf("%s: %v", expression, err)
	}
	var r struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		Exception json.RawMessage `json:"exceptionDetails"`
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		p.t.Fatal(err)
	}
	if r.Exception != nil {
		p.t.Fatalf("%s: %s", expression, r.Exception)
	}
	var s string
	if json.Unmarshal(r.Result.Value, &s) == nil {
		return s
	}
	return string(r.Result.Value)
}

// await waits until an expression is true in the page.
func (p *tab) await(what, expression string) {
	p.t.Helper()
	harness.Await(p.t, 30*time.Second, what, func() bool { return p.eval("Boolean("+expression+")") == "true" })
}

func js(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string can always be encoded
	}
	return string(b)
}
