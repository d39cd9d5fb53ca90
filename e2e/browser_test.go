package e2e_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"tidewire/e2e/client"
	"tidewire/e2e/harness"
	"tidewire/internal/testkit/chromium"
)

// shows is an expression: a row of the feed has exactly this key and value.
func shows(key, value string) string {
	return fmt.Sprintf(`[...document.querySelectorAll("#feed li")].some(r => r.querySelector(".key")?.textContent === %s && r.querySelector(".value")?.textContent === %s)`, chromium.Quote(key), chromium.Quote(value))
}

// TestThePageShowsWhatIsPublished looks at the page as a person does.
func TestThePageShowsWhatIsPublished(t *testing.T) {
	t.Parallel()
	b := startBrowser(t)
	n := harness.Start(t, harness.Options{})
	api := client.New(n.URL)
	p.Open(n.URL + "/")
	p.Until(`!document.getElementById("empty").hidden`)

	// Made in the page.
	p.Eval(`document.getElementById("create-name").value = "watched"; document.getElementById("create-partitions").value = "2"; document.getElementById("create").requestSubmit(); 0`)
	p.Until(`document.getElementById("state").dataset.state === "live" && document.getElementById("stream-title").textContent === "watched"`)

	// Published over HTTP.
	publish := func(key, contentType, value string) {
		t.Helper()
		api.Must(t, 201, "POST", "/topics/watched?key="+url.QueryEscape(key), contentType, value)
	}
	publish("alice", "text/plain", "hello from outside")
	p.Until(shows("alice", "hello from outside"))
	publish("bob", "application/json", `{"total": 12}`)
	p.Until(shows("bob", `{"total":12}`))

	// Published in the page.
	p.Eval(`document.getElementById("publish-key").value = "carol"; document.getElementById("publish-value").value = "typed here"; document.getElementById("publish").requestSubmit(); 0`)
	p.Until(shows("carol", "typed here"))

	// Markup is text.
	const keyMarkup, valueMarkup = `<b onclick="hacked=1">key</b>`, `<img src=x onerror="hacked=1"><script>hacked=1</script></li></ol>`
	publish(keyMarkup, "text/plain", valueMarkup)
	publish(keyMarkup, "application/json", chromium.Quote(valueMarkup))
	p.Until(shows(keyMarkup, valueMarkup))
	if got := p.Eval(`String(document.querySelectorAll("#feed img, #feed b, #feed script").length) + " " + typeof window.hacked`); got != `"0 undefined"` {
		t.Errorf("a record became markup: %s", got)
	}

	// The node goes and comes back, once by a failure, once in order.
	for i, end := range []func(){n.Kill, func() {
		if err := n.Stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	}} {
		end()
		p.Until(`document.getElementById("state").dataset.state === "reconnecting"`)
		if err := n.Run(); err != nil {
			t.Fatal(err)
		}
		// Kept before the page is back: it must not miss it.
		publish("early", "text/plain", fmt.Sprintf("while the page was away %d", i))
		p.Until(`document.getElementById("state").dataset.state === "live"`)
		p.Until(shows("early", fmt.Sprintf("while the page was away %d", i)))
		publish("late", "text/plain", fmt.Sprintf("after the return %d", i))
		p.Until(shows("late", fmt.Sprintf("after the return %d", i)))
	}
	const want = 9
	if got := p.Eval(`[...document.querySelectorAll("#feed li .place")].map(x => x.textContent).join()`); len(strings.Split(got, ",")) != want {
		t.Errorf("%d messages were published, the page shows %s", want, got)
	}
	if bad := p.Exceptions(); len(bad) > 0 {
		t.Errorf("the page's script failed: %s", bad)
	}
	t.Logf("%d messages shown once each, over 2 restarts", want)
}
