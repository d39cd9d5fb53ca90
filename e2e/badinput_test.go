package e2e_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"tidewire/e2e/client"
	"tidewire/e2e/harness"
	"tidewire/internal/fault"
)

// badCall is one mistake over HTTP and what must be said of it. A status of 0
// is any 4xx: calls that this version does not have.
type badCall struct {
	name, method, path, contentType, body string
	headers                               []string
	status                                int
	code, field                           string
	says                                  []string // in the detail: what is allowed, or what is nearest
}

const (
	jsonType  = "application/json"
	textType  = "text/plain"
	linesType = "application/x-ndjson"
	aProducer = "0190b0a6-7c1e-7d0c-8f2a-3a1b2c3d4e5f"

	anotherProducer = "0190b0a6-7c1e-7d0c-8f2a-000000000001"
)

func badCalls() []badCall {
	create := func(name, body, code, field string, says ...string) badCall {
		return badCall{name: "create: " + name, method: "POST", path: "/topics/", contentType: jsonType, body: body, status: 400, code: code, field: field, says: says}
	}
	poll := func(query, code, field string, says ...string) badCall {
		return badCall{name: "poll: " + query, method: "GET", path: "/topics/two?" + query, status: 400, code: code, field: field, says: says}
	}
	events := func(query, code, field string, says ...string) badCall {
		return badCall{name: "events: " + query, method: "GET", path: "/topics/two/events?" + query, status: 400, code: code, field: field, says: says}
	}
	post := func(name, query, body string, headers []string, status int, code, field string, says ...string) badCall {
		return badCall{name: "publish: " + name, method: "POST", path: "/topics/two" + query, contentType: textType, body: body, headers: headers, status: status, code: code, field: field, says: says}
	}
	typed := func(c badCall, contentType string) badCall {
		c.contentType = contentType
		return c
	}
	absent := func(method, path string) badCall {
		return badCall{name: "absent: " + method + " " + path, method: method, path: path, contentType: jsonType, body: "{}"}
	}
	calls := []badCall{
		create("half an object", `{"name":`, "invalid", ""),
		create("a list", `["a"]`, "invalid", "", "object"),
		create("nothing", ``, "invalid", ""),
		create("not UTF-8", "{\"name\":\"\xff\"}", "invalid", ""),
		create("unknown field", `{"name":"a","partitons":4}`, "unknown-field", "partitons", "partitions"),
		create("unknown field within", `{"name":"a","retention":{"agee":"1h"}}`, "unknown-field", "retention.agee", "age"),
		create("field twice", `{"name":"a","name":"b"}`, "invalid", "name", "twice"),
		create("no name", `{"partitions":4}`, "invalid", "name"),
		create("bad name", `{"name":"a b"}`, "invalid", "name", "A-Z"),
		create("long name", `{"name":"`+strings.Repeat("n", 250)+`"}`, "invalid", "name", "249"),
		create("word of the API", `{"name":"subscribe"}`, "reserved-name", "name"),
		create("name of the cluster", `{"name":"_alerts"}`, "reserved-name", "name"),
		create("no partitions", `{"name":"a","partitions":0}`, "invalid", "partitions", "1", "256"),
		create("too many partitions", `{"name":"a","partitions":257}`, "invalid", "partitions", "1", "256"),
		create("partitions as text", `{"name":"a","partitions":"4"}`, "invalid", "partitions", "1", "256"),
		create("half a partition", `{"name":"a","partitions":1.5}`, "invalid", "partitions", "1", "256"),
		create("more replicas than brokers", `{"name":"a","replicas":2}`, "invalid", "replicas", "1"),
		create("more in sync than replicas", `{"name":"a","min_insync":2}`, "invalid", "min_insync", "1"),
		create("age in words", `{"name":"a","retention":{"age":"7 days"}}`, "invalid", "retention.age", "168h"),
		create("short age", `{"name":"a","retention":{"age":"1us"}}`, "invalid", "retention.age", "milliseconds"),
		create("negative bytes", `{"name":"a","retention":{"bytes":-1}}`, "invalid", "retention.bytes", "0"),
		create("half a byte", `{"name":"a","retention":{"bytes":0.5}}`, "invalid", "retention.bytes", "whole number"),
		create("durability", `{"name":"a","durability":"disk"}`, "invalid", "durability", "fsync", "replicated"),
		create("no messages", `{"name":"a","max_message_bytes":0}`, "invalid", "max_message_bytes", "1", "16777216"),
		create("large messages", `{"name":"a","max_message_bytes":16777217}`, "invalid", "max_message_bytes", "1", "16777216"),
		create("long window", `{"name":"a","idempotency_window":"25h"}`, "invalid", "idempotency_window", "24h"),
		create("unclean as a number", `{"name":"a","unclean":1}`, "invalid", "unclean", "true", "false"),
		create("compaction", `{"name":"a","compaction":true}`, "invalid", "compaction", "false"),
		create("policy", `{"name":"a","policy":{"burst":{"rate":5,"action":"throttle"}}}`, "invalid", "policy"),
		{name: "create: other settings", method: "POST", path: "/topics/", contentType: jsonType, body: `{"name":"two","partitions":3}`, status: 409, code: "topic-exists", says: []string{"partitions"}},
		{name: "create: as XML", method: "POST", path: "/topics/", contentType: "text/xml", body: `<a/>`, status: 415, code: "unsupported-media-type", says: []string{"application/json"}},
		{name: "create: compressed", method: "POST", path: "/topics/", contentType: jsonType, body: `{}`, headers: []string{"Content-Encoding", "gzip"}, status: 415, code: "unsupported-media-type"},
		{name: "create: in Latin-1", method: "POST", path: "/topics/", contentType: jsonType + "; charset=latin1", body: `{}`, status: 415, code: "unsupported-media-type", says: []string{"UTF-8"}},
		{name: "alter: unknown field", method: "PATCH", path: "/topics/two", contentType: jsonType, body: `{"durabilty":"fsync"}`, status: 400, code: "unknown-field", field: "durabilty", says: []string{"durability"}},
		{name: "alter: partitions", method: "PATCH", path: "/topics/two", contentType: jsonType, body: `{"partitions":8}`, status: 400, code: "invalid", field: "partitions"},
		{name: "alter: no such topic", method: "PATCH", path: "/topics/none", contentType: jsonType, body: `{}`, status: 404, code: "topic-not-found"},
		{name: "delete: no such topic", method: "DELETE", path: "/topics/none", status: 404, code: "topic-not-found"},
		{name: "describe: no such topic", method: "GET", path: "/topics/none/metadata", status: 404, code: "topic-not-found"},
		{name: "describe: no such node", method: "GET", path: "/nodes/none", status: 404, code: "node-not-found"},
		{name: "no such address", method: "GET", path: "/topic", status: 404, code: "not-found"},
		{name: "method", method: "PUT", path: "/topics/two", status: 405, code: "method-not-allowed", says: []string{"GET", "POST", "PATCH", "DELETE"}},
		{name: "method of the list", method: "DELETE", path: "/topics/", status: 405, code: "method-not-allowed", says: []string{"GET", "POST"}},
		{name: "method without a name", method: "FROB", path: "/topics/two", status: 405, code: "method-not-allowed"},
		{name: "foreign origin", method: "POST", path: "/topics/", contentType: jsonType, body: `{"name":"evil"}`, headers: []string{"Origin", "https://evil.example"}, status: 403, code: "forbidden", says: []string{"allowed_origins"}},

		poll("ofset=3", "unknown-field", "ofset", "offset"),
		poll("offset=-1&partition=0", "invalid", "offset", "earliest", "latest"),
		poll("offset=first&partition=0", "invalid", "offset", "earliest", "latest"),
		poll("offset=3", "invalid", "partition", "2 partitions"),
		poll("offset=0&partition=0&from=earliest", "invalid", "from", "offset"),
		poll("cursor=x&from=earliest", "invalid", "from", "cursor"),
		poll("limit=0", "invalid", "limit", "1", "10000"),
		poll("limit=10001", "invalid", "limit", "1", "10000"),
		poll("limit=ten", "invalid", "limit", "1", "10000"),
		poll("max_bytes=0", "invalid", "max_bytes", "16777216"),
		poll("wait=2h", "invalid", "wait", "1m"),
		poll("wait=soon", "invalid", "wait", "250ms"),
		poll("from=yesterday", "invalid", "from", "earliest", "latest"),
		poll("at=noon&partition=0", "invalid", "at", "Z"),
		poll("after=0:1", "invalid", "after", "cursor"),
		poll("cursor=x&after=0-1", "invalid", "after", "0:17,1:20"),
		poll("cursor=x&after=0:1,0:2", "invalid", "after", "twice"),
		poll("key=a&key_prefix=b", "invalid", "key_prefix", "key"),
		poll("key=", "invalid", "key", "1024"),
		poll("key=%ff", "invalid", "key", "UTF-8"),
		poll("limit=1&limit=2", "invalid", "limit", "once"),
		poll("limit=%zz", "invalid", "query"),
		poll("partition=one&offset=0", "invalid", "partition", "whole number"),
		{name: "poll: no such partition", method: "GET", path: "/topics/two?partition=9&offset=0", status: 404, code: "partition-not-found"},
		{name: "poll: no such topic", method: "GET", path: "/topics/none", status: 404, code: "topic-not-found"},
		{name: "poll: not a cursor", method: "GET", path: "/topics/two?cursor=nonsense", status: 410, code: "cursor-expired"},
		events("from=never", "invalid", "from", "earliest", "latest"),
		events("limit=3", "unknown-field", "limit"),
		events("cursor=x&from=latest", "invalid", "from", "cursor"),
		{name: "events: no such topic", method: "GET", path: "/topics/none/events", status: 404, code: "topic-not-found"},
		{name: "events: no such subscription", method: "GET", path: "/subscriptions/nonsense/events", status: 404, code: "not-found"},
		{name: "subscribe: no topic", method: "POST", path: "/topics/subscribe", contentType: jsonType, body: `{"from":"latest"}`, status: 400, code: "invalid", field: "topic"},
		{name: "subscribe: unknown field", method: "POST", path: "/topics/subscribe", contentType: jsonType, body: `{"topic":"two","form":"latest"}`, status: 400, code: "unknown-field", field: "form", says: []string{"from"}},

		typed(post("not JSON", "", `{"a":`, nil, 400, "invalid", "value", "JSON"), jsonType),
		typed(post("no media type", "", "x", nil, 400, "invalid", "Content-Type", "media type"), "nonsense"),
		post("unknown parameter", "?prtition=1", "x", nil, 400, "unknown-field", "prtition", "partition"),
		post("unknown header", "", "x", []string{"Tidewire-Kee", "a"}, 400, "unknown-field", "Tidewire-Kee", "Tidewire-Key"),
		post("acks", "?acks=some", "x", nil, 400, "invalid", "acks", "all", "leader", "none"),
		post("timeout", "?timeout=2h", "x", nil, 400, "invalid", "timeout", "1m"),
		post("no such partition", "?partition=9", "x", nil, 404, "partition-not-found", ""),
		post("long key", "?key="+strings.Repeat("k", 1025), "x", nil, 400, "invalid", "key", "1024"),
		post("empty key", "?key=", "x", nil, 400, "invalid", "key", "1024"),
		post("key not in UTF-8", "?key=%ff", "x", nil, 400, "invalid", "key", "UTF-8"),
		post("two keys", "?key=a", "x", []string{"Tidewire-Key", "b"}, 400, "invalid", "key"),
		post("too large", "", strings.Repeat("v", 2000), nil, 413, "message-too-large", "", "1024"),
		post("headers too large", "", "x", []string{"Tidewire-H-a", strings.Repeat("h", 17<<10)}, 400, "invalid", "headers", "16384"),
		post("65 headers", "", "x", manyHeaders(65), 400, "invalid", "headers", "64"),
		post("header of the cluster", "", "x", []string{"Tidewire-H-Tidewire-Reply-To", "a"}, 400, "reserved-name", "headers.Tidewire-Reply-To"),
		post("tombstone without a key", "", "", []string{"Tidewire-Tombstone", "true"}, 400, "invalid", "key"),
		post("tombstone with a body", "?key=a", "x", []string{"Tidewire-Tombstone", "true"}, 400, "invalid", "Tidewire-Tombstone"),
		post("tombstone perhaps", "?key=a", "", []string{"Tidewire-Tombstone", "perhaps"}, 400, "invalid", "Tidewire-Tombstone", "true", "false"),
		post("sequence alone", "?partition=0", "x", []string{"Tidewire-Sequence", "0"}, 400, "invalid", "Tidewire-Producer"),
		post("producer alone", "?partition=0", "x", []string{"Tidewire-Producer", aProducer}, 400, "invalid", "Tidewire-Sequence"),
		post("sequence without a partition", "", "x", []string{"Tidewire-Producer", aProducer, "Tidewire-Sequence", "0"}, 400, "invalid", "partition"),
		post("producer is no UUID", "?partition=0", "x", []string{"Tidewire-Producer", "me", "Tidewire-Sequence", "0"}, 400, "invalid", "Tidewire-Producer", "UUID"),
		post("negative sequence", "?partition=0", "x", []string{"Tidewire-Producer", aProducer, "Tidewire-Sequence", "-1"}, 400, "invalid", "Tidewire-Sequence", "whole number"),
		post("sequence with acks none", "?partition=0&acks=none", "x", []string{"Tidewire-Producer", aProducer, "Tidewire-Sequence", "0"}, 400, "invalid", "acks"),
		post("unknown producer", "?partition=0", "x", []string{"Tidewire-Producer", aProducer, "Tidewire-Sequence", "7"}, 409, "unknown-producer", ""),
		post("long Idempotency-Key", "", "x", []string{"Idempotency-Key", strings.Repeat("i", 256)}, 400, "invalid", "Idempotency-Key", "255"),
		post("both kinds of idempotence", "?partition=0", "x", []string{"Tidewire-Producer", aProducer, "Tidewire-Sequence", "0", "Idempotency-Key", "a"}, 400, "invalid", "Idempotency-Key"),
		typed(post("lines with a key for all", "?key=a", `{"value":1}`, nil, 400, "invalid", "key"), linesType),
		typed(post("lines with an Idempotency-Key", "", `{"value":1}`, []string{"Idempotency-Key", "a"}, 400, "invalid", "Idempotency-Key"), linesType),
		{name: "publish: no such topic", method: "POST", path: "/topics/none", contentType: textType, body: "x", status: 404, code: "topic-not-found"},
		{name: "publish: topic of the cluster", method: "POST", path: "/topics/_alerts", contentType: textType, body: "x", status: 400, code: "reserved-name"},
		{name: "a token", method: "GET", path: "/topics/", headers: []string{"Authorization", "Bearer abc"}},

		{name: "register: no group", method: "POST", path: "/groups/two/register", contentType: jsonType, body: `{}`, status: 400, code: "invalid", field: "group"},
		{name: "register: a reserved name", method: "POST", path: "/groups/two/register", contentType: jsonType, body: `{"group":"node"}`, status: 400, code: "reserved-name", field: "group"},
		{name: "register: unknown field", method: "POST", path: "/groups/two/register", contentType: jsonType, body: `{"group":"g","lese":"1s"}`, status: 400, code: "unknown-field", field: "lese", says: []string{"lease"}},
		{name: "register: lease", method: "POST", path: "/groups/two/register", contentType: jsonType, body: `{"group":"g","lease":"1ms"}`, status: 400, code: "invalid", field: "lease", says: []string{"100ms"}},
		{name: "no such group", method: "GET", path: "/groups/two/g", status: 404, code: "group-not-found"},
		{name: "join: no such group", method: "POST", path: "/groups/two/node", contentType: jsonType, body: `{"group":"g"}`, status: 404, code: "group-not-found"},
		{name: "messages: no member", method: "GET", path: "/groups/two/g/messages?epoch=1", status: 400, code: "invalid", field: "member"},
		{name: "messages: no epoch", method: "GET", path: "/groups/two/g/messages?member=m", status: 400, code: "invalid", field: "epoch"},
		{name: "ack: an entry without a place", method: "POST", path: "/groups/two/g/ack", contentType: jsonType, body: `{"member":"m","epoch":1,"ack":[{"offset":1}]}`, status: 400, code: "invalid", field: "ack"},
		{name: "status: not there yet", method: "GET", path: "/topics/two/0/99/status", status: 404, code: "offset-not-found"},
		{name: "status: no such partition", method: "GET", path: "/topics/two/9/0/status", status: 404, code: "partition-not-found"},
		absent("POST", "/topics/repartition"), absent("POST", "/nodes/n/drain"),
		absent("POST", "/tickets"),
		{name: "connections of no node", method: "GET", path: "/connections/?node=none", status: 404, code: "node-not-found"},
		{name: "no such connection", method: "DELETE", path: "/connections/none", status: 404, code: "not-found"},
	}
	return calls
}

