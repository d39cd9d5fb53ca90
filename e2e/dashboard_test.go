package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"tidewire/e2e/client"
	"tidewire/e2e/harness"
	"tidewire/internal/testkit/chromium"
)

// awaitOr is harness.Await that says at the end what was seen last.
func awaitOr(t *testing.T, what string, yes func() bool, last *string) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("seen last: %s", *last)
		}
	}()
	harness.Await(t, 30*time.Second, what, yes)
}

// TestTheDashboardShowsWhatIsPublished makes a topic, follows it, and publishes to it.
func TestTheDashboardShowsWhatIsPublished(t *testing.T) {
	t.Parallel() // most of it is waiting
	b := chromium.Start(t)
	n := harness.Start(t, harness.Options{})
	api := client.New(n.URL)
	p := openDashboard(t, b, n.URL, "/topics")
	p.until("the page says that there is no topic, and how to make one", `document.querySelector(".empty pre")?.textContent.includes("tidewire topic create")`)

	// Made in the page.
	p.fill("Name", "watched")
	p.fill("Partitions", "2")
	p.click("Create")
	p.until("the new topic is followed", `document.getElementById("live-state")?.textContent === "Live" && location.hash.startsWith("#/topics/watched/messages")`)

	// Published over HTTP.
	publish := func(key, contentType, value string, headers ...string) {
		t.Helper()
		api.Must(t, 201, "POST", "/topics/watched?key="+url.QueryEscape(key), contentType, value, headers...)
	}
	publish("alice", "text/plain", "hello from outside")
	p.until("a message appears", shows("alice", "hello from outside"))
	publish("bob", jsonType, `{"total": 12}`)
	p.until("a JSON message appears", shows("bob", `{"total":12}`))

	// Markup is text, wherever it stands.
	const keyMarkup, valueMarkup = `<b onclick="hacked=1">key</b>`, `<img src=x onerror="hacked=1"><script>hacked=1</script></li></ol>`
	publish(keyMarkup, "text/plain", valueMarkup, "Tidewire-H-Note", valueMarkup)
	publish(keyMarkup, jsonType, `{`+chromium.Quote(keyMarkup)+`:`+chromium.Quote(valueMarkup)+`}`)
	p.until("markup is shown as it was written", `records().length === 4 && `+shows(keyMarkup, valueMarkup))
	p.js(`records().forEach((r) => r.querySelector("details").open = true)`)
	p.until("so it is in headers", `[...document.querySelectorAll("#feed dd")].some((d) => d.textContent === `+chromium.Quote(valueMarkup)+`)`)
	p.until("and in the names and values of JSON", `document.querySelector("#feed .tree")?.textContent.includes(`+chromium.Quote(keyMarkup)+`)`)
	if got := p.js(`document.querySelectorAll("#feed img, #feed b, #feed script").length + " " + typeof window.hacked`); got != "0 undefined" {
		t.Errorf("a record became markup: %s", got)
	}

	// Paused, what comes waits.
	p.click("Pause")
	publish("held", "text/plain", "back")
	p.until("the page says how many wait", `document.getElementById("live-state").textContent === "Paused, 1 waiting"`)
	if got := p.js(shows("held", "back")); got != "false" {
		t.Error("a message is shown while paused")
	}
	p.click("Go on")
	p.until("it is shown then", shows("held", "back"))

	// The node goes and comes back, once by a failure, once in order.
	for i, end := range []func(){n.Kill, func() {
		if err := n.Stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	}} {
		end()
		p.until("the page says that the node is away", `document.getElementById("live-state").textContent !== "Live" && document.querySelector("#state .bad")`)
		if err := n.Run(); err != nil {
			t.Fatal(err)
		}
		// Kept before the page is back: it must not miss it.
		publish("early", "text/plain", fmt.Sprintf("while the page was away %d", i))
		p.until("the page is back", `document.getElementById("live-state").textContent === "Live"`)
		p.until("what was published meanwhile appears", shows("early", fmt.Sprintf("while the page was away %d", i)))
		publish("late", "text/plain", fmt.Sprintf("after the return %d", i))
		p.until("and what comes then", shows("late", fmt.Sprintf("after the return %d", i)))
	}
	if got := p.js(`records().map((r) => r.dataset.row).join()`); len(strings.Split(got, ",")) != 9 {
		t.Errorf("9 messages were published, the page shows %s", got)
	}

	// Published in the page, with its headers; the page leads to where it was kept.
	p.show("/topics/watched/publish")
	p.fill("Key", "carol")
	p.fill("Value", `{"typed": [1, 2]}`)
	p.fill("Headers", "trace: 7f")
	p.click("Publish")
	p.until("the page says where it is kept", `document.querySelector("#publish .note a")?.textContent.startsWith("offset")`)
	p.js(`document.querySelector("#publish .note a").click()`)
	p.until("it is there", shows("carol", `{"typed":[1,2]}`))
	p.show("/topics/watched/publish")
	p.fill("Value", `{"typed": `)
	p.click("Publish")
	p.until("bad JSON is not published", `document.querySelector(".refusal")?.textContent.includes("not JSON")`)
}

