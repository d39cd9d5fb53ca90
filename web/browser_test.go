package web

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"tidewire/internal/testkit/chromium"
)

const rows = `document.querySelectorAll("#feed li").length`

// The page in a real browser against a node that the test plays.
func TestThePageInABrowser(t *testing.T) {
	b := chromium.Start(t).Tab()
	n := newFakeNode(t)
	b.Look(1600, "light")
	b.Open(n.URL + "/")

	// Without a topic the page helps to make one, and tails it from now on.
	b.Until(`!document.getElementById("empty").hidden && document.getElementById("create-box").open`)
	if s := b.Text("state"); s != "Idle" {
		t.Errorf("state %q without a topic", s)
	}
	b.Fill("create-name", "orders")
	b.Submit("create")
	s := n.next(t)
	if s.topic != "orders" || s.query.Get("from") != "latest" || s.last != "" {
		t.Errorf("first stream: %+v", s)
	}
	b.Until(`document.getElementById("state").dataset.state === "live"`)
	b.Until(`document.getElementById("empty").hidden && location.hash === "#orders"`)

	// A record is text, whatever it holds.
	s.message("c1", 0, 0, `"<b>k</b>"`, `"value":"<img src=x onerror=alert(1)>"`)
	s.message("c2", 1, 0, "null", `"value":{"a":[1,2]}`)
	s.message("c3", 1, 1, `"k"`, `"value_base64":"AAECAw=="`)
	s.message("c4", 1, 2, `"k"`, `"value":null,"tombstone":true`)
	b.Until(rows + " === 4")
	feed := b.Text("feed")
	for _, want := range []string{"<b>k</b>", "<img src=x onerror=alert(1)>", `{"a":[1,2]}`, "4 bytes of application/json", "tombstone"} {
		if !strings.Contains(feed, want) {
			t.Errorf("the feed has no %q: %s", want, feed)
		}
	}
	if got := b.Eval(`document.querySelectorAll("#feed img, #feed b").length`); got != "0" {
		t.Errorf("%s elements came out of records", got)
	}

	// After a cut the browser resumes, and what comes again is not shown again.
	s.send("")
	s = n.next(t)
	if s.last != "c4" {
		t.Errorf("resumed after %q", s.last)
	}
	s.message("c4", 1, 2, `"k"`, `"value":"again"`)
	s.message("c5", 1, 3, `"k"`, `"value":"new"`)
	s.send("event: gap\ndata: {\"reason\":\"expired\",\"requested\":\"0:1\",\"earliest\":\"0:9\",\"end\":\"0:12\",\"cursor\":\"c6\"}\n\n")
	b.Until(rows + " === 6")
	if feed := b.Text("feed"); strings.Contains(feed, "again") || !strings.Contains(feed, "new") || !strings.Contains(feed, "not kept any more. Kept from 0:9 on") {
		t.Errorf("the feed after the cut: %s", feed)
	}
	b.Until(`document.getElementById("count").textContent === "5"`)

	// An answer that is no stream makes the browser give up; the page goes on
	// by itself, from its cursor.
	n.refuse("the node is shutting down")
	s.send("")
	b.Until(`document.getElementById("state").dataset.state === "reconnecting"`)
	n.refuse("")
	s = n.next(t)
	if got := s.query.Get("cursor") + s.last; !strings.HasPrefix(got, "c6") && !strings.HasPrefix(got, "c5") {
		t.Errorf("went on from cursor %q, last event %q", s.query.Get("cursor"), s.last)
	}
	b.Until(`document.getElementById("state").dataset.state === "live"`)

	// Pause holds messages back and says how many.
	b.Click("pause")
	s.message("c7", 0, 1, `"k"`, `"value":"held"`)
	b.Until(`document.getElementById("state").textContent === "Paused, 1 waiting"`)
	if got := b.Eval(rows); got != "6" {
		t.Errorf("%s rows while paused", got)
	}
	b.Click("pause")
	b.Until(rows + " === 7")
	b.Until(`document.getElementById("state").textContent === "Live"`)

	// The page keeps a bounded number of rows however fast it goes.
	for i := range 900 {
		s.message("d", 3, i, `"k"`, strconv.Quote("value")+":"+strconv.Itoa(i))
	}
	b.Until(`document.getElementById("count").textContent.replace(/\D/g, "") === "906"`)
	b.Until(rows + " === 300")
	if got := b.Eval(`document.querySelector("#feed .value").textContent`); got != `"899"` {
		t.Errorf("the newest row shows %s", got)
	}

	// The filter asks the node.
	b.Fill("filter-key", "alice")
	b.Submit("filter")
	if s = n.next(t); s.query.Get("key") != "alice" || s.query.Has("key_prefix") || s.query.Get("from") != "latest" {
		t.Errorf("filtered stream: %v", s.query)
	}
	b.Until(rows + " === 0")
	b.Fill("filter-key", "al*")
	b.Submit("filter")
	if s = n.next(t); s.query.Get("key_prefix") != "al" || s.query.Has("key") {
		t.Errorf("filtered stream: %v", s.query)
	}

	// What was kept before can be shown: all of it, or the last, of each partition
	// its share of a hundred.
	b.Fill("filter-key", "")
	show := func(from string) *stream {
		t.Helper()
		b.Eval(`document.getElementById("from").value = "` + from + `"`)
		b.Eval(`document.getElementById("from").dispatchEvent(new Event("change"))`)
		return n.next(t)
	}
	if s = show("earliest"); s.query.Get("from") != "earliest" || s.query.Has("cursor") {
		t.Errorf("from the beginning: %v", s.query)
	}
	if s = show("last"); s.query.Get("cursor") != "at-1" || s.query.Get("after") != "3:459,0:1959" || s.query.Has("from") {
		t.Errorf("the last: %v", s.query)
	}
	b.Until(rows + " === 1")
	if feed := b.Text("feed"); !strings.Contains(feed, "the first") {
		t.Errorf("the message that came with the cursor is not shown: %s", feed)
	}
	s.message("c8", 1, 1, `"k"`, `"value":"the second"`)
	b.Until(rows + " === 2")
	// Where a partition ends that nobody tells of is not known: its whole past is none
	// of the last.
	n.leaderless.Store(true)
	if s = show("last"); s.query.Get("from") != "latest" || s.query.Has("cursor") {
		t.Errorf("the last while one is not known: %v", s.query)
	}
	n.leaderless.Store(false)
	if s = show("latest"); s.query.Get("from") != "latest" {
		t.Errorf("from now on: %v", s.query)
	}

	// A topic that is there already is not told to be new.
	b.Until(`document.getElementById("create-note").textContent === "orders is created."`)
	b.Fill("create-name", "orders")
	b.Submit("create")
	n.next(t)
	b.Until(`document.getElementById("create-note").textContent === "orders already existed."`)

	// Publishing says what became of it.
	for _, p := range []publication{
		{"orders", "alice", "application/json", `{"total": 12}`},
		{"orders", "", "text/plain; charset=utf-8", "not {json"},
	} {
		b.Fill("publish-key", p.key)
		b.Fill("publish-value", p.body)
		b.Submit("publish")
		if got := <-n.published; got != p {
			t.Errorf("published %+v, want %+v", got, p)
		}
		b.Until(`document.getElementById("publish-note").textContent === "Kept in partition 2 at offset 17."`)
		b.Eval(`document.getElementById("publish-note").textContent = ""`)
	}
	n.refuse("the disk is full")
	b.Submit("publish")
	b.Until(`document.getElementById("publish-note").textContent === "the disk is full" && document.getElementById("publish-note").className.includes("bad")`)
	n.refuse("")

	// Nothing broke the policy or threw; the refusals of this test alone were noticed.
	for _, c := range b.Complaints() {
		if !strings.Contains(c, "503") {
			t.Errorf("the console says %s", c)
		}
	}
}