func manyHeaders(n int) []string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("Tidewire-H-X%d", i), "v")
	}
	return all
}

// TestBadHTTP makes every mistake we could think of, each answered by a clear
// problem, with a good call between any two.
func TestBadHTTP(t *testing.T) {
	t.Parallel()
	api := client.New(harness.Start(t, harness.Options{}).URL)
	api.CreateTopic(t, "two", `"partitions":2,"max_message_bytes":1024`)
	calls := badCalls()
	codes := map[string]bool{}
	for _, c := range calls {
		ans, err := api.Do(t.Context(), c.method, c.path, c.contentType, c.body, c.headers...)
		if err != nil {
			t.Errorf("%s: no answer: %v", c.name, err)
			continue
		}
		problem, err := ans.Problem()
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		codes[problem.Code] = true
		if _, known := fault.ByCode(problem.Code); !known || ans.Status < 400 || ans.Status > 499 {
			t.Errorf("%s: %d with code %q", c.name, ans.Status, problem.Code)
		}
		if c.status != 0 && (ans.Status != c.status || problem.Code != c.code) {
			t.Errorf("%s: %d %s, want %d %s: %s", c.name, ans.Status, problem.Code, c.status, c.code, problem.Detail)
		}
		if c.field != "" && problem.Field != c.field {
			t.Errorf("%s: field %q, want %q: %s", c.name, problem.Field, c.field, problem.Detail)
		}
		for _, says := range append(slices.Clone(c.says), c.field) {
			if !strings.Contains(problem.Detail, says) && problem.Field != says {
				t.Errorf("%s: %q does not say %q", c.name, problem.Detail, says)
			}
		}
		if ans.Status == http.StatusMethodNotAllowed && ans.Header.Get("Allow") == "" {
			t.Errorf("%s: 405 without Allow", c.name)
		}
		if strings.Contains(c.path, "cursor=nonsense") && (problem.Cursor == "" || problem.Earliest == nil || problem.End == nil || problem.Requested == nil) {
			t.Errorf("%s: 410 without requested, earliest, end and cursor: %s", c.name, ans.Body)
		}
		api.Must(t, http.StatusOK, http.MethodGet, "/topics/two/metadata", "", "")
	}
	for code := range codes {
		page := api.Must(t, http.StatusOK, http.MethodGet, "/problems/"+code, "", "")
		if !strings.Contains(page.Header.Get("Content-Type"), "text/html") || !strings.Contains(page.Body, code) {
			t.Errorf("the page of %s is none: %.200s", code, page.Body)
		}
	}
	badLines(t, api)
	badBodies(t, api)
	if n := len(api.MustPoll(t, "two").Messages); n != 3 {
		t.Errorf("%d records are kept, only the good lines should be", n)
	}
	t.Logf("%d kinds of bad input over HTTP, %d codes: each a clear problem, the node and the connection went on", len(calls)+len(badLineKinds)+2, len(codes))
}