// TestTheDashboardFindsRecords reads what is kept: from its places, by its filters, exactly.
func TestTheDashboardFindsRecords(t *testing.T) {
	t.Parallel()
	b := chromium.Start(t)
	n := harness.Start(t, harness.Options{})
	api := client.New(n.URL)
	api.CreateTopic(t, "found", `"partitions":3`)
	var lines strings.Builder
	for i := range 700 {
		fmt.Fprintf(&lines, `{"key":"k%d","value":{"n":%d,"odd":%t,"big":12345678901234567890},"headers":{"batch":"b%d"}}`+"\n", i%7, i, i%2 == 1, i/100)
	}
	api.Must(t, 201, "POST", "/topics/found", "application/x-ndjson", lines.String())

	p := openDashboard(t, b, n.URL, "/topics/found/messages")
	count := func(what string, n int) {
		t.Helper()
		p.until(what, fmt.Sprintf(`records().length === %d`, n))
	}
	count("the newest fifty", 50)
	p.click("Older ones")
	count("and fifty older ones", 100)
	// Once each, and the newest of each partition's.
	var rows []string
	if err := json.Unmarshal([]byte(p.js(`JSON.stringify(records().map((r) => r.dataset.row))`)), &rows); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, r := range rows {
		seen[r] = true
	}
	if len(seen) != 100 {
		t.Errorf("100 rows are of %d records", len(seen))
	}
	p.fill("Key", "k3")
	p.click("Read")
	p.until("those of a key alone", `records().length === 50 && records().every((r) => r.querySelector(".key").textContent === "k3")`)
	p.fill("Key", "k*")
	p.fill("Header", "batch=b4")
	p.fill("Value has", "odd=true")
	p.fill("Messages", "700")
	p.click("Read")
	count("those of a batch that are odd", 50)
	p.fill("Header", "")
	p.fill("Value has", `"n":17,`)
	p.fill("From", "earliest")
	p.click("Read")
	count("one with a text", 1)
	// A link holds the whole state, and a number is as it was written.
	reload := p.js(`location.href`)
	q := openPage(t, b, reload)
	q.until("the same in another tab", `records().length === 1`)
	q.js(`records()[0].querySelector("details").open = true`)
	q.until("numbers are exact", `document.querySelector("#feed .tree")?.textContent.includes("12345678901234567890")`)

	// From an offset, forwards; from beyond the end there is nothing, and the page says what to do.
	q.show("/topics/found/messages?from=offset&partition=1&offset=5")
	q.until("from an offset", `records()[0]?.dataset.row === "1:5" && records()[1]?.dataset.row === "1:6"`)
	q.show("/topics/found/messages?from=offset&partition=1&offset=999999")
	q.until("there is nothing", `document.querySelector(".empty")`)
	q.show("/topics/none/messages")
	q.until("the API's own words where there is no such topic", `document.querySelector(".refusal a")?.textContent === "topic-not-found"`)
}

