package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"tidewire/e2e/client"
	"tidewire/e2e/harness"
)

// TestContract holds one node to the public contract, over the wire and to the
// letter. Each part has topics of its own.
func TestContract(t *testing.T) {
	t.Parallel()
	node := harness.Start(t, harness.Options{})
	api := client.New(node.URL)
	for _, part := range []struct {
		name string
		run  func(*testing.T, *harness.Node, *client.API)
	}{
		{"topics", contractTopics},
		{"publish", contractPublish},
		{"content types", contractContentTypes},
		{"lines", contractLines},
		{"poll", contractPoll},
		{"long poll", contractLongPoll},
		{"cursors", contractCursors},
		{"filters", contractFilters},
		{"events", contractEvents},
		{"subscribe", contractSubscribe},
		{"websocket", contractWebSocket},
		{"credit", contractCredit},
		{"addresses", contractAddresses},
		{"HTTP/2", contractHTTP2},
		{"browsers", contractBrowsers},
		{"sequences", contractSequences},     // restarts the node
		{"idempotency", contractIdempotency}, // restarts the node
	} {
		t.Run(part.name, func(t *testing.T) { part.run(t, node, api) })
	}
}

// within gives a context that ends with the patience of a test.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func contractTopics(t *testing.T, _ *harness.Node, api *client.API) {
	const settings = `"partitions":3,"retention":{"age":"1h","bytes":1048576},"max_message_bytes":2048,"durability":"fsync","idempotency_window":"1m"`
	info := api.CreateTopic(t, "t-topics", settings)
	if info.ID == "" || info.Name != "t-topics" || info.Replicas != 1 || info.MinInsync != 1 || info.MaxMessageBytes != 2048 ||
		info.Retention.Bytes != 1048576 || info.Durability != "fsync" || info.Compaction || info.Unclean {
		t.Errorf("a description %+v", info)
	}
	for what, text := range map[string]string{"retention.age": info.Retention.Age, "idempotency_window": info.IdempotencyWindow} {
		want := map[string]time.Duration{"retention.age": time.Hour, "idempotency_window": time.Minute}[what]
		if d, err := time.ParseDuration(text); err != nil || d != want {
			t.Errorf("%s is %q, want %s", what, text, want)
		}
	}
	if info.Layout.Generation != 1 || len(info.Layout.Partitions) != 3 {
		t.Errorf("layout %+v", info.Layout)
	}
	for _, p := range info.Layout.Partitions {
		if p.State != "open" || p.Leader == "" || p.LeaderEpoch < 1 || len(p.Replicas) != 1 || len(p.ISR) != 1 || p.Parents == nil || p.Children == nil || p.Earliest != 0 || p.HW != 0 {
			t.Errorf("partition %+v", p)
		}
	}
	// The same again: 200; only what is given is compared.
	for _, body := range []string{`{"name":"t-topics",` + settings + `}`, `{"name":"t-topics"}`, `{"name":"t-topics","partitions":3}`} {
		again := client.ParseTopic(t, api.Must(t, 200, "POST", "/topics/", jsonType, body).Body)
		if again.ID != info.ID {
			t.Errorf("%s made another topic", body)
		}
	}
	api.Must(t, 409, "POST", "/topics/", jsonType, `{"name":"t-topics","max_message_bytes":4096}`)
	altered := client.ParseTopic(t, api.Must(t, 200, "PATCH", "/topics/t-topics", jsonType, `{"max_message_bytes":4096,"retention":{"age":"2h"}}`).Body)
	if d, err := time.ParseDuration(altered.Retention.Age); altered.MaxMessageBytes != 4096 || err != nil || d != 2*time.Hour || altered.Retention.Bytes != 1048576 {
		t.Errorf("altered: %+v", altered)
	}
	var list struct{ Topics []client.TopicInfo }
	parse(t, api.Must(t, 200, "GET", "/topics/", "", "").Body, &list)
	found := 0
	for _, x := range list.Topics {
		if x.Name == "t-topics" {
			found++
		}
	}
	if found != 1 {
		t.Errorf("the list has the topic %d times", found)
	}
	defaults := api.CreateTopic(t, "t-defaults", "")
	if age, err := time.ParseDuration(defaults.Retention.Age); err != nil || age != 168*time.Hour || defaults.Retention.Bytes != 0 || defaults.MaxMessageBytes != 1<<20 || len(defaults.Layout.Partitions) != 1 {
		t.Errorf("defaults: %+v", defaults)
	}

	// Deleted and created again, it is another topic: old cursors do not fit.
	postText(t, api, "t-topics", "before", 201)
	old := api.MustPoll(t, "t-topics").Cursor
	if s := api.Must(t, 204, "DELETE", "/topics/t-topics", "", ""); s.Body != "" {
		t.Errorf("204 with a body: %s", s.Body)
	}
	api.Must(t, 404, "GET", "/topics/t-topics/metadata", "", "")
	api.Must(t, 404, "DELETE", "/topics/t-topics", "", "")
	if next := api.CreateTopic(t, "t-topics", `"partitions":2`); next.ID == info.ID {
		t.Error("a topic created again has the id of the one before")
	}
	if p := api.MustPoll(t, "t-topics"); len(p.Messages) != 0 || !p.End {
		t.Errorf("a topic created again holds %s", p.Body)
	}
	expired, err := api.Poll(within(t), "t-topics", "cursor", old)
	if err != nil || expired.Status != 410 || expired.Problem.Code != "cursor-expired" || expired.Problem.Cursor == "" {
		t.Fatalf("a cursor of the topic before: %v %d %s", err, expired.Status, expired.Body)
	}
	api.MustPoll(t, "t-topics", "cursor", expired.Problem.Cursor)
}

