package httpapi

import (
	"strings"
	"testing"

	"tidewire/internal/fault"
	"tidewire/internal/ident"
)

// Each mistake is refused by its own code, and the answer names the field and
// what is allowed there.
func TestBadRequestsGetAClearProblem(t *testing.T) {
	n, d := newNode(t), loadDocument(t)
	n.topic("orders", `"partitions":4,"max_message_bytes":2048`)
	n.topic("lone", "")
	const producer = "Tidewire-Producer: 0193b0a6-7c1e-7d0c-8f2a-3a1b2c3d4e5f"
	long := strings.Repeat("k", 1025)
	for _, c := range []struct {
		name, method, path, body string
		headers                  []string
		status                   int
		code                     string
		says                     []string // parts of the detail
	}{
		{"no JSON", "POST", "/topics/", `{"name":`, nil, 400, "invalid", []string{"JSON"}},
		{"no object", "POST", "/topics/", `[]`, nil, 400, "invalid", []string{"object"}},
		{"no body", "POST", "/topics/", ``, nil, 400, "invalid", []string{"JSON"}},
		{"no name", "POST", "/topics/", `{}`, nil, 400, "invalid", []string{`"name"`}},
		{"a misspelt field", "POST", "/topics/", `{"name":"a","partitons":2}`, nil, 400, "unknown-field", []string{`"partitions"`}},
		{"a field twice", "POST", "/topics/", `{"name":"a","name":"b"}`, nil, 400, "invalid", []string{`"name"`, "twice"}},
		{"a bad name", "POST", "/topics/", `{"name":"a b"}`, nil, 400, "invalid", []string{"topic name", "A-Z"}},
		{"a reserved name", "POST", "/topics/", `{"name":"subscribe"}`, nil, 400, "reserved-name", []string{"subscribe"}},
		{"the cluster's name", "POST", "/topics/", `{"name":"_alerts"}`, nil, 400, "reserved-name", []string{"_"}},
		{"partitions of another type", "POST", "/topics/", `{"name":"a","partitions":"4"}`, nil, 400, "invalid", []string{`"partitions"`, "256"}},
		{"too many partitions", "POST", "/topics/", `{"name":"a","partitions":257}`, nil, 400, "invalid", []string{`"partitions"`, "1 to 256"}},
		{"too many replicas", "POST", "/topics/", `{"name":"a","replicas":3}`, nil, 400, "invalid", []string{`"replicas"`, "1"}},
		{"an age without a unit", "POST", "/topics/", `{"name":"a","retention":{"age":7}}`, nil, 400, "invalid", []string{`"retention.age"`, "168h"}},
		{"an age too short", "POST", "/topics/", `{"name":"a","retention":{"age":"1us"}}`, nil, 400, "invalid", []string{`"retention.age"`, "whole milliseconds"}},
		{"a field inside", "POST", "/topics/", `{"name":"a","retention":{"hours":7}}`, nil, 400, "unknown-field", []string{"retention", "age"}},
		{"a word of no choice", "POST", "/topics/", `{"name":"a","durability":"disk"}`, nil, 400, "invalid", []string{`"durability"`, "fsync", "replicated"}},
		{"compaction", "POST", "/topics/", `{"name":"a","compaction":true}`, nil, 400, "invalid", []string{`"compaction"`, "false"}},
		{"a policy", "POST", "/topics/", `{"name":"a","policy":{"burst":{"rate":5}}}`, nil, 400, "invalid", []string{`"policy"`}},
		{"other settings", "POST", "/topics/", `{"name":"orders","partitions":5}`, nil, 409, "topic-exists", []string{"partitions 4"}},
		{"a body of another type", "POST", "/topics/", `<name/>`, []string{"Content-Type: text/xml"}, 415, "unsupported-media-type", []string{"application/json"}},
		{"a body of another charset", "POST", "/topics/", `{}`, []string{"Content-Type: application/json; charset=latin1"}, 415, "unsupported-media-type", []string{"UTF-8"}},
		{"a compressed body", "POST", "/topics/", `{}`, []string{"Content-Encoding: gzip"}, 415, "unsupported-media-type", []string{"gzip"}},
		{"a body too long", "POST", "/topics/", strings.Repeat(" ", controlBytes+1), nil, 413, "message-too-large", []string{"65536"}},
		{"a parameter where none is", "GET", "/topics/?limit=1", "", nil, 400, "unknown-field", []string{`"limit"`}},
		{"partitions by patch", "PATCH", "/topics/orders", `{"partitions":8}`, nil, 400, "invalid", []string{`"partitions"`, "repartition"}},
		{"a poll of an empty name", "GET", "/topics/?from=latest&limit=1", "", nil, 400, "unknown-field", []string{`"from"`, "no topic", "/topics/{topic}"}},
		{"a publish to an empty name", "POST", "/topics/?key=a", `1`, nil, 400, "unknown-field", []string{`"key"`, "no topic", "/topics/{topic}"}},
		{"a stream of an empty name", "GET", "/topics//events?from=latest", "", nil, 404, "topic-not-found", []string{`no topic ""`}},
		{"patch of nothing known", "PATCH", "/topics/orders", `{"retension":{}}`, nil, 400, "unknown-field", []string{`"retention"`}},
		{"patch of no topic", "PATCH", "/topics/none", `{}`, nil, 404, "topic-not-found", []string{`"none"`, "POST /topics/"}},
		{"delete of no topic", "DELETE", "/topics/none", "", nil, 404, "topic-not-found", []string{`"none"`}},
		{"purge of no topic", "POST", "/topics/none/purge", `{}`, nil, 404, "topic-not-found", []string{`"none"`}},
		{"purge of the cluster's", "POST", "/topics/_alerts/purge", `{}`, nil, 400, "reserved-name", []string{"_"}},
		{"purge without a body", "POST", "/topics/orders/purge", "", nil, 400, "invalid", []string{"object"}},
		{"purge of nothing", "POST", "/topics/orders/purge", `{"before":{}}`, nil, 400, "invalid", []string{`"before"`, "leave it out"}},
		{"purge of something unknown", "POST", "/topics/orders/purge", `{"befor":{"0":1}}`, nil, 400, "unknown-field", []string{`"before"`}},
		{"purge below no offset", "POST", "/topics/orders/purge", `{"before":{"0":-1}}`, nil, 400, "invalid", []string{`"before.0"`}},
		{"purge of no partition", "POST", "/topics/orders/purge", `{"before":{"x":1}}`, nil, 400, "invalid", []string{`"partition"`}},
		{"delete of the cluster's", "DELETE", "/topics/_alerts", "", nil, 400, "reserved-name", []string{"_"}},

		{"publish to no topic", "POST", "/topics/none", `1`, nil, 404, "topic-not-found", []string{`"none"`}},
		{"publish to the cluster's", "POST", "/topics/_alerts", `1`, nil, 400, "reserved-name", []string{"writable"}},
		{"publish of no JSON", "POST", "/topics/orders", `{`, []string{"Content-Type: application/json"}, 400, "invalid", []string{"not JSON"}},
		{"publish of too much", "POST", "/topics/orders", strings.Repeat("x", 2049), nil, 413, "message-too-large", []string{"2048", "max_message_bytes"}},
		{"a type that is none", "POST", "/topics/orders", `1`, []string{"Content-Type: json"}, 400, "invalid", []string{"Content-Type", "application/json"}},
		{"two types", "POST", "/topics/orders", `1`, []string{"Content-Type: text/plain", "Content-Type: text/html"}, 400, "invalid", []string{"Content-Type", "once"}},
		{"a key too long", "POST", "/topics/orders?key=" + long, `1`, nil, 400, "invalid", []string{`"key"`, "1024"}},
		{"an empty key", "POST", "/topics/orders?key=", `1`, nil, 400, "invalid", []string{`"key"`}},
		{"a key twice", "POST", "/topics/orders?key=a&key=b", `1`, nil, 400, "invalid", []string{`"key"`, "once"}},
		{"two keys", "POST", "/topics/orders?key=a", `1`, []string{"Tidewire-Key: b"}, 400, "invalid", []string{`"key"`, "Tidewire-Key"}},
		{"another's partition", "POST", "/topics/orders?key=a&partition=3", `1`, nil, 409, "wrong-partition", []string{"partition"}},
		{"no such partition", "POST", "/topics/orders?partition=4", `1`, nil, 404, "partition-not-found", []string{"4"}},
		{"a partition that is none", "POST", "/topics/orders?partition=-1", `1`, nil, 400, "invalid", []string{`"partition"`, "whole number"}},
		{"acks of no choice", "POST", "/topics/orders?acks=1", `1`, nil, 400, "invalid", []string{`"acks"`, "one of all, leader, none, not"}},
		{"a timeout too long", "POST", "/topics/orders?timeout=1h", `1`, nil, 400, "invalid", []string{`"timeout"`, "1m"}},
		{"a misspelt parameter", "POST", "/topics/orders?patrition=1", `1`, nil, 400, "unknown-field", []string{`"partition"`}},
		{"a misspelt header", "POST", "/topics/orders", `1`, []string{"Tidewire-Kay: a"}, 400, "unknown-field", []string{"Tidewire-Key"}},
		{"a header of requests", "POST", "/topics/orders", `1`, []string{"Tidewire-Reply-To: a"}, 400, "unknown-field", []string{"Tidewire-Reply-To"}},
		{"a header of the cluster's", "POST", "/topics/orders", `1`, []string{"Tidewire-H-Tidewire-Dead-Reason: a"}, 400, "reserved-name", []string{"Tidewire-"}},
		{"headers too large", "POST", "/topics/lone", `1`, []string{"Tidewire-H-A: " + strings.Repeat("x", 16<<10)}, 400, "invalid", []string{`"headers"`, "16384"}},
		{"a tombstone with a body", "POST", "/topics/orders?key=a", `1`, []string{"Tidewire-Tombstone: true"}, 400, "invalid", []string{"Tombstone", "no body"}},
		{"a tombstone without a key", "POST", "/topics/orders", ``, []string{"Tidewire-Tombstone: true"}, 400, "invalid", []string{`"key"`, "tombstone"}},
		{"a tombstone of no choice", "POST", "/topics/orders", ``, []string{"Tidewire-Tombstone: yes"}, 400, "invalid", []string{"Tombstone", "true or false"}},
		{"a producer alone", "POST", "/topics/orders?partition=0", `1`, []string{producer}, 400, "invalid", []string{"Tidewire-Sequence"}},
		{"a sequence alone", "POST", "/topics/orders?partition=0", `1`, []string{"Tidewire-Sequence: 0"}, 400, "invalid", []string{"Tidewire-Producer"}},
		{"a producer without partition", "POST", "/topics/orders", `1`, []string{producer, "Tidewire-Sequence: 0"}, 400, "invalid", []string{`"partition"`}},
		{"a producer that is none", "POST", "/topics/orders?partition=0", `1`, []string{"Tidewire-Producer: me", "Tidewire-Sequence: 0"}, 400, "invalid", []string{"Tidewire-Producer", "UUID"}},
		{"a producer of the cluster's own", "POST", "/topics/orders?partition=0", `1`, []string{"Tidewire-Producer: 0193b0a6-7c1e-8d0c-8f2a-3a1b2c3d4e5f", "Tidewire-Sequence: 0"}, 400, "invalid", []string{"Tidewire-Producer", "version 8"}},
		{"a sequence that is none", "POST", "/topics/orders?partition=0", `1`, []string{producer, "Tidewire-Sequence: -1"}, 400, "invalid", []string{"Tidewire-Sequence", "from 0"}},
		{"a sequence nobody hears of", "POST", "/topics/orders?partition=0&acks=none", `1`, []string{producer, "Tidewire-Sequence: 0"}, 400, "invalid", []string{`"acks"`}},
		{"an unknown producer", "POST", "/topics/orders?partition=0", `1`, []string{producer, "Tidewire-Sequence: 7"}, 409, "unknown-producer", nil},
		{"an Idempotency-Key too long", "POST", "/topics/orders", `1`, []string{"Idempotency-Key: " + strings.Repeat("i", 256)}, 400, "invalid", []string{"Idempotency-Key", "255"}},
		{"both kinds of idempotence", "POST", "/topics/orders?partition=0", `1`, []string{producer, "Tidewire-Sequence: 0", "Idempotency-Key: i"}, 400, "invalid", []string{"Idempotency-Key", "Tidewire-Producer"}},
		{"a key for many lines", "POST", "/topics/orders?key=a", `{"value":1}`, []string{"Content-Type: application/x-ndjson"}, 400, "invalid", []string{`"key"`, "line"}},
		{"an Idempotency-Key for many lines", "POST", "/topics/orders", `{"value":1}`, []string{"Content-Type: application/x-ndjson", "Idempotency-Key: i"}, 400, "invalid", []string{"Idempotency-Key"}},

		{"poll of no topic", "GET", "/topics/none", "", nil, 404, "topic-not-found", []string{`"none"`}},
		{"limit of none", "GET", "/topics/orders?limit=0", "", nil, 400, "invalid", []string{`"limit"`, "1 to 10000"}},
		{"limit too large", "GET", "/topics/orders?limit=10001", "", nil, 400, "invalid", []string{`"limit"`, "10000"}},
		{"max_bytes too large", "GET", "/topics/orders?max_bytes=16777217", "", nil, 400, "invalid", []string{`"max_bytes"`, "16777216"}},
		{"wait too long", "GET", "/topics/orders?wait=61s", "", nil, 400, "invalid", []string{`"wait"`, "1m"}},
		{"wait without a unit", "GET", "/topics/orders?wait=5", "", nil, 400, "invalid", []string{`"wait"`, "5s"}},
		{"offset without partition", "GET", "/topics/orders?offset=3", "", nil, 400, "invalid", []string{`"partition"`, "offset"}},
		{"an offset that is none", "GET", "/topics/lone?offset=x", "", nil, 400, "invalid", []string{`"offset"`, "earliest"}},
		{"a time that is none", "GET", "/topics/lone?at=yesterday", "", nil, 400, "invalid", []string{`"at"`, "2026"}},
		{"two places", "GET", "/topics/lone?offset=1&from=latest", "", nil, 400, "invalid", []string{`"offset"`, "exclude"}},
		{"a from that is none", "GET", "/topics/orders?from=now", "", nil, 400, "invalid", []string{`"from"`, "earliest"}},
		{"after without cursor", "GET", "/topics/orders?after=0:1", "", nil, 400, "invalid", []string{`"after"`, "cursor"}},
		{"an after that is none", "GET", "/topics/orders?cursor=x&after=0-1", "", nil, 400, "invalid", []string{`"after"`, "0:17"}},
		{"after twice", "GET", "/topics/orders?cursor=x&after=0:1,0:2", "", nil, 400, "invalid", []string{`"after"`, "twice"}},
		{"many keys", "GET", "/topics/orders/events?keys=a,b", "", nil, 400, "unknown-field", []string{`"keys"`, "WebSocket"}},
		{"two filters", "GET", "/topics/orders?key=a&key_prefix=b", "", nil, 400, "invalid", []string{`"key_prefix"`, "exclude"}},
		{"a partition that is not there", "GET", "/topics/orders?partition=9", "", nil, 404, "partition-not-found", []string{"9"}},
		{"no cursor", "GET", "/topics/orders?cursor=nonsense", "", nil, 410, "cursor-expired", []string{"cursor"}},
		{"a query that cannot be read", "GET", "/topics/orders?key=%zz", "", nil, 400, "invalid", []string{"query"}},
		{"limit of a stream", "GET", "/topics/orders/events?limit=5", "", nil, 400, "unknown-field", []string{`"limit"`}},
		{"a stream of no topic", "GET", "/topics/none/events", "", nil, 404, "topic-not-found", nil},
		{"subscribe to nothing", "POST", "/topics/subscribe", `{}`, nil, 400, "invalid", []string{`"topic"`}},
		{"subscribe by a misspelt field", "POST", "/topics/subscribe", `{"topic":"orders","form":"latest"}`, nil, 400, "unknown-field", []string{`"from"`}},
		{"subscribe with no cursor", "POST", "/topics/subscribe", `{"topic":"orders","cursor":"x"}`, nil, 410, "cursor-expired", nil},
		{"no subscription", "GET", "/subscriptions/x/events", "", nil, 404, "not-found", []string{"POST /topics/subscribe"}},

		{"no node", "GET", "/nodes/b", "", nil, 404, "node-not-found", []string{`"b"`}},
		{"no problem", "GET", "/problems/none", "", nil, 404, "not-found", []string{"/problems/"}},
		{"no such page", "GET", "/assets/none.js", "", nil, 404, "not-found", []string{"/assets/none.js"}},
		{"nothing there", "GET", "/topic", "", nil, 404, "not-found", []string{"/topic", "/openapi.json"}},
		{"a method", "PUT", "/topics/orders", `{}`, nil, 405, "method-not-allowed", []string{"PUT", "GET", "POST"}},
		{"a foreign page", "POST", "/topics/orders", `1`, []string{"Origin: https://elsewhere.example"}, 403, "forbidden", []string{"elsewhere", "allowed_origins"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, d := *n, *d
			n.t, d.t, n.check = t, t, d.check
			r := n.call(c.method, c.path, c.body, c.headers...)
			if r.status != c.status || r.header.Get("Content-Type") != "application/problem+json" {
				t.Fatalf("status %d (%s), want %d: %s", r.status, r.header.Get("Content-Type"), c.status, r.body)
			}
			p := r.json(t)
			detail, _ := p["detail"].(string)
			if p["code"] != c.code || p["type"] != "/problems/"+c.code || p["status"] != float64(c.status) {
				t.Errorf("problem %s, want code %s", r.body, c.code)
			}
			if _, ok := fault.ByCode(c.code); !ok {
				t.Errorf("code %q is not in the table", c.code)
			}
			for _, part := range c.says {
				if !strings.Contains(detail, part) {
					t.Errorf("detail %q does not say %q", detail, part)
				}
			}
		})
	}
	for i := range 4 {
		if got := n.memory.values("orders", ident.Index(i)); len(got) > 0 {
			t.Errorf("refused records were kept: %q", got)
		}
	}
}