// TestTheDashboardMovesGroupsAndRedrives does with groups what the API can.
func TestTheDashboardMovesGroupsAndRedrives(t *testing.T) {
	t.Parallel()
	b := chromium.Start(t)
	n := harness.Start(t, harness.Options{})
	api := client.New(n.URL)
	ctx := t.Context()
	api.CreateTopic(t, "jobs", `"partitions":1`)
	for i := range 10 {
		api.Must(t, 201, "POST", "/topics/jobs", jsonType, fmt.Sprintf(`{"job":%d,"id":9007199254740993}`, i))
	}
	if _, err := api.RegisterGroup(ctx, "jobs", "crew", `"session":"1h"`); err != nil {
		t.Fatal(err)
	}
	j, err := api.JoinGroup(ctx, "jobs", "crew", "m1")
	if err != nil {
		t.Fatal(err)
	}
	took, err := api.TakeMessages(ctx, "jobs", "crew", j, 10, "5s")
	if err != nil || len(took) != 10 {
		t.Fatalf("%d leased, %v", len(took), err)
	}
	s := client.Settlement{Member: j.Member, Epoch: j.Epoch}
	for i, m := range took {
		at := client.At{Partition: m.Partition, Offset: m.Offset}
		if i < 6 {
			s.Ack = append(s.Ack, at)
		} else {
			s.Reject = append(s.Reject, client.RejectionAt{At: at, Reason: "no <b>such</b> customer"})
		}
	}
	if _, err := api.Settle(ctx, "jobs", "crew", s); err != nil {
		t.Fatal(err)
	}

	p := openDashboard(t, b, n.URL, "/groups/jobs/crew")
	p.until("the member is there", `cell("m1", "Partitions") === "0"`)
	p.until("and how far it is", `cell("0", "Done up to") === "10" && fact("Lag") === "0" && fact("Dead") === "4"`)

	// With a member a move needs force, and is shown before it is made.
	p.click("Move to other offsets")
	p.asks("Move crew")
	p.fill("To", "offsets")
	p.fill("Offsets", "0:3")
	p.click("Show what would change")
	p.until("from where to where", `document.querySelector("dialog tr[data-id]")?.textContent.replace(/\s/g, "") === "01037again"`)
	if info, err := api.Group(ctx, "jobs", "crew"); err != nil || *info.Partitions[0].Committed != 10 {
		t.Errorf("a dry run moved the group: %+v, %v", info, err)
	}
	p.click("Move")
	p.until("the API's own words", `document.querySelector("dialog .refusal")?.textContent.includes("group-has-members")`)
	p.js(`labelled("By force").click()`)
	p.click("Move")
	p.until("it is moved", `!document.querySelector("dialog") && cell("0", "Done up to") === "3" && fact("Lag") === "7"`)

	// What died is published again, exactly as it was.
	p.show("/dead-letters")
	p.until("the dead letters", `cell("jobs.crew.dlq", "Records") === "4"`)
	p.js(`document.querySelector("tr[data-id='jobs.crew.dlq'] a").click()`)
	p.until("each with its reason, as text", `records().length === 4 && document.getElementById("reasons").textContent.includes("no <b>such</b> customer")`)
	p.js(`records().slice(0, 2).forEach((r) => r.querySelector("input").click())`)
	p.click("Publish again")
	p.asks("Publish 2 records again")
	p.until("to where they died", `document.querySelector("dialog")?.textContent.includes("Into jobs, where they died")`)
	p.click("Publish")
	p.until("it is done", `!document.querySelector("dialog")`)
	all := api.ReadAll(t, "jobs", 0)
	if len(all) != 12 {
		t.Fatalf("%d records after two were published again", len(all))
	}
	for _, m := range all[10:] {
		if v := string(m.Bytes()); !strings.Contains(v, `"id":9007199254740993`) || len(m.Headers) != 0 {
			t.Errorf("published again: %s, headers %v", v, m.Headers)
		}
	}

	// The member is taken out, and the group forgotten once its name was typed.
	if _, err := api.JoinGroup(ctx, "jobs", "crew", "m2"); err != nil {
		t.Fatal(err)
	}
	p.show("/groups/jobs/crew")
	p.click("Remove m2")
	p.asks("Remove m2")
	p.click("Remove")
	p.until("the member is gone", `!document.querySelector("dialog") && !cell("m2", "Partitions")`)
	p.click("Forget the group")
	p.asks("Forget crew")
	p.until("not before its name is typed", `button("Forget").disabled`)
	p.fill("Type crew to confirm", "crew")
	p.click("Forget")
	p.until("the page leads back", `location.hash === "#/groups"`)
	if _, err := api.Group(ctx, "jobs", "crew"); err == nil {
		t.Error("the group is still there")
	}
}