// badLineKinds are lines of ndjson that are refused, each by itself.
var badLineKinds = []struct{ line, code, says string }{
	{`nonsense`, "invalid", "JSON"},
	{`[1]`, "invalid", "object"},
	{`{"key":"a"}`, "invalid", "value"},
	{`{"value":1,"valeu":2}`, "unknown-field", "value"},
	{`{"value":1,"value_base64":"AA=="}`, "invalid", "value"},
	{`{"value_base64":"!"}`, "invalid", "base64"},
	{`{"value":5,"content_type":"text/plain"}`, "invalid", "string"},
	{`{"value":"x","content_type":"image/png"}`, "invalid", "value_base64"},
	{`{"value":1,"key":5}`, "invalid", "string"},
	{`{"value":1,"headers":{"a":5}}`, "invalid", "string"},
	{`{"value":1,"partition":9}`, "partition-not-found", "9"},
	{`{"value":"` + strings.Repeat("v", 2000) + `"}`, "message-too-large", "1024"},
	{`{"tombstone":true}`, "invalid", "key"},
}

// badLines sends them among good ones: 207, and an answer a line in the same order.
func badLines(t *testing.T, api *client.API) {
	t.Helper()
	good := `{"key":"a","value":1}`
	body := good + "\n"
	for _, k := range badLineKinds {
		body += k.line + "\n"
	}
	body += good + "\n" + good // the last without its newline
	ans := api.Must(t, http.StatusMultiStatus, http.MethodPost, "/topics/two", linesType, body)
	answers := strings.Split(strings.TrimSuffix(ans.Body, "\n"), "\n")
	if len(answers) != len(badLineKinds)+3 {
		t.Fatalf("%d answers to %d lines: %s", len(answers), len(badLineKinds)+3, ans.Body)
	}
	for i, text := range answers {
		var x struct {
			client.Problem
			Offset *int64
		}
		if !parse(t, text, &x) {
			continue
		}
		if i == 0 || i > len(badLineKinds) {
			if x.Code != "" || x.Offset == nil {
				t.Errorf("a good line got %s", text)
			}
			continue
		}
		if k := badLineKinds[i-1]; x.Code != k.code || !strings.Contains(x.Detail, k.says) || x.Status/100 != 4 {
			t.Errorf("line %.60s got %s, want %s saying %q", k.line, text, k.code, k.says)
		}
	}
}

