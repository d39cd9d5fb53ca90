package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"tidewire/e2e/client"
	"tidewire/e2e/harness"
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
	exceptions []string
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
		case m.Method == "Runtime.exceptionThrown":
			b.exceptions = append(b.exceptions, string(m.Params))
		case b.waiting[m.ID] != nil:
			b.waiting[m.ID] <- m
			delete(b.waiting, m.ID)
		}
		b.mu.Unlock()
	}
}

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
	for _, method := range []string{"Runtime.enable", "Page.enable"} {
		if _, err := b.call(p.session, method, map[string]any{}); err != nil {
			b.t.Fatal(err)
		}
	}
	if _, err := b.call(p.session, "Page.navigate", map[string]any{"url": url}); err != nil {
		b.t.Fatal(err)
	}
	p.await("the page is loaded", `document.readyState === "complete" && document.getElementById("state") !== null`)
	return p
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

// shows is an expression: a row of the feed has exactly this key and value.
func shows(key, value string) string {
	return fmt.Sprintf(`[...document.querySelectorAll("#feed li")].some(r => r.querySelector(".key")?.textContent === %s && r.querySelector(".value")?.textContent === %s)`, js(key), js(value))
}

// TestThePageShowsWhatIsPublished looks at the page as a person does.
func TestThePageShowsWhatIsPublished(t *testing.T) {
	t.Parallel() // most of it is waiting
	b := startBrowser(t)
	n := harness.Start(t, harness.Options{})
	api := client.New(n.URL)
	p := b.open(n.URL + "/")
	p.await("the page says that there is no topic", `!document.getElementById("empty").hidden`)

	// Made in the page.
	p.eval(`document.getElementById("create-name").value = "watched"; document.getElementById("create-partitions").value = "2"; document.getElementById("create").requestSubmit(); 0`)
	p.await("the new topic is tailed", `document.getElementById("state").dataset.state === "live" && document.getElementById("stream-title").textContent === "watched"`)

	// Published over HTTP.
	publish := func(key, contentType, value string) {
		t.Helper()
		api.Must(t, 201, "POST", "/topics/watched?key="+url.QueryEscape(key), contentType, value)
	}
	publish("alice", "text/plain", "hello from outside")
	p.await("a message appears", shows("alice", "hello from outside"))
	publish("bob", "application/json", `{"total": 12}`)
	p.await("a JSON message appears", shows("bob", `{"total":12}`))

	// Published in the page.
	p.eval(`document.getElementById("publish-key").value = "carol"; document.getElementById("publish-value").value = "typed here"; document.getElementById("publish").requestSubmit(); 0`)
	p.await("what is typed is published and appears", shows("carol", "typed here"))

	// Markup is text.
	const keyMarkup, valueMarkup = `<b onclick="hacked=1">key</b>`, `<img src=x onerror="hacked=1"><script>hacked=1</script></li></ol>`
	publish(keyMarkup, "text/plain", valueMarkup)
	publish(keyMarkup, "application/json", js(valueMarkup))
	p.await("markup is shown as it was written", shows(keyMarkup, valueMarkup))
	if got := p.eval(`String(document.querySelectorAll("#feed img, #feed b, #feed script").length) + " " + typeof window.hacked`); got != "0 undefined" {
		t.Errorf("a record became markup: %s", got)
	}

	// The node goes and comes back, once by a failure, once in order.
	for i, end := range []func(){n.Kill, func() {
		if err := n.Stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	}} {
		end()
		p.await("the page says that it reconnects", `document.getElementById("state").dataset.state === "reconnecting"`)
		if err := n.Run(); err != nil {
			t.Fatal(err)
		}
		// Kept before the page is back: it must not miss it.
		publish("early", "text/plain", fmt.Sprintf("while the page was away %d", i))
		p.await("the page is back", `document.getElementById("state").dataset.state === "live"`)
		p.await("what was published meanwhile appears", shows("early", fmt.Sprintf("while the page was away %d", i)))
		publish("late", "text/plain", fmt.Sprintf("after the return %d", i))
		p.await("and what comes then", shows("late", fmt.Sprintf("after the return %d", i)))
	}
	const want = 9
	if got := p.eval(`[...document.querySelectorAll("#feed li .place")].map(x => x.textContent).join()`); len(strings.Split(got, ",")) != want {
		t.Errorf("%d messages were published, the page shows %s", want, got)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.exceptions) > 0 {
		t.Errorf("the page's script failed: %s", p.exceptions)
	}
	t.Logf("%d messages shown once each, over 2 restarts, %d errors of the script", want, len(p.exceptions))
}
