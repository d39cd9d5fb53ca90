package chromium

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Tab is one page. A call that fails ends the test.
type Tab struct {
	b       *Browser
	session string

	exceptions, entries []string // under b.mu
}

// hear takes in what the browser says of the page by itself.
func (t *Tab) hear(a answer) {
	switch a.Method {
	case "Runtime.exceptionThrown":
		t.exceptions = append(t.exceptions, string(a.Params))
	case "Log.entryAdded":
		t.entries = append(t.entries, string(a.Params))
	}
}

// Exceptions are those that the page's scripts did not catch, as the browser tells them.
func (t *Tab) Exceptions() []string {
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	return slices.Clone(t.exceptions)
}

// Complaints are all that the page's console has to say: exceptions, broken
// policies, calls that failed.
func (t *Tab) Complaints() []string {
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	return slices.Concat(t.exceptions, t.entries)
}

// Faults are the complaints that no page may have: what its scripts did not catch, and
// what its policy kept from it. Calls that failed, or were refused, pages handle.
func (t *Tab) Faults() []string {
	return slices.DeleteFunc(t.Complaints(), func(c string) bool { return strings.Contains(c, `"source":"network"`) })
}

// Eval runs JavaScript in the page and returns what its value, or what a promise
// comes to, is as JSON.
func (t *Tab) Eval(script string) string {
	t.b.t.Helper()
	var r struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	t.b.must(&r, t.session, "Runtime.evaluate", map[string]any{"expression": script, "awaitPromise": true, "returnByValue": true, "userGesture": true})
	if r.ExceptionDetails != nil {
		t.b.t.Fatalf("%s: %s %s", script, r.ExceptionDetails.Text, r.ExceptionDetails.Exception.Description)
	}
	return string(r.Result.Value)
}

// Text is the text of the element with an id.
func (t *Tab) Text(id string) string {
	t.b.t.Helper()
	var s string
	_ = json.Unmarshal([]byte(t.Eval(fmt.Sprintf("document.getElementById(%s).textContent", Quote(id)))), &s) // null is no text
	return s
}

// Until waits in the page until an expression is true. What the page shows is
// told where that never comes.
func (t *Tab) Until(condition string) {
	t.b.t.Helper()
	ok := t.Eval(fmt.Sprintf(`new Promise((done) => {
		const end = performance.now() + %d;
		const look = () => (%s) ? done(true) : performance.now() > end ? done(false) : setTimeout(look, 10);
		look();
	})`, patience.Milliseconds(), condition))
	if ok != "true" {
		t.b.t.Fatalf("never came true: %s\nThe page says %s\nits console %s", condition, t.Eval("document.body.innerText"), t.Complaints())
	}
}

// Open goes to an address and waits until its page is loaded.
func (t *Tab) Open(url string) {
	t.b.t.Helper()
	t.b.must(nil, t.session, "Page.navigate", map[string]any{"url": url})
	t.Until(`document.readyState === "complete" && location.href.startsWith(` + Quote(url) + `)`)
}

// Click does what a person does to the element of an id.
func (t *Tab) Click(id string) {
	t.b.t.Helper()
	t.Eval(fmt.Sprintf("document.getElementById(%s).click()", Quote(id)))
}

// Fill puts a value into the field of an id.
func (t *Tab) Fill(id, value string) {
	t.b.t.Helper()
	t.Eval(fmt.Sprintf("document.getElementById(%s).value = %s", Quote(id), Quote(value)))
}

// Submit sends the form of an id off.
func (t *Tab) Submit(id string) {
	t.b.t.Helper()
	t.Eval(fmt.Sprintf("document.getElementById(%s).requestSubmit()", Quote(id)))
}

// Look sets the width of the window in pixels, and the colours that the person prefers: light or dark.
func (t *Tab) Look(width int, scheme string) {
	t.b.t.Helper()
	t.b.must(nil, t.session, "Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": false})
	t.b.must(nil, t.session, "Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}})
}

// Press sends a key as the keyboard does, to whatever has the focus.
func (t *Tab) Press(key string) {
	t.b.t.Helper()
	for _, kind := range []string{"keyDown", "keyUp"} {
		params := map[string]any{"type": kind, "key": key}
		if kind == "keyDown" && len(key) == 1 {
			params["text"] = key
		}
		t.b.must(nil, t.session, "Input.dispatchKeyEvent", params)
	}
}

// Quote writes a text as JavaScript has it.
func Quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string can always be encoded
	}
	return string(b)
}