// badBodies sends bodies that end too early or are cut into wrong chunks.
func badBodies(t *testing.T, api *client.API) {
	t.Helper()
	for name, raw := range map[string]string{
		"a chunk of no size": "POST /topics/two HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
		"half a body":        "POST /topics/two HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: 100\r\n\r\nhalf",
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(api.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, raw); err != nil {
			t.Fatal(err)
		}
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Errorf("%s: no answer: %v", name, err)
			conn.Close()
			continue
		}
		b, err := io.ReadAll(res.Body)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		conn.Close()
		ans := client.Answer{Status: res.StatusCode, Header: res.Header, Body: string(b)}
		if p, err := ans.Problem(); err != nil || p.Code != "invalid" || ans.Status != 400 {
			t.Errorf("%s: %v, %d %s", name, err, ans.Status, b)
		}
	}
}

// badFrame is one bad line over a WebSocket; %d stands for its id, and a line
// without it has none that could be read.
type badFrame struct {
	line, code, field string
	says              []string
}

func badFrames() []badFrame {
	return []badFrame{
		{`hello`, "invalid", "", nil},
		{`[]`, "invalid", "", []string{"object"}},
		{`"publish"`, "invalid", "", []string{"object"}},
		{`{"op":"metadata","topic":"two"`, "invalid", "", nil},
		{`{"op":"metadata","topic":"two"} {}`, "invalid", "", nil},
		{`{"id":%d}`, "invalid", "op", []string{"publish", "subscribe"}},
		{`{"id":%d,"op":5}`, "invalid", "op", nil},
		{`{"id":%d,"op":"publsh"}`, "invalid", "op", []string{"publish"}},
		{`{"id":0,"op":"metadata","topic":"two"}`, "invalid", "id", []string{"1"}},
		{`{"id":-1,"op":"metadata","topic":"two"}`, "invalid", "id", []string{"1"}},
		{`{"id":1.5,"op":"metadata","topic":"two"}`, "invalid", "id", []string{"1"}},
		{`{"id":"7","op":"metadata","topic":"two"}`, "invalid", "id", []string{"1"}},
		{`{"id":9007199254740992,"op":"metadata","topic":"two"}`, "invalid", "id", []string{"9007199254740991"}},
		{`{"id":%d,"op":"join","topic":"two","group":"g"}`, "group-not-found", "", []string{"register"}},
		{`{"id":%d,"op":"join","topic":"none","group":"g"}`, "topic-not-found", "", nil},
		{`{"id":%d,"op":"join","topic":"two"}`, "invalid", "group", nil},
		{`{"id":%d,"op":"join","topic":"two","group":"g","member":"a b"}`, "invalid", "member", nil},
		{`{"id":%d,"op":"ack","sub":"s1","partition":0,"offset":1}`, "invalid", "sub", []string{"joined no group"}},
		{`{"id":%d,"op":"ack","sub":"s1","partition":0}`, "invalid", "offset", []string{"offsets"}},
		{`{"id":%d,"op":"nack","sub":"s1","partition":0,"through":1}`, "unknown-field", "through", nil},
		{`{"id":%d,"op":"leave","sub":"s9"}`, "invalid", "sub", nil},
		{`{"id":%d,"op":"request","topic":"two","value":1,"timeout":"1h"}`, "invalid", "timeout", []string{"5m"}},
		{`{"id":%d,"op":"auth","token":"t"}`, "invalid", "op", []string{"tokens"}},
		{`{"id":%d,"op":"hello","token":"t"}`, "invalid", "token", nil},

		{`{"id":%d,"op":"publish","topik":"two","value":1}`, "unknown-field", "topik", []string{"topic"}},
		{`{"id":%d,"op":"publish","topic":"two","value":1,"value":2}`, "invalid", "value", []string{"twice"}},
		{`{"id":%d,"op":"publish","value":1}`, "invalid", "topic", nil},
		{`{"id":%d,"op":"publish","topic":"none","value":1}`, "topic-not-found", "", nil},
		{`{"id":%d,"op":"publish","topic":"_alerts","value":1}`, "reserved-name", "", nil},
		{`{"id":%d,"op":"publish","topic":"two"}`, "invalid", "value", []string{"value_base64"}},
		{`{"id":%d,"op":"publish","topic":"two","value":1,"value_base64":"AA=="}`, "invalid", "value_base64", nil},
		{`{"id":%d,"op":"publish","topic":"two","value_base64":"!"}`, "invalid", "value_base64", []string{"base64"}},
		{`{"id":%d,"op":"publish","topic":"two","value":5,"content_type":"text/plain"}`, "invalid", "value", []string{"string"}},
		{`{"id":%d,"op":"publish","topic":"two","value":"x","content_type":"image/png"}`, "invalid", "value", []string{"value_base64"}},
		{`{"id":%d,"op":"publish","topic":"two","value":1,"content_type":"nonsense"}`, "invalid", "content_type", []string{"media type"}},
		{`{"id":%d,"op":"publish","topic":"two","value":1,"key":""}`, "invalid", "key", []string{"1024"}},
		{`{"id":%d,"op":"publish","topic":"two","value":1,"key":"` + strings.Repeat("k", 1025) + `"}`, "invalid", "key", []string{"1024"}},
		{`{"id":%d,"op":"publish","topic":"two","value":1,"headers":{"a":5}}`, "invalid", "headers.a", []string{"string"}},
		{`{"id":%d,"op":"publish","topic":"two","value":1,"headers":{"Tidewire-Reply-To":"x"}}`, "reserved-name", "headers.Tidewire-Reply-To", nil},
		{`{"id":%d,"op":"publish","topic":"two","value":1,"headers":{"A":"1","a":"2"}}`, "invalid", "headers", []string{"twice"}},
		{`{"id":%d,"op":"publish","topic":"two","value":1,"acks":"some"}`, "invalid", "acks", []string{"all", "leader", "none"}},
		{`{"id":%d,"op":"publish","topic":"two","value":1,"partition":-1}`, "invalid", "partition", []string{"0"}},
		{`{"id":%d,"op":"publish","topic":"two","value":1,"partition":"0"}`, "invalid", "partition", []string{"whole number"}},
		{`{"id":%d,"op":"publish","topic":"two","value":1,"partition":9}`, "partition-not-found", "", nil},
		{`{"id":%d,"op":"publish","topic":"two","value":1,"producer":"` + aProducer + `","partition":0}`, "invalid", "sequence", []string{"producer"}},
		{`{"id":%d,"op":"publish","topic":"two","value":1,"producer":"` + aProducer + `","sequence":0}`, "invalid", "partition", nil},
		{`{"id":%d,"op":"publish","topic":"two","value":1,"producer":"me","sequence":0,"partition":0}`, "invalid", "producer", []string{"UUID"}},
		{`{"id":%d,"op":"publish","topic":"two","value":1,"producer":"` + aProducer + `","sequence":-1,"partition":0}`, "invalid", "sequence", []string{"0"}},
		{`{"id":%d,"op":"publish","topic":"two","value":1,"producer":"` + aProducer + `","sequence":0,"partition":0,"acks":"none"}`, "invalid", "acks", nil},
		{`{"id":%d,"op":"publish","topic":"two","value":1,"producer":"` + anotherProducer + `","sequence":9,"partition":0}`, "unknown-producer", "", nil},
		{`{"id":%d,"op":"publish","topic":"two","tombstone":true}`, "invalid", "key", nil},
		{`{"id":%d,"op":"publish","topic":"two","tombstone":true,"key":"a","value":1}`, "invalid", "tombstone", nil},
		{`{"id":%d,"op":"publish","topic":"two","value":"` + strings.Repeat("v", 2000) + `"}`, "message-too-large", "", []string{"1024"}},

		{`{"id":%d,"op":"subscribe"}`, "invalid", "topic", nil},
		{`{"id":%d,"op":"subscribe","topic":"none"}`, "topic-not-found", "", nil},
		{`{"id":%d,"op":"subscribe","topic":"two","from":"never"}`, "invalid", "from", []string{"earliest", "latest"}},
		{`{"id":%d,"op":"subscribe","topic":"two","from":"latest","cursor":"x"}`, "invalid", "from", []string{"cursor"}},
		{`{"id":%d,"op":"subscribe","topic":"two","after":{"0":1}}`, "invalid", "after", []string{"cursor"}},
		{`{"id":%d,"op":"subscribe","topic":"two","cursor":"x","after":{"zero":1}}`, "invalid", "", []string{"partition"}},
		{`{"id":%d,"op":"subscribe","topic":"two","cursor":"x","after":[1]}`, "invalid", "after", []string{"object"}},
		{`{"id":%d,"op":"subscribe","topic":"two","keys":[]}`, "invalid", "keys", nil},
		{`{"id":%d,"op":"subscribe","topic":"two","keys":["a"],"key":"b"}`, "invalid", "", []string{"one filter"}},
		{`{"id":%d,"op":"subscribe","topic":"two","key_prefix":""}`, "invalid", "key_prefix", []string{"1024"}},
		{`{"id":%d,"op":"subscribe","topic":"two","partition":9}`, "partition-not-found", "", nil},
		{`{"id":%d,"op":"subscribe","topic":"two","credit":-1}`, "invalid", "credit", []string{"0"}},
		{`{"id":%d,"op":"unsubscribe"}`, "invalid", "sub", nil},
		{`{"id":%d,"op":"unsubscribe","sub":"nonsense"}`, "", "sub", nil},
		{`{"id":%d,"op":"credit","sub":"nonsense","add":1}`, "", "sub", nil},
		{`{"id":%d,"op":"credit","sub":"s1","add":0}`, "invalid", "add", []string{"1"}},
		{`{"id":%d,"op":"metadata"}`, "invalid", "topic", nil},
		{`{"id":%d,"op":"metadata","topic":"none"}`, "topic-not-found", "", nil},
	}
}