func contractPublish(t *testing.T, _ *harness.Node, api *client.API) {
	api.CreateTopic(t, "t-publish", `"partitions":2`)
	at := func(status int, path, body string, headers ...string) client.Place {
		t.Helper()
		ans := api.Must(t, status, "POST", "/topics/t-publish"+path, jsonType, body, headers...)
		if ct := ans.Header.Get("Content-Type"); !strings.HasPrefix(ct, jsonType) {
			t.Errorf("Content-Type %q", ct)
		}
		p, err := ans.Place()
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	first := at(201, "?partition=1", ` { "a" : 1 } `, "Tidewire-H-Trace-Id", "7f")
	if first.Topic != "t-publish" || first.Partition != 1 || *first.Offset != 0 || first.Timestamp == "" || *first.Duplicate {
		t.Errorf("201 with %+v", first)
	}
	if second := at(201, "?acks=leader&timeout=2s", `2`, "Tidewire-Partition", "1"); *second.Offset != 1 || second.Timestamp < first.Timestamp {
		t.Errorf("201 with %+v", second)
	}
	none := at(202, "?partition=1&acks=none", `3`)
	if none.Offset != nil || none.Partition != 1 {
		t.Errorf("202 with %+v", none)
	}
	if p := at(201, "?partition=1", `4`); *p.Offset != 3 {
		t.Errorf("behind acks=none: offset %d", *p.Offset)
	}
	keyed := at(201, "", `5`, "Tidewire-Key", "alice")
	if again := at(201, "?key=alice", `6`); again.Partition != keyed.Partition {
		t.Errorf("key alice in partitions %d and %d", keyed.Partition, again.Partition)
	}
	all := api.ReadAll(t, "t-publish", 1)
	m := all[0]
	if m.Key != nil || m.ContentType != jsonType || string(m.Value) != `{"a":1}` || m.Headers["trace-id"] != "7f" || len(m.Headers) != 1 || m.Timestamp != first.Timestamp || m.Topic != "t-publish" {
		t.Errorf("a message %+v", m)
	}

	// A tombstone, by its header and by JSON.
	api.Must(t, 201, "POST", "/topics/t-publish?key=gone", "", "", "Tidewire-Tombstone", "true")
	api.Must(t, 201, "POST", "/topics/t-publish", linesType, `{"key":"gone","value":null,"tombstone":true}`+"\n"+`{"key":"gone","value":null}`)
	var got []string
	for _, m := range api.MustPoll(t, "t-publish", "key", "gone").Messages {
		got = append(got, fmt.Sprintf("%s %t", m.Value, m.Tombstone))
	}
	if want := "null true,null true,null false"; strings.Join(got, ",") != want {
		t.Errorf("tombstones %v, want %s", got, want)
	}
}

// contractContentTypes publishes values of every kind and reads them back as
// the contract shows them.
func contractContentTypes(t *testing.T, _ *harness.Node, api *client.API) {
	api.CreateTopic(t, "t-types", "")
	for i, c := range []struct{ sent, value, shown, as string }{
		{"", `{"a": [1, 2]}`, `{"a":[1,2]}`, "application/json"},
		{"application/x-www-form-urlencoded", `12`, `12`, "application/json"},
		{"", "hällo", `"hällo"`, "text/plain"},
		{"", "a\xff", `base64`, "application/octet-stream"},
		{"text/csv; charset=utf-8", "a,b\n1,2", `"a,b\n1,2"`, "text/csv; charset=utf-8"},
		{"application/cloudevents+json", `{"x" : 1}`, `{"x":1}`, "application/cloudevents+json"},
		{"image/png", "\x89PNG", `base64`, "image/png"},
		{"application/json", `null`, `null`, "application/json"},
		{"application/json", `"a\u2028b\/"`, `"a\u2028b\/"`, "application/json"},
		{"application/json", `1e400`, `1e400`, "application/json"},
		{"text/plain", "", `""`, "text/plain"},
	} {
		ans := api.Must(t, 201, "POST", "/topics/t-types", c.sent, c.value)
		p, err := ans.Place()
		if err != nil {
			t.Fatal(err)
		}
		m := api.MustPoll(t, "t-types", "offset", strconv.FormatInt(*p.Offset, 10)).Messages[0]
		if m.ContentType != c.as {
			t.Errorf("value %d (%q) is %q, want %q", i, c.sent, m.ContentType, c.as)
		}
		if c.shown == "base64" {
			if m.Base64 == nil || string(m.Bytes()) != c.value {
				t.Errorf("value %d is %+v, want base64 of %q", i, m, c.value)
			}
		} else if string(m.Value) != c.shown {
			t.Errorf("value %d is shown as %s, want %s", i, m.Value, c.shown)
		}
	}
}

func contractLines(t *testing.T, _ *harness.Node, api *client.API) {
	api.CreateTopic(t, "t-lines", `"partitions":2`)
	ans := api.Must(t, 201, "POST", "/topics/t-lines?partition=0", linesType,
		`{"value":{"a":1},"headers":{"H":"1"}}`+"\n"+`{"value_base64":"AAE="}`+"\n"+`{"value":"t","content_type":"text/plain","partition":0}`)
	if ct := ans.Header.Get("Content-Type"); ct != linesType {
		t.Errorf("Content-Type %q", ct)
	}
	for i, text := range strings.Split(strings.TrimSpace(ans.Body), "\n") {
		var p client.Place
		if parse(t, text, &p); p.Offset == nil || *p.Offset != int64(i) || p.Partition != 0 || p.Duplicate == nil || *p.Duplicate {
			t.Errorf("answer %d: %s", i, text)
		}
	}
	if all := api.ReadAll(t, "t-lines", 0); len(all) != 3 || all[0].Headers["h"] != "1" || all[1].ContentType != "application/octet-stream" || string(all[2].Bytes()) != "t" {
		t.Errorf("kept: %+v", all)
	}
	api.Must(t, 202, "POST", "/topics/t-lines?acks=none", linesType, `{"value":1}`)

	// Past 10,000 lines the status is 207 whatever becomes of them, the answer
	// still has a line for each.
	const many = 12_000
	big := api.Must(t, 207, "POST", "/topics/t-lines?partition=1&acks=leader", linesType, strings.Repeat("{\"value\":1}\n", many))
	if n := strings.Count(big.Body, `"offset"`); n != many {
		t.Errorf("%d of %d lines were kept", n, many)
	}
	if all := api.ReadAll(t, "t-lines", 1); len(all) < many {
		t.Errorf("%d of %d lines are there", len(all), many)
	}
}

func contractPoll(t *testing.T, _ *harness.Node, api *client.API) {
	api.CreateTopic(t, "t-poll", "")
	empty := api.MustPoll(t, "t-poll")
	if len(empty.Messages) != 0 || !empty.End || empty.Cursor == "" || !strings.Contains(empty.Body, `"messages":[]`) {
		t.Errorf("an empty topic: %s", empty.Body)
	}
	var stamps []string
	for i := range 10 {
		p, err := postText(t, api, "t-poll", fmt.Sprint(i), 201).Place()
		if err != nil {
			t.Fatal(err)
		}
		stamps = append(stamps, p.Timestamp)
		pause(t.Context(), 5*time.Millisecond) // timestamps have milliseconds
	}
	expect := func(p client.Page, end bool, want ...int64) {
		t.Helper()
		var got []int64
		for _, m := range p.Messages {
			got = append(got, m.Offset)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) || p.End != end {
			t.Errorf("offsets %v end %t, want %v end %t", got, p.End, want, end)
		}
	}
	poll := func(query ...string) client.Page {
		t.Helper()
		return api.MustPoll(t, "t-poll", query...)
	}
	expect(poll(), true, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
	expect(poll("cursor", empty.Cursor, "limit", "3"), false, 0, 1, 2)
	expect(poll("offset", "7"), true, 7, 8, 9)
	expect(poll("offset", "7", "partition", "0"), true, 7, 8, 9)
	expect(poll("offset", "earliest", "limit", "2"), false, 0, 1)
	expect(poll("offset", "latest"), true)
	expect(poll("from", "latest"), true)
	expect(poll("offset", "10"), true)
	expect(poll("offset", "5000"), true)
	expect(poll("at", stamps[6]), true, 6, 7, 8, 9)
	expect(poll("from", stamps[8]), true, 8, 9)
	expect(poll("at", "2099-01-01T00:00:00Z"), true)
	expect(poll("from", "1999-01-01T00:00:00Z", "limit", "1"), false, 0)
	expect(poll("max_bytes", "1"), false, 0) // one comes however large
	three := poll("offset", "3", "limit", "2")
	expect(three, false, 3, 4)
	expect(poll("cursor", three.Cursor, "limit", "1"), false, 5)
	expect(poll("cursor", three.Cursor, "after", "0:7"), true, 8, 9)

	// A new record after `latest` is what its cursor finds.
	latest := poll("from", "latest").Cursor
	postText(t, api, "t-poll", "new", 201)
	expect(poll("cursor", latest), true, 10)
}

func contractLongPoll(t *testing.T, _ *harness.Node, api *client.API) {
	api.CreateTopic(t, "t-long", `"partitions":2`)
	// It waits for a record, wherever it comes.
	start := api.MustPoll(t, "t-long", "from", "latest").Cursor
	type result struct {
		page client.Page
		err  error
		took time.Duration
	}
	results := make(chan result, 1)
	ctx := within(t)
	begin := time.Now()
	go func() {
		p, err := client.New(api.URL).Poll(ctx, "t-long", "cursor", start, "wait", "50s")
		results <- result{p, err, time.Since(begin)}
	}()
	pause(ctx, 100*time.Millisecond) // so that it most likely waits; right either way
	postText(t, api, "t-long?partition=1", "here", 201)
	if r := <-results; r.err != nil || len(r.page.Messages) != 1 || string(r.page.Messages[0].Bytes()) != "here" || r.took > 20*time.Second {
		t.Errorf("a poll that waits: %v %s after %s", r.err, r.page.Body, r.took)
	}
	// It ends by itself.
	begin = time.Now()
	p := api.MustPoll(t, "t-long", "from", "latest", "wait", "300ms")
	if took := time.Since(begin); len(p.Messages) != 0 || !p.End || p.Cursor == "" || took < 250*time.Millisecond || took > 20*time.Second {
		t.Errorf("a poll that waits in vain: %s after %s", p.Body, took)
	}
	// Above the end it waits too.
	begin = time.Now()
	p = api.MustPoll(t, "t-long", "partition", "0", "offset", "100", "wait", "200ms")
	if took := time.Since(begin); len(p.Messages) != 0 || took < 150*time.Millisecond {
		t.Errorf("a poll above the end: %s after %s", p.Body, took)
	}
}

func contractCursors(t *testing.T, _ *harness.Node, api *client.API) {
	api.CreateTopic(t, "t-cursors", `"partitions":2`)
	api.CreateTopic(t, "t-foreign", `"partitions":2`)
	info := api.Topic(t, "t-cursors")
	a, b := info.KeyFor(0, "a"), info.KeyFor(1, "b")
	for i := range 4 {
		postText(t, api, "t-cursors?key="+a, fmt.Sprint("a", i), 201)
		postText(t, api, "t-cursors?key="+b, fmt.Sprint("b", i), 201)
	}
	whole := api.MustPoll(t, "t-cursors", "limit", "1").Cursor
	if strings.Trim(whole, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~") != "" || len(whole) > 4096 {
		t.Errorf("a cursor is no URL-safe string of at most 4 KiB: %q", whole)
	}
	ctx := within(t)
	gone := func(what, reason string, query ...string) {
		t.Helper()
		p, err := api.Poll(ctx, "t-cursors", query...)
		if err != nil || p.Status != 410 || p.Problem.Code != "cursor-expired" || p.Problem.Cursor == "" || p.Problem.Requested == nil || p.Problem.Earliest == nil || p.Problem.End == nil {
			t.Errorf("%s: %v %d %s", what, err, p.Status, p.Body)
			return
		}
		if reason != "" && p.Problem.Reason != reason {
			t.Errorf("%s: reason %q, want %q", what, p.Problem.Reason, reason)
		}
		// What it says to go on from is good, and silently skips nothing.
		if next := api.MustPoll(t, "t-cursors", "cursor", p.Problem.Cursor); len(next.Messages) != 8 {
			t.Errorf("%s: the new cursor finds %d of 8 records", what, len(next.Messages))
		}
	}
	gone("garbage", "unknown", "cursor", "AAAA")
	gone("an empty cursor", "unknown", "cursor", "")
	gone("a cursor with a letter changed", "unknown", "cursor", flip(whole))
	gone("a cursor of another topic", "other-topic", "cursor", api.MustPoll(t, "t-foreign").Cursor)
	gone("garbage with after", "", "cursor", "AAAA", "after", "0:1")

	// A cursor of one partition covers its range alone: a wider one is refused, not guessed at.
	part := api.MustPoll(t, "t-cursors", "partition", "0", "offset", "1", "limit", "1").Cursor
	if p, err := api.Poll(ctx, "t-cursors", "cursor", part); err != nil || p.Status != 400 || p.Problem.Code != "invalid" {
		t.Errorf("a cursor of one partition for the whole topic: %v %d %s", err, p.Status, p.Body)
	}
	if p := api.MustPoll(t, "t-cursors", "cursor", part, "partition", "0"); len(p.Messages) != 2 || p.Messages[0].Offset != 2 {
		t.Errorf("a cursor of one partition for it: %s", p.Body)
	}
	// A narrower range than it covers is fine.
	if p := api.MustPoll(t, "t-cursors", "cursor", whole, "partition", "1"); len(p.Messages) < 3 {
		t.Errorf("a cursor of the whole topic for one partition: %s", p.Body)
	}
	if p := api.MustPoll(t, "t-cursors", "cursor", whole, "key", b); len(p.Messages) < 3 {
		t.Errorf("a cursor of the whole topic for one key: %s", p.Body)
	}
	// Past what the log holds is no place that was ever handed out.
	if p, err := api.Poll(ctx, "t-cursors", "cursor", whole, "after", "0:500"); err != nil || p.Status != 410 && p.Status != 400 {
		t.Errorf("after past the end: %v %d %s", err, p.Status, p.Body)
	}
	// Over the streams the same is a gap, and it goes on.
	w := dialTo(t, ctx, api)
	sub, err := w.Call(ctx, 1, map[string]any{"op": "subscribe", "id": 1, "topic": "t-cursors", "cursor": "AAAA"})
	if err != nil || sub.Op != "subscribed" || sub.Recovered {
		t.Fatalf("subscribe with garbage: %v %s", err, sub.Raw)
	}
	gap, err := w.Next(ctx)
	if err != nil || gap.Op != "gap" || gap.Sub != sub.Sub || gap.Reason != "unknown" || gap.Cursor == "" || gap.Requested == nil || gap.Earliest == nil || gap.End == nil {
		t.Fatalf("a WebSocket after garbage: %v %s", err, gap.Raw)
	}
	for range 8 {
		if x, err := w.Next(ctx); err != nil || x.Op != "message" {
			t.Fatalf("after the gap: %v %s", err, x.Raw)
		}
	}
	s, err := client.OpenSSE(ctx, api.URL+"/topics/t-cursors/events", "AAAA")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	e, err := s.Next()
	if err != nil || e.Name != "gap" || e.ID == "" || !strings.Contains(string(e.Data), `"reason":"unknown"`) {
		t.Fatalf("an event stream after garbage: %v %+v", err, e)
	}
	for range 8 {
		if e, m, err := s.NextMessage(); err != nil || e.Name != "message" || m.Topic != "t-cursors" {
			t.Fatalf("after the gap: %v %s", err, e.Data)
		}
	}
}

// flip changes one letter in the middle of a cursor.
func flip(s string) string {
	b := []byte(s)
	if i := len(b) / 2; b[i] == 'A' {
		b[i] = 'B'
	} else {
		b[i] = 'A'
	}
	return string(b)
}

func dialTo(t *testing.T, ctx context.Context, api *client.API) *client.WS {
	t.Helper()
	w, err := client.DialWS(ctx, strings.TrimPrefix(api.URL, "http://"), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Drop)
	return w
}

func contractFilters(t *testing.T, _ *harness.Node, api *client.API) {
	api.CreateTopic(t, "t-filters", `"partitions":4`)
	for i := range 40 {
		postText(t, api, fmt.Sprintf("t-filters?key=user-%d", i%8), fmt.Sprint(i), 201)
		postText(t, api, "t-filters", "keyless", 201)
	}
	count := func(want int, query ...string) {
		t.Helper()
		if p := api.MustPoll(t, "t-filters", append(query, "limit", "1000")...); len(p.Messages) != want || !p.End {
			t.Errorf("%v finds %d, want %d", query, len(p.Messages), want)
		}
	}
	count(80)
	count(5, "key", "user-3")
	count(40, "key_prefix", "user-")
	count(0, "key", "nobody")
	count(0, "key_prefix", "x")
	total := 0
	for p := range 4 {
		total += len(api.MustPoll(t, "t-filters", "partition", strconv.Itoa(p), "offset", "earliest", "limit", "1000").Messages)
	}
	if total != 80 {
		t.Errorf("the partitions hold %d together", total)
	}
	// limit counts matches; the cursor of a filtered poll goes on where it was.
	first := api.MustPoll(t, "t-filters", "key", "user-3", "limit", "2")
	rest := api.MustPoll(t, "t-filters", "key", "user-3", "cursor", first.Cursor)
	if len(first.Messages) != 2 || len(rest.Messages) != 3 || string(rest.Messages[0].Bytes()) != "19" {
		t.Errorf("a filtered poll in two: %s %s", first.Body, rest.Body)
	}

	ctx := within(t)
	w := dialTo(t, ctx, api)
	for i, c := range []struct {
		filter string
		want   int
	}{
		{`"keys":["user-1","user-2","nobody"]`, 10},
		{`"key":"user-7"`, 5},
		{`"key_prefix":"user-"`, 40},
	} {
		id := int64(i + 1)
		sub, err := w.Call(ctx, id, fmt.Sprintf(`{"op":"subscribe","id":%d,"topic":"t-filters","from":"earliest",%s}`, id, c.filter))
		if err != nil || sub.Op != "subscribed" {
			t.Fatalf("%s: %v %s", c.filter, err, sub.Raw)
		}
		for n := 0; n < c.want; {
			x, err := w.Next(ctx)
			if err != nil {
				t.Fatalf("%s: after %d of %d: %v", c.filter, n, c.want, err)
			}
			if x.Op == "message" && x.Sub == sub.Sub {
				n++
			}
		}
		left, err := w.Call(ctx, id+100, fmt.Sprintf(`{"op":"unsubscribe","id":%d,"sub":%q}`, id+100, sub.Sub))
		if err != nil || left.Op != "unsubscribed" {
			t.Fatalf("unsubscribe: %v %s", err, left.Raw)
		}
	}
}

func contractEvents(t *testing.T, _ *harness.Node, api *client.API) {
	api.CreateTopic(t, "t-one", "")
	api.CreateTopic(t, "t-many", `"partitions":4`)
	const total = 300
	for _, topic := range []string{"t-one", "t-many"} {
		var body strings.Builder
		for i := range total {
			fmt.Fprintf(&body, "{\"key\":\"k%d\",\"value\":%d}\n", i%17, i)
		}
		api.Must(t, 201, "POST", "/topics/"+topic, linesType, body.String())
	}
	ctx := within(t)
	open := func(url, last string) *client.SSE {
		t.Helper()
		s, err := client.OpenSSE(ctx, api.URL+url, last)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		return s
	}
	next := func(s *client.SSE) (client.Event, client.Message) {
		t.Helper()
		e, m, err := s.NextMessage()
		if err != nil {
			t.Fatal(err)
		}
		return e, m
	}
	s := open("/topics/t-one/events?from=earliest", "")
	for name, want := range map[string]string{"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"} {
		if got := s.Header.Get(name); !strings.HasPrefix(got, want) {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if cc := s.Header.Get("Cache-Control"); !strings.Contains(cc, "no-cache") {
		t.Errorf("Cache-Control is %q", cc)
	}
	var ids []string
	for i := range total {
		e, m := next(s)
		if e.Name != "message" || m.Offset != int64(i) || e.ID == "" {
			t.Fatalf("event %d: %s with id %q: every event of one partition has one", i, e.Data, e.ID)
		}
		ids = append(ids, e.ID)
	}
	if s.Retry <= 0 {
		t.Error("no retry was set")
	}
	// An id resumes right behind its event, by header and by query; it wins over from.
	for _, s := range []*client.SSE{open("/topics/t-one/events?from=latest", ids[100]), open("/topics/t-one/events?from=latest&last_event_id="+ids[100], "")} {
		if _, m := next(s); m.Offset != 101 {
			t.Errorf("behind the id of offset 100 comes %d", m.Offset)
		}
	}
	// Polls take it as a cursor.
	if p := api.MustPoll(t, "t-one", "cursor", ids[200], "limit", "1"); p.Messages[0].Offset != 201 {
		t.Errorf("an id as a cursor finds %s", p.Body)
	}

	// Many partitions: an id at least every 64 events.
	s = open("/topics/t-many/events?from=earliest", "")
	since, most := 0, 0
	for range total {
		e, _ := next(s)
		if since++; e.ID != "" {
			since = 0
		}
		most = max(most, since)
	}
	if most >= 64 {
		t.Errorf("%d events in a row without an id, at most 63 may be", most)
	}
	// And every second: what was read last has an id soon, without a new event.
	for place := s.LastID; len(api.MustPoll(t, "t-many", "cursor", place).Messages) > 0; {
		var err error
		if place, err = s.NextID(); err != nil {
			t.Fatal(err)
		}
	}

	// latest is the default, of one partition and by key too.
	live := open("/topics/t-many/events?key=fresh", "")
	postText(t, api, "t-many?key=stale", "stale", 201)
	postText(t, api, "t-many?key=fresh", "fresh", 201)
	if _, m := next(live); string(m.Bytes()) != "fresh" {
		t.Errorf("a live stream of one key gets %q", m.Bytes())
	}
}

func contractSubscribe(t *testing.T, _ *harness.Node, api *client.API) {
	api.CreateTopic(t, "t-subscribe", `"partitions":2`)
	for i := range 6 {
		postText(t, api, fmt.Sprintf("t-subscribe?key=k%d", i%2), fmt.Sprint(i), 201)
	}
	var x struct {
		Subscription, Events, WebSocket string
		Partitions                      []int
	}
	parse(t, api.Must(t, 201, "POST", "/topics/subscribe", jsonType, `{"topic":"t-subscribe","from":"earliest","key":"k1"}`).Body, &x)
	if x.Subscription == "" || x.Events != "/subscriptions/"+x.Subscription+"/events" || x.WebSocket != "/ws?subscription="+x.Subscription || len(x.Partitions) == 0 {
		t.Fatalf("a subscription: %+v", x)
	}
	ctx := within(t)
	s, err := client.OpenSSE(ctx, api.URL+x.Events, "")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, want := range []string{"1", "3", "5"} {
		if _, m, err := s.NextMessage(); err != nil || string(m.Bytes()) != want {
			t.Fatalf("a subscription by id gets %v %q, want %s", err, m.Bytes(), want)
		}
	}
	w, err := client.DialWS(ctx, strings.TrimPrefix(api.URL, "http://"), "?subscription="+x.Subscription)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Drop()
	for got := 0; got < 3; {
		f, err := w.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if f.Op == "message" {
			if want := fmt.Sprint(2*got + 1); string(f.Message.Bytes()) != want {
				t.Errorf("a subscription over WebSocket gets %s, want %s", f.Raw, want)
			}
			got++
		}
	}
	// The same stream straight away.
	req, err := http.NewRequestWithContext(ctx, "POST", api.URL+"/topics/subscribe", strings.NewReader(`{"topic":"t-subscribe","from":"earliest"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", jsonType)
	req.Header.Set("Accept", "text/event-stream")
	straight, err := client.Stream(req)
	if err != nil {
		t.Fatal(err)
	}
	defer straight.Close()
	for range 6 {
		if e, _, err := straight.NextMessage(); err != nil || e.Name != "message" {
			t.Fatalf("a stream straight away: %v %s", err, e.Data)
		}
	}
}

func contractWebSocket(t *testing.T, node *harness.Node, api *client.API) {
	api.CreateTopic(t, "t-ws", `"partitions":2`)
	ctx := within(t)
	w := dialTo(t, ctx, api)
	if got := w.Conn().Subprotocol(); got != client.Subprotocol {
		t.Errorf("subprotocol %q", got)
	}
	var welcome struct {
		Connection, Node, Ping string
		Limits                 map[string]any
	}
	parse(t, string(w.Welcome.Raw), &welcome)
	if d, err := time.ParseDuration(welcome.Ping); welcome.Connection == "" || welcome.Node == "" || err != nil || d != 25*time.Second || len(welcome.Limits) == 0 || w.Welcome.ID != 0 {
		t.Errorf("welcome %s", w.Welcome.Raw)
	}
	if x, err := w.Call(ctx, 5, `{"op":"hello","id":5,"client":"test","version":"1"}`); err != nil || x.Op != "welcome" {
		t.Errorf("hello: %v %s", err, x.Raw)
	}
	x, err := w.Call(ctx, 6, `{"op":"publish","id":6,"topic":"t-ws","key":"a","value":{"n" : 1},"headers":{"X":"y"}}`)
	if err != nil || x.Op != "published" || x.Topic != "t-ws" || x.Offset == nil || *x.Offset != 0 || x.Timestamp == "" || x.Duplicate || !strings.Contains(string(x.Raw), `"duplicate":false`) {
		t.Fatalf("publish: %v %s", err, x.Raw)
	}
	home := x.Partition
	if x, err := w.Call(ctx, 7, `{"op":"publish","id":7,"topic":"t-ws","value":1,"acks":"none"}`); err != nil || x.Op != "published" || x.Offset != nil {
		t.Errorf("publish with acks none: %v %s", err, x.Raw)
	}
	sub, err := w.Call(ctx, 8, fmt.Sprintf(`{"op":"subscribe","id":8,"topic":"t-ws","from":"earliest","partition":%d,"key":"a"}`, home))
	if err != nil || sub.Op != "subscribed" || sub.Recovered || sub.Cursor == "" {
		t.Fatalf("subscribe: %v %s", err, sub.Raw)
	}
	m, err := w.Next(ctx)
	if err != nil || m.Op != "message" || m.Sub != sub.Sub || string(m.Message.Value) != `{"n":1}` || m.Message.Headers["x"] != "y" || m.Message.KeyText() != "a" {
		t.Fatalf("a message: %v %s", err, m.Raw)
	}
	// Every reader gets the same line.
	var page struct{ Messages []json.RawMessage }
	parse(t, api.MustPoll(t, "t-ws", "key", "a").Body, &page)
	if len(page.Messages) != 1 || string(page.Messages[0]) != string(m.Raw) {
		t.Errorf("a poll shows %s, a WebSocket %s", page.Messages, m.Raw)
	}
	// A cursor within 2 s of moving; with it nothing comes again.
	moved := time.Now()
	c, err := w.Next(ctx)
	if err != nil || c.Op != "cursor" || c.Sub != sub.Sub || c.Cursor == "" || time.Since(moved) > 5*time.Second {
		t.Fatalf("a cursor: %v %s after %s", err, c.Raw, time.Since(moved))
	}
	if x, err := w.Call(ctx, 9, fmt.Sprintf(`{"op":"unsubscribe","id":9,"sub":%q}`, sub.Sub)); err != nil || x.Op != "unsubscribed" {
		t.Errorf("unsubscribe: %v %s", err, x.Raw)
	}
	again, err := w.Call(ctx, 10, fmt.Sprintf(`{"op":"subscribe","id":10,"topic":"t-ws","cursor":%q,"partition":%d,"key":"a"}`, c.Cursor, home))
	if err != nil || again.Op != "subscribed" || !again.Recovered {
		t.Fatalf("subscribe again: %v %s", err, again.Raw)
	}
	if x, err := w.Call(ctx, 11, `{"op":"publish","id":11,"topic":"t-ws","key":"a","value":2}`); err != nil || x.Op != "published" {
		t.Fatalf("publish: %v %s", err, x.Raw)
	}
	for {
		x, err := w.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if x.Op == "message" {
			if string(x.Message.Value) != "2" {
				t.Errorf("after the cursor comes %s", x.Raw)
			}
			break
		}
	}
	meta, err := w.Call(ctx, 12, `{"op":"metadata","id":12,"topic":"t-ws"}`)
	if err != nil || meta.Op != "metadata" {
		t.Fatalf("metadata: %v %s", err, meta.Raw)
	}
	var described struct {
		Topic   string
		TopicID string `json:"topic_id"`
		Layout  struct {
			Generation int
			Partitions []client.PartitionInfo
		}
	}
	if parse(t, string(meta.Raw), &described); described.Topic != "t-ws" || described.TopicID == "" || described.Layout.Generation != 1 || len(described.Layout.Partitions) != 2 || described.Layout.Partitions[1].Hi != 1<<32 {
		t.Errorf("metadata: %s", meta.Raw)
	}
	// Two subscriptions of one connection have names of their own and both get everything.
	one, err := w.Call(ctx, 13, `{"op":"subscribe","id":13,"topic":"t-ws","from":"earliest"}`)
	if err != nil {
		t.Fatal(err)
	}
	two, err := w.Call(ctx, 14, `{"op":"subscribe","id":14,"topic":"t-ws","from":"earliest"}`)
	if err != nil || one.Sub == two.Sub || one.Sub == again.Sub {
		t.Fatalf("two subscriptions are %q and %q: %v", one.Sub, two.Sub, err)
	}
	seen := map[string]int{}
	for seen[one.Sub] < 3 || seen[two.Sub] < 3 {
		x, err := w.Next(ctx)
		if err != nil {
			t.Fatalf("after %v: %v", seen, err)
		}
		if x.Op == "message" {
			seen[x.Sub]++
		}
	}
	if err := w.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

// contractCredit takes messages a few at a time.
func contractCredit(t *testing.T, _ *harness.Node, api *client.API) {
	api.CreateTopic(t, "t-credit", "")
	api.Must(t, 201, "POST", "/topics/t-credit", linesType, strings.Repeat("{\"value\":1}\n", 50))
	ctx := within(t)
	w := dialTo(t, ctx, api)
	sub, err := w.Call(ctx, 1, `{"op":"subscribe","id":1,"topic":"t-credit","from":"earliest","credit":7}`)
	if err != nil || sub.Op != "subscribed" {
		t.Fatalf("subscribe: %v %s", err, sub.Raw)
	}
	// What comes before the answer to a later line, once the log has been at rest
	// for two of them, is all that the credit allows.
	next := int64(0)
	take := func(want int) {
		t.Helper()
		for got := 0; got < want; {
			x, err := w.Next(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if x.Op != "message" {
				continue
			}
			if x.Message.Offset != next {
				t.Fatalf("offset %d where %d is due", x.Message.Offset, next)
			}
			next++
			got++
		}
		pause(ctx, 300*time.Millisecond) // long enough for a message too many to come
		if err := w.Send(ctx, `{"op":"metadata","id":9,"topic":"t-credit"}`); err != nil {
			t.Fatal(err)
		}
		for {
			x, err := w.Next(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if x.ID == 9 {
				return
			}
			if x.Op == "message" {
				t.Fatalf("offset %d comes beyond the credit", x.Message.Offset)
			}
		}
	}
	take(7)
	for _, add := range []int{1, 20, 5} {
		if err := w.Send(ctx, fmt.Sprintf(`{"op":"credit","sub":%q,"add":%d}`, sub.Sub, add)); err != nil {
			t.Fatal(err)
		}
		take(add)
	}
}

func contractAddresses(t *testing.T, _ *harness.Node, api *client.API) {
	api.CreateTopic(t, "t-address", "")
	for _, path := range []string{
		"/topics", "/topics/", "/topics/t-address", "/topics/t-address/", "/topics/t-address/metadata/", "/nodes", "/nodes/",
		"/healthz", "/readyz", "/metrics", "/openapi.json", "/asyncapi.json", "/problems/invalid", "/",
	} {
		get := api.Must(t, 200, "GET", path, "", "")
		head := api.Must(t, 200, "HEAD", path, "", "")
		if head.Body != "" || head.Header.Get("Content-Type") != get.Header.Get("Content-Type") {
			t.Errorf("HEAD %s: %q with a body of %d bytes", path, head.Header.Get("Content-Type"), len(head.Body))
		}
	}
	if ans := api.Must(t, 404, "HEAD", "/topics/none", "", ""); ans.Body != "" {
		t.Errorf("HEAD of nothing has the body %q", ans.Body)
	}
	options, err := api.Do(t.Context(), "OPTIONS", "/topics/t-address", "", "")
	if err != nil || options.Status != 204 || !strings.Contains(options.Header.Get("Allow"), "PATCH") {
		t.Errorf("OPTIONS: %v %d %v", err, options.Status, options.Header)
	}
	var spec struct {
		OpenAPI string
		Paths   map[string]any
	}
	if parse(t, api.Must(t, 200, "GET", "/openapi.json", "", "").Body, &spec); !strings.HasPrefix(spec.OpenAPI, "3.1") || len(spec.Paths) < 8 {
		t.Errorf("OpenAPI %q with %d paths", spec.OpenAPI, len(spec.Paths))
	}
	var nodes struct {
		Nodes []struct {
			ID, Name, State, Version string
			Roles                    []string
			Addresses                map[string]string
		}
	}
	parse(t, api.Must(t, 200, "GET", "/nodes/", "", "").Body, &nodes)
	if len(nodes.Nodes) != 1 || nodes.Nodes[0].ID == "" || nodes.Nodes[0].State != "alive" || len(nodes.Nodes[0].Roles) != 3 {
		t.Fatalf("nodes: %+v", nodes)
	}
	api.Must(t, 200, "GET", "/nodes/"+nodes.Nodes[0].ID, "", "")
	metrics := api.Must(t, 200, "GET", "/metrics", "", "", "Accept", "application/openmetrics-text; version=1.0.0")
	if !strings.HasPrefix(metrics.Header.Get("Content-Type"), "application/openmetrics-text") || !strings.HasSuffix(metrics.Body, "# EOF\n") {
		t.Errorf("metrics are no OpenMetrics: %q", metrics.Header.Get("Content-Type"))
	}
	if page := api.Must(t, 200, "GET", "/", "", ""); !strings.HasPrefix(page.Header.Get("Content-Type"), "text/html") {
		t.Errorf("the page is %q", page.Header.Get("Content-Type"))
	}
}

// contractHTTP2 speaks HTTP/2 without TLS, by prior knowledge.
func contractHTTP2(t *testing.T, _ *harness.Node, api *client.API) {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	two := &client.API{URL: api.URL, HTTP: &http.Client{Transport: &http.Transport{Protocols: &protocols}}}
	res, err := two.HTTP.Get(api.URL + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.ProtoMajor != 2 {
		t.Fatalf("the answer is HTTP/%d", res.ProtoMajor)
	}
	two.CreateTopic(t, "t-http2", "")
	postText(t, two, "t-http2", "over HTTP/2", 201)
	two.Must(t, 201, "POST", "/topics/t-http2", linesType, strings.Repeat("{\"value\":1}\n", 2000))
	if p := two.MustPoll(t, "t-http2", "limit", "10000"); len(p.Messages) != 2001 {
		t.Errorf("%d records over HTTP/2", len(p.Messages))
	}
	req, err := http.NewRequestWithContext(within(t), "GET", api.URL+"/topics/t-http2/events?from=earliest", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err = two.HTTP.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	s := client.Events(res)
	for i := range 2001 {
		if _, m, err := s.NextMessage(); err != nil || m.Offset != int64(i) {
			t.Fatalf("event %d over HTTP/2: %v %d", i, err, m.Offset)
		}
	}
}

// contractBrowsers checks the origin of what a browser sends.
func contractBrowsers(t *testing.T, node *harness.Node, api *client.API) {
	own := "http://" + node.Addr
	api.Must(t, 200, "GET", "/topics/", "", "", "Origin", own)
	for _, origin := range []string{"http://127.0.0.1:1", "null", "https://evil.example"} {
		// What changes nothing is answered; its browser keeps the answer from the page.
		if read := api.Must(t, 200, "GET", "/topics/", "", "", "Origin", origin); read.Header.Get("Access-Control-Allow-Origin") != "" || !strings.Contains(read.Header.Get("Vary"), "Origin") {
			t.Errorf("a page of %s may read the answer: %v", origin, read.Header)
		}
		api.Must(t, 403, "OPTIONS", "/topics/", "", "", "Origin", origin, "Access-Control-Request-Method", "POST")
	}
	evil := api.Must(t, 403, "POST", "/topics/", jsonType, `{"name":"evil"}`, "Origin", "https://evil.example")
	if evil.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Error("a foreign origin is allowed to read the answer")
	}
	api.Must(t, 404, "GET", "/topics/evil/metadata", "", "")

	// A page under a name that its owner lets point here. By localhost a page is
	// the node's own.
	_, port, _ := net.SplitHostPort(node.Addr)
	for host, status := range map[string]int{"evil.example": 403, "evil.example:" + port: 403, "localhost:" + port: 404} {
		req, err := http.NewRequestWithContext(t.Context(), "DELETE", node.URL+"/topics/none", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		req.Header.Set("Origin", "http://"+host)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != status {
			t.Errorf("a page of %s: %d, want %d", host, res.StatusCode, status)
		}
	}
}

func contractSequences(t *testing.T, node *harness.Node, api *client.API) {
	api.CreateTopic(t, "t-sequences", `"partitions":2,"max_message_bytes":1024`)
	producer := uuid.NewString()
	send := func(status int, n int, contentType, body string) *client.Answer {
		t.Helper()
		ans := api.Must(t, status, "POST", "/topics/t-sequences?partition=0", contentType, body, "Tidewire-Producer", producer, "Tidewire-Sequence", strconv.Itoa(n))
		return &ans
	}
	kept := func(n int, offset int64, body string) {
		t.Helper()
		p, err := send(201, n, textType, body).Place()
		if err != nil || *p.Offset != offset || *p.Duplicate {
			t.Errorf("sequence %d: %v %+v, want offset %d", n, err, p, offset)
		}
	}
	repeat := func(n int, offset int64, body string) {
		t.Helper()
		p, err := send(200, n, textType, body).Place()
		if err != nil || p.Offset == nil || *p.Offset != offset || !*p.Duplicate || p.Partition != 0 {
			t.Errorf("repeat of sequence %d: %v %+v, want offset %d", n, err, p, offset)
		}
	}
	refused := func(status, n int, code string, expected int64, contentType, body string) {
		t.Helper()
		p, err := send(status, n, contentType, body).Problem()
		if err != nil || p.Code != code || (expected >= 0) != (p.Expected != nil) || p.Expected != nil && *p.Expected != expected {
			t.Errorf("sequence %d: %v %+v, want %s expecting %d", n, err, p, code, expected)
		}
	}
	refused(409, 3, "unknown-producer", 0, textType, "unknown")
	kept(0, 0, "zero")
	kept(1, 1, "one")
	repeat(0, 0, "zero")
	refused(409, 5, "out-of-order-sequence", 2, textType, "a gap")
	refused(400, 2, "invalid", -1, jsonType, `{"bad":`) // bad for what it is: the number is used up
	refused(413, 3, "message-too-large", -1, textType, strings.Repeat("x", 2000))
	refused(409, 5, "out-of-order-sequence", 4, textType, "a gap")
	kept(4, 2, "four")

	// Lines count up; a bad line uses its number up too.
	lines := send(207, 5, linesType, `{"value":5}`+"\n"+`{"valeu":6}`+"\n"+`{"value":7}`)
	if answers := strings.Split(strings.TrimSpace(lines.Body), "\n"); len(answers) != 3 || !strings.Contains(answers[0], `"offset":3`) || !strings.Contains(answers[1], `"unknown-field"`) || !strings.Contains(answers[2], `"offset":4`) {
		t.Errorf("lines: %s", lines.Body)
	}
	// The same body again: the same places, as duplicates.
	if again := send(207, 5, linesType, `{"value":5}`+"\n"+`{"valeu":6}`+"\n"+`{"value":7}`); strings.Count(again.Body, `"duplicate":true`) != 2 || !strings.Contains(again.Body, `"offset":3`) || !strings.Contains(again.Body, `"offset":4`) {
		t.Errorf("lines again: %s", again.Body)
	}
	// Another partition counts for itself, and so does WebSocket with the same producer.
	other := api.Must(t, 201, "POST", "/topics/t-sequences?partition=1", textType, "x", "Tidewire-Producer", producer, "Tidewire-Sequence", "0")
	if p, err := other.Place(); err != nil || *p.Offset != 0 {
		t.Errorf("sequence 0 of partition 1: %v %+v", err, p)
	}
	ctx := within(t)
	w := dialTo(t, ctx, api)
	frame := func(id int64, n int) map[string]any {
		return map[string]any{"op": "publish", "id": id, "topic": "t-sequences", "partition": 0, "producer": producer, "sequence": n, "value": n}
	}
	if x, err := w.Call(ctx, 1, frame(1, 8)); err != nil || x.Op != "published" || *x.Offset != 5 || x.Duplicate {
		t.Errorf("over WebSocket: %v %s", err, x.Raw)
	}
	if x, err := w.Call(ctx, 2, frame(2, 8)); err != nil || x.Op != "published" || *x.Offset != 5 || !x.Duplicate {
		t.Errorf("again over WebSocket: %v %s", err, x.Raw)
	}
	if x, err := w.Call(ctx, 3, frame(3, 10)); err != nil || x.Code != "out-of-order-sequence" || x.Expected == nil || *x.Expected != 9 {
		t.Errorf("a gap over WebSocket: %v %s", err, x.Raw)
	}
	// A bad frame uses its number up as well, so the producer is not wedged.
	if x, err := w.Call(ctx, 4, fmt.Sprintf(`{"op":"publish","id":4,"topic":"t-sequences","partition":0,"producer":%q,"sequence":9,"value":1,"content_type":"text/plain"}`, producer)); err != nil || x.Code != "invalid" {
		t.Errorf("a bad frame: %v %s", err, x.Raw)
	}
	if x, err := w.Call(ctx, 5, frame(5, 10)); err != nil || x.Op != "published" || *x.Offset != 6 {
		t.Errorf("after a bad frame: %v %s", err, x.Raw)
	}

	// All of it survives: a kill, and a stop.
	for i, end := range []func(){node.Kill, func() {
		if err := node.Stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	}} {
		end()
		if err := node.Run(); err != nil {
			t.Fatal(err)
		}
		repeat(0, 0, "zero")
		repeat(4, 2, "four")
		repeat(10, 6, "10")
		refused(409, 50, "out-of-order-sequence", int64(11+i), textType, "a gap")
		kept(11+i, int64(7+i), "on")
	}
	if all := api.ReadAll(t, "t-sequences", 0); len(all) != 9 {
		t.Errorf("%d records in the log, want 9", len(all))
	}
}

func contractIdempotency(t *testing.T, node *harness.Node, api *client.API) {
	info := api.CreateTopic(t, "t-idempotency", `"partitions":4`)
	send := func(status int, key, query, body string) *client.Answer {
		t.Helper()
		ans := api.Must(t, status, "POST", "/topics/t-idempotency"+query, textType, body, "Idempotency-Key", key)
		return &ans
	}
	place := func(a *client.Answer) client.Place {
		t.Helper()
		p, err := a.Place()
		if err != nil || p.Offset == nil || p.Duplicate == nil || *p.Duplicate != (a.Status == 200) {
			t.Fatalf("%v %d %s", err, a.Status, a.Body)
		}
		return p
	}
	same := func(a, b client.Place) bool {
		return a.Partition == b.Partition && *a.Offset == *b.Offset && a.Timestamp == b.Timestamp
	}
	first := place(send(201, "order-1", "", "body"))
	if want := info.PartitionOf("order-1"); first.Partition != want {
		t.Errorf("without a key it went to partition %d, want that of the Idempotency-Key, %d", first.Partition, want)
	}
	keyed := place(send(201, "order-2", "?key=alice", "body"))
	check := func(when string) {
		t.Helper()
		if again := place(send(200, "order-1", "", "body")); !same(again, first) {
			t.Errorf("%s: a repeat is at %+v, the first was at %+v", when, again, first)
		}
		if again := place(send(200, "order-2", "?key=alice", "body")); !same(again, keyed) {
			t.Errorf("%s: a repeat is at %+v, the first was at %+v", when, again, keyed)
		}
		if p, err := send(422, "order-1", "", "another body").Problem(); err != nil || p.Code != "idempotency-key-reused" {
			t.Errorf("%s: another body: %v %+v", when, err, p)
		}
	}
	check("at once")
	// Only what was kept is remembered: a refused body uses nothing up.
	api.Must(t, 400, "POST", "/topics/t-idempotency", jsonType, `{"bad":`, "Idempotency-Key", "order-3")
	place(send(201, "order-3", "", "good"))
	node.Kill()
	if err := node.Run(); err != nil {
		t.Fatal(err)
	}
	check("after a kill")
	if err := node.Stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	if err := node.Run(); err != nil {
		t.Fatal(err)
	}
	check("after a stop")
	total := 0
	for p := range 4 {
		total += len(api.ReadAll(t, "t-idempotency", p))
	}
	if total != 3 {
		t.Errorf("%d records in the log, want 3", total)
	}

	// The window ends.
	api.CreateTopic(t, "t-window", `"idempotency_window":"1s"`)
	api.Must(t, 201, "POST", "/topics/t-window", textType, "body", "Idempotency-Key", "again")
	harness.Await(t, patience, "the end of the window", func() bool {
		ans, err := api.Do(t.Context(), "POST", "/topics/t-window", textType, "body", "Idempotency-Key", "again")
		return err == nil && ans.Status == 201
	})
}
