package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"tidewire/e2e/client"
	"tidewire/e2e/harness"
	"tidewire/internal/testkit/chromium"
)

// dashboardScreens are all screens, with what each is ready by.
var dashboardScreens = []struct{ screen, ready string }{
	{"/overview", `fact("Nodes alive")`},
	{"/topics", `document.querySelector("tbody tr")`},
	{"/topics/%s/messages", `records().length > 0`},
	{"/topics/%s/messages?live=1", `records().length > 0`},
	{"/topics/%s/publish", `document.getElementById("publish")`},
	{"/topics/%s/partitions", `document.querySelector("tbody tr")`},
	{"/topics/%s/groups", `document.querySelector("tbody tr")`},
	{"/topics/%s/settings", `document.getElementById("settings")`},
	{"/groups", `document.querySelector("tbody tr")`},
	{"/groups/%s/g", `fact("Lag")`},
	{"/dead-letters", `document.querySelector(".empty")`},
	{"/connections", `fact("Connections")`},
	{"/cluster", `document.querySelector(".cell")`},
	{"/playground", `document.querySelector("datalist option")`},
}

// TestTheDashboardFitsAndIsLabelled looks at every screen in narrow and wide windows,
// light and dark: nothing is wider than its place, and everything has a name.
func TestTheDashboardFitsAndIsLabelled(t *testing.T) {
	t.Parallel()
	b := chromium.Start(t)
	n := harness.Start(t, harness.Options{})
	api := client.New(n.URL)
	topic := "a-topic-with-" + strings.Repeat("a-very-long-name.", 6) + "end"
	api.CreateTopic(t, topic, `"partitions":12`)
	for range 3 {
		api.Must(t, 201, "POST", "/topics/"+topic+"?key="+strings.Repeat("k", 200), "text/plain", strings.Repeat("v", 2000), "Tidewire-H-Long", strings.Repeat("h", 400))
	}
	if _, err := api.RegisterGroup(t.Context(), topic, "g", ""); err != nil {
		t.Fatal(err)
	}
	stream, err := client.OpenSSE(t.Context(), n.URL+"/topics/"+topic+"/events", "")
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()

	p := openDashboard(t, b, n.URL, "/overview")
	grounds := map[string]bool{}
	for _, width := range []int{360, 1600} {
		for _, scheme := range []string{"light", "dark"} {
			p.Look(width, scheme)
			grounds[p.js(`getComputedStyle(document.body).backgroundColor`)] = true
			for _, s := range dashboardScreens {
				screen := s.screen
				if strings.Contains(screen, "%s") {
					screen = fmt.Sprintf(screen, topic)
				}
				p.show(screen)
				p.until(screen+" is there", s.ready)
				p.js(`document.querySelectorAll("#feed details, details.card").forEach((d) => d.open = true)`)
				where := fmt.Sprintf("%s at %d px, %s", s.screen, width, scheme)
				if got := p.js(`document.documentElement.scrollWidth - document.documentElement.clientWidth`); got != "0" {
					wide := p.js(`[...document.querySelectorAll("main *")].filter((e) => e.getBoundingClientRect().right > document.documentElement.clientWidth + 1 && !e.closest("thead")).map((e) => e.tagName + "." + e.className).slice(0, 5).join()`)
					t.Errorf("%s: %s px do not fit, of %s", where, got, wide)
				}
				if got := p.js(`[...document.querySelectorAll("input, textarea, select")].filter((e) => !e.labels.length && !e.ariaLabel).map((e) => e.outerHTML).join()`); got != "" {
					t.Errorf("%s: no label: %s", where, got)
				}
				if got := p.js(`[...document.querySelectorAll("button, a, summary")].filter((e) => !(e.ariaLabel || e.textContent).trim()).map((e) => e.outerHTML).join()`); got != "" {
					t.Errorf("%s: no name: %s", where, got)
				}
				if got := p.js(`[...document.querySelectorAll("button, input:not([type=checkbox]), textarea, select, nav a")].filter((e) => e.offsetParent && e.getBoundingClientRect().height < 24 && !e.closest("thead")).map((e) => e.outerHTML).slice(0, 3).join()`); got != "" {
					t.Errorf("%s: too small to hit: %s", where, got)
				}
				if got := p.js(`[...document.querySelectorAll("table")].filter((e) => !e.caption).length + [...document.querySelectorAll("h2")].length`); got != "1" {
					t.Errorf("%s: tables without a caption and headings: %s", where, got)
				}
			}
		}
	}
	if len(grounds) != 2 {
		t.Errorf("light and dark have the grounds %v", grounds)
	}
}

// TestTheDashboardByKeyboard goes where the keys say.
func TestTheDashboardByKeyboard(t *testing.T) {
	t.Parallel()
	b := chromium.Start(t)
	n := harness.Start(t, harness.Options{})
	api := client.New(n.URL)
	for _, topic := range []string{"first", "second", "third"} {
		api.CreateTopic(t, topic, "")
	}
	p := openDashboard(t, b, n.URL, "/topics")
	p.until("the topics are there", `document.querySelectorAll("tbody tr").length === 3`)
	focused := func(what, text string) {
		t.Helper()
		p.until(what, `document.activeElement.textContent === `+chromium.Quote(text))
	}
	p.Press("j")
	focused("j goes to the first row", "first")
	p.Press("j")
	focused("and on", "second")
	p.Press("k")
	focused("k goes back", "first")
	p.Press("/")
	p.until("/ goes to the filter", `document.activeElement.matches("input[type=search]")`)
	p.Press("t")
	p.Press("h")
	p.until("which takes what is typed", `document.querySelectorAll("tbody tr").length === 1 && location.hash.endsWith("q=th")`)
	p.Press("Escape")
	p.Press("j")
	focused("and Escape leaves it", "third")
	p.js(`document.activeElement.click()`)
	p.until("the new screen has the focus, for those who hear it", `location.hash === "#/topics/third" && document.activeElement.id === "main" && document.title.startsWith("third")`)
	p.show("/topics/third/messages?live=1")
	p.until("it is live", `document.getElementById("live-state")?.textContent === "Live"`)
	p.Press("p")
	p.until("p pauses", `document.getElementById("live-state").textContent.startsWith("Paused")`)
	p.Press("p")
	p.until("and goes on", `document.getElementById("live-state").textContent === "Live"`)
}