// TestBadFrames sends every bad line we could think of over one WebSocket,
// with a good line between any two, and then what must close it.
func TestBadFrames(t *testing.T) {
	t.Parallel()
	node := harness.Start(t, harness.Options{Args: []string{"--max-frame-bytes", "65536"}})
	client.New(node.URL).CreateTopic(t, "two", `"partitions":2,"max_message_bytes":1024`)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	w := dial(t, ctx, node)
	frames := badFrames()
	codes := map[string]bool{}
	for i, b := range frames {
		id, line := int64(0), b.line
		if strings.Contains(line, "%d") {
			id = int64(1000 + i)
			line = strings.Replace(line, "%d", fmt.Sprint(id), 1)
		}
		if err := w.Send(ctx, line); err != nil {
			t.Fatalf("%.100s: the connection is gone: %v", line, err)
		}
		x, err := w.Next(ctx)
		if err != nil {
			t.Fatalf("%.100s: the connection ended: %v", line, err)
		}
		codes[x.Code] = true
		if _, known := fault.ByCode(x.Code); x.Op != "error" || !known || x.Title == "" || x.Detail == "" || x.ID != id {
			t.Errorf("%.100s: got %s, want an error with id %d", line, x.Raw, id)
			continue
		}
		if b.code != "" && x.Code != b.code {
			t.Errorf("%.100s: %s, want %s: %s", line, x.Code, b.code, x.Detail)
		}
		if b.field != "" && x.Field != b.field {
			t.Errorf("%.100s: field %q, want %q: %s", line, x.Field, b.field, x.Detail)
		}
		for _, says := range b.says {
			if !strings.Contains(x.Detail, says) {
				t.Errorf("%.100s: %q does not say %q", line, x.Detail, says)
			}
		}
		alive(t, ctx, w, int64(5000+i))
	}
	closing := badClosers(t, ctx, node)
	t.Logf("%d kinds of bad lines, %d codes: each a clear error, the connection went on; %d kinds that close it", len(frames), len(codes), closing)
}

