package e2e_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"tidewire/internal/testkit/chromium"
)

// dashboard is the page in a tab, used as a person does: by what is written on it.
type dashboard struct {
	*chromium.Tab
	t *testing.T
}

// prelude finds things by what is written beside them.
const prelude = `
	const root = () => document.querySelector("dialog[open]") ?? document;
	const labelled = (text) => {
		const label = [...root().querySelectorAll("label")].find((l) => l.textContent.trim().startsWith(text));
		return label && (label.htmlFor ? document.getElementById(label.htmlFor) : label.querySelector("input"));
	};
	const button = (text) => [...root().querySelectorAll("button, summary")].find((b) => b.textContent.trim().startsWith(text) || b.getAttribute("aria-label")?.startsWith(text));
	const fact = (name) => [...document.querySelectorAll(".fact")].find((f) => f.querySelector("dt").textContent.startsWith(name))?.querySelector("dd").firstChild.textContent;
	const cell = (id, head) => [...document.querySelectorAll("tr[data-id]")].find((r) => r.dataset.id === id)?.querySelector('[data-head="' + head + '"]')?.textContent.trim();
	const records = () => [...document.querySelectorAll("#feed > li")];
`

// openDashboard opens a screen in a tab of its own, by what stands behind the # of its
// address. At the end of the test the page must have nothing to complain of.
func openDashboard(t *testing.T, b *chromium.Browser, url, screen string) *dashboard {
	t.Helper()
	return openPage(t, b, url+"/#"+screen)
}

func openPage(t *testing.T, b *chromium.Browser, address string) *dashboard {
	t.Helper()
	p := &dashboard{b.Tab(), t}
	p.Open(address)
	p.until("the page is loaded", `document.getElementById("state") !== null`)
	t.Cleanup(func() {
		if bad := p.Faults(); len(bad) > 0 {
			t.Errorf("the page complains: %s", bad)
		}
	})
	return p
}

// js gives the value of an expression as text.
func (p *dashboard) js(expression string) string {
	p.t.Helper()
	raw := p.Eval("(() => {" + prelude + "return " + expression + "})()")
	var s string
	if json.Unmarshal([]byte(raw), &s) == nil {
		return s
	}
	return raw
}

func (p *dashboard) until(what, expression string) {
	p.t.Helper()
	ended := false
	defer func() {
		if !ended {
			p.t.Logf("it waited for this: %s", what)
		}
	}()
	p.Until("(() => {" + prelude + "return " + expression + "})()")
	ended = true
}

// show goes to another screen of the same page.
func (p *dashboard) show(screen string) {
	p.t.Helper()
	p.js(`void (location.hash = ` + chromium.Quote("#"+screen) + `)`)
	p.until(screen+" is shown", `location.hash.startsWith(`+chromium.Quote("#"+screen)+`)`)
}

// fill types into the field with a label.
func (p *dashboard) fill(label, value string) {
	p.t.Helper()
	p.until("there is a field "+label, `labelled(`+chromium.Quote(label)+`)`)
	p.js(`(() => { const f = labelled(` + chromium.Quote(label) + `); f.value = ` + chromium.Quote(value) + `;
		f.dispatchEvent(new Event("input", { bubbles: true })); f.dispatchEvent(new Event("change", { bubbles: true })); })()`)
}

func (p *dashboard) click(text string) {
	p.t.Helper()
	p.until("there is a button "+text+" to press", `button(`+chromium.Quote(text)+`) && !button(`+chromium.Quote(text)+`).disabled`)
	p.js(`button(` + chromium.Quote(text) + `).click()`)
}

// asks waits for the dialog with a title: what is pressed before it is open is on the page behind it.
func (p *dashboard) asks(title string) {
	p.t.Helper()
	p.until("the page asks: "+title, `document.querySelector("dialog[open] h2")?.textContent.startsWith(`+chromium.Quote(title)+`)`)
}

// number reads a figure; false: there is none (yet).
func number(text string) (n int64, ok bool) {
	n, err := strconv.ParseInt(strings.ReplaceAll(text, ",", ""), 10, 64)
	return n, err == nil
}

// agrees waits until each figure on the page is what the API says.
func (p *dashboard) agrees(t *testing.T, what string, figures func() map[string]int64) {
	t.Helper()
	var last string
	for expression := range figures() {
		p.until(what+": there is "+expression, expression+` !== undefined`)
	}
	awaitOr(t, what+" agrees with the API", func() bool {
		last = ""
		for expression, want := range figures() {
			shown := p.js(expression)
			if got, ok := number(shown); !ok || got != want {
				last += fmt.Sprintf("%s: %q, want %d; ", expression, shown, want)
			}
		}
		return last == ""
	}, &last)
}

// shows is an expression: a record of the list has exactly this key and value.
func shows(key, value string) string {
	return fmt.Sprintf(`records().some((r) => r.querySelector(".key").textContent === %s && r.querySelector("summary .value").textContent === %s)`, chromium.Quote(key), chromium.Quote(value))
}
