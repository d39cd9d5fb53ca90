package e2e_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// dashboard is the page in a tab, used as a person does: by what is written on it.
type dashboard struct{ *tab }

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

// openDashboard opens a screen by what stands behind the # of its address.
func (b *browser) openDashboard(url, screen string) *dashboard {
	b.t.Helper()
	return &dashboard{b.open(url + "/#" + screen)}
}

func (p *dashboard) js(expression string) string {
	p.t.Helper()
	return p.eval("(() => {" + prelude + "return " + expression + "})()")
}

func (p *dashboard) until(what, expression string) {
	p.t.Helper()
	ended := false
	defer func() {
		if !ended { // a test that fails says what a person would have seen
			raw, err := p.call(p.session, "Runtime.evaluate", map[string]any{"expression": "location.hash + document.body.innerText.slice(0, 3000)"})
			p.t.Logf("the page shows %s, %v", raw, err)
		}
	}()
	p.await(what, "(() => {"+prelude+"return "+expression+"})()")
	ended = true
}

// show goes to another screen of the same page.
func (p *dashboard) show(screen string) {
	p.t.Helper()
	p.js(`void (location.hash = ` + js("#"+screen) + `)`)
	p.until(screen+" is shown", `location.hash.startsWith(`+js("#"+screen)+`)`)
}

// fill types into the field with a label.
func (p *dashboard) fill(label, value string) {
	p.t.Helper()
	p.until("there is a field "+label, `labelled(`+js(label)+`)`)
	p.js(`(() => { const f = labelled(` + js(label) + `); f.value = ` + js(value) + `;
		f.dispatchEvent(new Event("input", { bubbles: true })); f.dispatchEvent(new Event("change", { bubbles: true })); })()`)
}

func (p *dashboard) click(text string) {
	p.t.Helper()
	p.until("there is a button "+text+" to press", `button(`+js(text)+`) && !button(`+js(text)+`).disabled`)
	p.js(`button(` + js(text) + `).click()`)
}

// asks waits for the dialog with a title: what is pressed before it is open is on the page behind it.
func (p *dashboard) asks(title string) {
	p.t.Helper()
	p.until("the page asks: "+title, `document.querySelector("dialog[open] h2")?.textContent.startsWith(`+js(title)+`)`)
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
	return fmt.Sprintf(`records().some((r) => r.querySelector(".key").textContent === %s && r.querySelector("summary .value").textContent === %s)`, js(key), js(value))
}