func dial(t *testing.T, ctx context.Context, node *harness.Node) *client.WS {
	t.Helper()
	w, err := client.DialWS(ctx, node.Addr, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Drop)
	return w
}

// alive sends a good line and wants its answer.
func alive(t *testing.T, ctx context.Context, w *client.WS, id int64) {
	t.Helper()
	x, err := w.Call(ctx, id, map[string]any{"op": "metadata", "id": id, "topic": "two"})
	if err != nil || x.Op != "metadata" {
		t.Fatalf("a good line gets %v %s", err, x.Raw)
	}
}

// badClosers tries what section 4 closes a connection for.
func badClosers(t *testing.T, ctx context.Context, node *harness.Node) int {
	t.Helper()
	big := `{"op":"publish","id":7,"topic":"two","value":"` + strings.Repeat("v", 80<<10) + `"}`
	cases := []struct {
		name string
		do   func(w *client.WS) error
		code int
	}{
		{"a binary frame", func(w *client.WS) error {
			return w.Conn().Write(ctx, websocket.MessageBinary, []byte(`{"op":"metadata","id":1,"topic":"two"}`))
		}, 4502},
		{"invalid UTF-8", func(w *client.WS) error { return w.Send(ctx, "{\"op\":\"meta\xff\"}") }, 4502},
		{"20 bad lines in one frame", func(w *client.WS) error { return w.Send(ctx, strings.Repeat("bad\n", 20)) }, 4502},
		{"20 bad lines in 20 frames", func(w *client.WS) error {
			for range 20 {
				if err := w.Send(ctx, `{"op":"frobnicate"}`); err != nil {
					return err
				}
			}
			return nil
		}, 4502},
		{"a frame that is too long", func(w *client.WS) error { return w.Send(ctx, big) }, 1009},
	}
	for _, c := range cases {
		w := dial(t, ctx, node)
		alive(t, ctx, w, 1)
		if err := c.do(w); err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		errors := 0
		for {
			x, err := w.Next(ctx)
			if err != nil {
				if got := client.CloseCode(err); got != c.code {
					t.Errorf("%s: the connection ends with %v, want %d", c.name, err, c.code)
				}
				break
			}
			if x.Op != "error" {
				t.Errorf("%s: %s", c.name, x.Raw)
			}
			errors++
		}
		if strings.HasPrefix(c.name, "20 bad") && errors < 19 {
			t.Errorf("%s: %d errors before the end, want one for each line", c.name, errors)
		}
	}

	// A good line resets the count.
	w := dial(t, ctx, node)
	for round := range 3 {
		for range 19 {
			if err := w.Send(ctx, "bad"); err != nil {
				t.Fatal(err)
			}
			if x, err := w.Next(ctx); err != nil || x.Op != "error" || x.Code != "invalid" {
				t.Fatalf("a bad line of round %d gets %v %s", round, err, x.Raw)
			}
		}
		alive(t, ctx, w, int64(round+1))
	}

	// Each line of a frame gets its answer, in order.
	if err := w.Send(ctx, `{"op":"metadata","id":91,"topic":"two"}`, `bad`, `{"op":"metadata","id":92,"topic":"none"}`, `{"op":"metadata","id":93,"topic":"two"}`); err != nil {
		t.Fatal(err)
	}
	var got []string
	for range 4 {
		x, err := w.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%s %d", x.Op, x.ID))
	}
	if want := []string{"metadata 91", "error 0", "error 92", "metadata 93"}; !slices.Equal(got, want) {
		t.Errorf("answers %v, want %v", got, want)
	}
	badUpgrades(t, node)
	return len(cases)
}

