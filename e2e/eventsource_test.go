package e2e_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"tidewire/e2e/client"
	"tidewire/e2e/harness"
	"tidewire/gateway/httpapi"
	"tidewire/gateway/origin"
	"tidewire/internal/fault"
	"tidewire/internal/testkit/chromium"
)

// TestAPlainEventSourceResumes has what every browser brings along read a topic over a
// kill and a stop of its node: it comes back by itself with Last-Event-ID, and
// nothing is missing, nothing twice.
func TestAPlainEventSourceResumes(t *testing.T) {
	t.Parallel() // most of it is waiting
	page := chromium.Start(t).Tab()
	n := harness.Start(t, harness.Options{})
	api := client.New(n.URL)
	api.CreateTopic(t, "orders", "")
	page.Open(n.URL + "/")
	page.Eval(`window.seen = [], window.opened = 0;
		window.source = new EventSource("/topics/orders/events?from=earliest");
		source.onopen = () => opened++;
		source.onmessage = (e) => seen.push(JSON.parse(e.data).offset); 0`)
	total := 0
	publish := func() {
		for range 100 {
			postText(t, api, "orders", fmt.Sprint(total), 201)
			total++
		}
		page.Until(fmt.Sprintf("seen.length >= %d", total))
	}
	publish()
	for _, end := range []func(){n.Kill, func() {
		if err := n.Stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	}} {
		end()
		page.Until("source.readyState === EventSource.CONNECTING")
		if err := n.Run(); err != nil {
			t.Fatal(err)
		}
		publish()
	}
	var seen []int
	if err := json.Unmarshal([]byte(page.Eval("seen")), &seen); err != nil {
		t.Fatal(err)
	}
	for i, offset := range seen {
		if offset != i {
			t.Fatalf("offset %d came as number %d of %v", offset, i, seen)
		}
	}
	if len(seen) != total || page.Eval("opened") != "3" {
		t.Errorf("%d of %d messages over %s connections", len(seen), total, page.Eval("opened"))
	}
	t.Logf("%d messages once each, over 3 connections of one EventSource", len(seen))
}

// TestAnEventSourceOutlastsTheStartOfItsNode has it come back while the node starts: a
// browser takes any answer but a stream for the end.
func TestAnEventSourceOutlastsTheStartOfItsNode(t *testing.T) {
	t.Parallel() // most of it is waiting
	page := chromium.Start(t).Tab()
	n := harness.Start(t, harness.Options{})
	api := client.New(n.URL)
	api.CreateTopic(t, "orders", "")
	postText(t, api, "orders", "0", 201)
	page.Open(n.URL + "/problems/")
	page.Eval(`window.seen = [];
		window.source = new EventSource("/topics/orders/events?from=earliest");
		source.onmessage = (e) => seen.push(JSON.parse(e.data).offset); 0`)
	page.Until("seen.length === 1")
	n.Kill()

	// What stands at the address of a node that starts, for as long as this test wants.
	var l net.Listener
	harness.Await(t, patience, "the address is free", func() (ok bool) {
		var err error
		l, err = net.Listen("tcp", n.Addr)
		return err == nil
	})
	why := func() []error { return []error{fault.New(fault.Draining, "it starts")} }
	starting := httpapi.NewStartingServer(why, origin.New(nil, n.Addr), slog.New(slog.DiscardHandler))
	handler, asked := starting.Handler, make(chan string, 64)
	starting.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case asked <- r.Header.Get("Last-Event-ID"):
		default: // two are enough
		}
		handler.ServeHTTP(w, r)
	})
	ended := make(chan error, 1)
	go func() { ended <- starting.Serve(l) }()
	for range 2 {
		select {
		case id := <-asked:
			if id == "" {
				t.Error("it came back without an id")
			}
		case <-time.After(patience):
			t.Error("it does not come back")
		}
	}
	_ = starting.Close() // with whatever is under way
	<-ended
	if err := n.Run(); err != nil {
		t.Fatal(err)
	}
	postText(t, api, "orders", "1", 201)
	page.Until("seen.length === 2")
}

// TestCurlResumesByLastEventID does by hand what the README says, in pieces.
func TestCurlResumesByLastEventID(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Fatalf("curl is needed: %v", err)
	}
	n := harness.Start(t, harness.Options{})
	api := client.New(n.URL)
	api.CreateTopic(t, "orders", "")
	for i := range 300 {
		postText(t, api, "orders", fmt.Sprint(i), 201)
	}
	var offsets []int64
	last := ""
	for piece := 1; len(offsets) < 300; piece++ {
		args := []string{"-sN", n.URL + "/topics/orders/events?from=earliest"}
		if last != "" {
			args = append(args, "-H", "Last-Event-ID: "+last)
		}
		cmd := exec.CommandContext(within(t), curl, args...)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// Cut after an event, another number of them each time.
		id := ""
		lines := bufio.NewScanner(out)
		for took := 0; took < 10*piece && len(offsets) < 300 && lines.Scan(); {
			name, value, _ := strings.Cut(lines.Text(), ": ")
			switch name {
			case "id":
				id = value
			case "data":
				m, err := client.ParseMessage([]byte(value))
				if err != nil {
					t.Fatal(err)
				}
				offsets = append(offsets, m.Offset)
				took++
			}
		}
		last = id              // of an event that has come whole, but for the empty line behind it
		_ = cmd.Process.Kill() // in the middle of the stream
		_ = cmd.Wait()         // it was killed
		if piece == 4 {
			n.Kill()
			if err := n.Run(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, offset := range offsets {
		if offset != int64(i) {
			t.Fatalf("offset %d came as number %d", offset, i)
		}
	}
}

// TestATicketOpensOneEventSource has a page that knows a token make a ticket of it.
func TestATicketOpensOneEventSource(t *testing.T) {
	t.Parallel() // most of it is waiting
	page := chromium.Start(t).Tab()
	g := startGuarded(t)
	g.api.Must(t, 201, "POST", "/topics/orders", textType, "secret", "Authorization", "Bearer "+g.root)
	token := jwt(hs256, claims{"sub": "ann", "tidewire": may("orders", "orders")}, accessKey)
	page.Open(g.URL + "/")
	page.Eval(`window.open1 = async (query) => new Promise((done) => {
		const source = new EventSource("/topics/orders/events?from=earliest" + query);
		source.onmessage = (e) => (source.close(), done(JSON.parse(e.data).value));
		source.onerror = () => source.readyState === EventSource.CLOSED && done("closed");
	});
	window.ticket = async (token) => {
		const answer = await fetch("/tickets", { method: "POST", headers: { Authorization: "Bearer " + token } });
		return "&ticket=" + (await answer.json()).ticket;
	}; 0`)
	page.Eval(`ticket(` + chromium.Quote(token) + `).then((t) => (window.t = t, 0))`)
	for _, c := range []struct{ query, want, what string }{
		{`""`, `"closed"`, "without a ticket"},
		{`t`, `"secret"`, "with a ticket"},
		{`t`, `"closed"`, "with the same ticket again"},
		{`await ticket(` + chromium.Quote(token) + `)`, `"secret"`, "with a fresh one"},
	} {
		if got := page.Eval(`(async () => open1(` + c.query + `))()`); got != c.want {
			t.Errorf("%s the page gets %s, want %s", c.what, got, c.want)
		}
	}
}