func TestThePageFitsNarrowAndWideLightAndDark(t *testing.T) {
	b := chromium.Start(t).Tab()
	n := newFakeNode(t, "a-topic-with-a-very-long-name.and-dots.and-so-on.and-on", "b", "c", "d", "e", "f")
	grounds := map[string]bool{}
	for _, width := range []int{360, 1600} {
		for _, scheme := range []string{"light", "dark"} {
			b.Look(width, scheme)
			b.Open(n.URL + "/?" + fmt.Sprint(width, scheme))
			n.next(t).message("c1", 0, 0, `"`+strings.Repeat("k", 200)+`"`, `"value":"`+strings.Repeat("v", 2000)+`"`)
			b.Until(rows + " === 1")
			if got := b.Eval(`[...document.querySelectorAll("body, main, #feed, #publish, #filter")].filter((e) => e.scrollWidth > e.clientWidth + 1).map((e) => e.tagName + e.id).join()`); got != `""` {
				t.Errorf("at %d px these are wider than their place: %s", width, got)
			}
			if got := b.Eval(`[...document.querySelectorAll("button, input, textarea, select, summary")].filter((e) => e.offsetParent && e.getBoundingClientRect().height < 24).map((e) => e.id).join()`); got != `""` {
				t.Errorf("at %d px these are too small to hit: %s", width, got)
			}
			grounds[b.Eval(`getComputedStyle(document.body).backgroundColor`)] = true
		}
	}
	if len(grounds) != 2 {
		t.Errorf("light and dark have the grounds %v", grounds)
	}
	if got := b.Eval(`[...document.querySelectorAll("input, textarea")].filter((e) => !e.labels.length).map((e) => e.id).join()`); got != `""` {
		t.Errorf("no label: %s", got)
	}
}

// Text has a contrast of at least 4.5 on what it stands on (WCAG 2.2, AA).
func TestColoursHaveContrast(t *testing.T) {
	css := source(t, "assets/style.css")
	themes := regexp.MustCompile(`(?s):root \{(.*?)\}`).FindAllStringSubmatch(css, -1)
	if len(themes) != 2 {
		t.Fatalf("%d themes", len(themes))
	}
	for i, theme := range themes {
		colour := map[string]float64{}
		for _, m := range regexp.MustCompile(`--([a-z-]+): #([0-9a-f]{6});`).FindAllStringSubmatch(theme[1], -1) {
			colour[m[1]] = luminance(m[2])
		}
		pairs := [][2]string{{"on-accent", "accent"}, {"card", "wait"}, {"wait", "hover"}, {"ink", "fresh"}}
		for _, text := range []string{"ink", "soft", "accent", "good", "wait", "bad"} {
			pairs = append(pairs, [2]string{text, "card"}, [2]string{text, "ground"})
		}
		for _, p := range pairs {
			hi, lo := max(colour[p[0]], colour[p[1]]), min(colour[p[0]], colour[p[1]])
			if c := (hi + 0.05) / (lo + 0.05); c < 4.5 {
				t.Errorf("theme %d: %s on %s has a contrast of %.2f", i, p[0], p[1], c)
			}
		}
	}
}

// luminance of a colour rrggbb, as WCAG has it.
func luminance(hex string) float64 {
	sum := 0.0
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		n, err := strconv.ParseUint(hex[2*i:2*i+2], 16, 8)
		if err != nil {
			panic(err)
		}
		c := float64(n) / 255
		if c <= 0.03928 {
			c /= 12.92
		} else {
			c = math.Pow((c+0.055)/1.055, 2.4)
		}
		sum += weight * c
	}
	return sum
}