// TestTheDashboardDisconnectsAndPlays ends a connection, and opens one of its own.
func TestTheDashboardDisconnectsAndPlays(t *testing.T) {
	t.Parallel()
	b := chromium.Start(t)
	n := harness.Start(t, harness.Options{})
	api := client.New(n.URL)
	api.CreateTopic(t, "orders", "")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := client.OpenSSE(ctx, n.URL+"/topics/orders/events", "")
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	p := openDashboard(t, b, n.URL, "/connections")
	p.until("the stream is there", `fact("Server-sent events") === "1"`)
	p.click("Disconnect")
	p.asks("Disconnect")
	p.until("the page says what it is", `document.querySelector("dialog").textContent.includes("1 subscription")`)
	p.click("Disconnect")
	for closing := false; !closing; {
		e, err := stream.Next()
		if err != nil {
			t.Fatalf("the stream ended without a word: %v", err)
		}
		closing = e.Name == "closing"
	}
	p.until("the stream is gone", `fact("Connections") === "0"`)

	for _, way := range []string{"websocket", "sse", "poll"} {
		p.show("/playground")
		p.fill("By", way)
		p.click("Connect")
		p.until(way+" connects", `document.getElementById("playground-state").textContent === "connected"`)
		p.fill("Topic", "orders")
		p.click("Subscribe")
		p.fill("Value", `{"by":"`+way+`"}`)
		p.click("Publish")
		p.until(way+": it is kept", `[...document.querySelectorAll(".frames .note")].some((l) => l.textContent.includes("kept in partition 0"))`)
		p.until(way+": it comes", `[...document.querySelectorAll(".frames .in")].some((l) => l.textContent.includes('"by":"`+way+`"'))`)
		p.until(way+": how long it took", `document.querySelector(".bars")`)
		p.click("Disconnect")
		p.until(way+": closed", `document.getElementById("playground-state").textContent === "closed"`)
		p.show("/topics")
	}
}

// TestTheDashboardAsksForAToken where the node does, and never shows it in an address.
func TestTheDashboardAsksForAToken(t *testing.T) {
	t.Parallel()
	b := chromium.Start(t)
	g := startGuarded(t)
	p := openDashboard(t, b, g.URL, "/topics")
	p.until("the page asks for a token", `document.querySelector("header .refusal")?.textContent.includes("tidewire token")`)
	p.fill("Token", "nonsense")
	p.click("Use")
	p.until("a bad one is refused, in the API's words", `document.querySelector("header .refusal") && document.querySelector("main .refusal a")?.textContent === "unauthorized"`)
	p.fill("Token", jwt(hs256, claims{"sub": "ann", "tidewire": map[string]any{"subscribe": []string{"news"}}}, accessKey))
	p.click("Use")
	p.until("a small one shows what it may see", `cell("", "Topic") === undefined && document.querySelectorAll("tbody tr").length === 1 && document.body.textContent.includes("news")`)
	p.show("/cluster")
	p.until("and is told of the right that it lacks", `document.querySelector("main .refusal a")?.textContent === "forbidden"`)
	p.click("Token given")
	p.fill("Token", g.root)
	p.click("Use")
	p.until("root sees the nodes", `document.querySelectorAll("tbody tr").length === 1 && !document.querySelector("main .refusal")`)
	p.show("/topics/orders/messages?live=1")
	p.until("and follows a topic over the SDK", `document.getElementById("live-state")?.textContent === "Live"`)
	g.api.Must(t, 201, "POST", "/topics/orders?key=k", "text/plain", "hello", "Authorization", "Bearer "+g.root)
	p.until("of which it gets what comes", shows("k", "hello"))
	if got := p.js(`[location.href, ...performance.getEntries().map((e) => e.name)].filter((u) => u.includes("ey") && u.includes(".")).filter((u) => /eyJ/.test(u)).length + " " + localStorage.length + " " + sessionStorage.length`); got != "0 0 1" {
		t.Errorf("addresses with a token, and what is stored: %s", got)
	}
	p.click("Token given")
	p.click("Forget")
	p.until("forgotten, it is asked for again", `document.querySelector("header .refusal") && sessionStorage.length === 0`)
}