// badUpgrades are refused before there is a WebSocket, as problems.
func badUpgrades(t *testing.T, node *harness.Node) {
	t.Helper()
	api := client.New(node.URL)
	upgrade := []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="}
	for name, c := range map[string]struct {
		query   string
		headers []string
	}{
		"no upgrade":              {"", nil},
		"another subprotocol":     {"", append(slices.Clone(upgrade), "Sec-WebSocket-Protocol", "tidewire.v9.cbor")},
		"a token":                 {"", append(slices.Clone(upgrade), "Sec-WebSocket-Protocol", "tidewire.v1.json, bearer.abc")},
		"an old version":          {"", []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "8", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="}},
		"a foreign origin":        {"", append(slices.Clone(upgrade), "Origin", "https://evil.example")},
		"an unknown parameter":    {"?subscripton=x", upgrade},
		"an unknown subscription": {"?subscription=nonsense", upgrade},
		"a ticket":                {"?ticket=x", upgrade},
	} {
		ans, err := api.Do(t.Context(), http.MethodGet, "/ws"+c.query, "", "", c.headers...)
		if err != nil {
			t.Errorf("upgrade with %s: %v", name, err)
			continue
		}
		if p, err := ans.Problem(); err != nil || ans.Status/100 != 4 {
			t.Errorf("upgrade with %s: %v, %d %s", name, err, ans.Status, p.Code)
		}
	}
}
