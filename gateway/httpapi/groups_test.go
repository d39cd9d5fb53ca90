package httpapi

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"tidewire/gateway/access"
	"tidewire/internal/fault"
)

// askAboutGroups makes every call about groups, with every answer that there is.
func askAboutGroups(t *testing.T, n *node) {
	n.topic("work", `"partitions":2`)
	n.want(201, "POST", "/groups/work/register", `{"group":"billing","mode":"exclusive","from":"earliest","lease":"30s","session":"10s","max_deliveries":5,"backoff":"1s","dead_letter":"work.billing.dlq","max_in_flight":256}`)
	n.want(200, "POST", "/groups/work/register", `{"group":"billing"}`)
	n.want(409, "POST", "/groups/work/register", `{"group":"billing","lease":"31s"}`)
	n.want(200, "GET", "/groups/work/", "")
	n.want(200, "GET", "/groups/work/billing", "")
	n.want(200, "PATCH", "/groups/work/billing", `{"lease":"40s"}`)
	n.want(404, "GET", "/groups/work/none", "")

	m := n.join("work", "billing", "w1")
	n.publish("work", "1", "2", "3")
	n.want(200, "GET", "/groups/work/billing/messages?"+m.query+"&limit=2&wait=1s&max_bytes=100000", "")
	n.want(200, "POST", "/groups/work/billing/ack", `{`+m.body+`,"ack":[{"partition":0,"offset":0},{"partition":0,"offset":99}],"nack":[{"partition":0,"offset":1,"delay":"0s"}],"extend":[],"through":[],"reject":[]}`)
	n.want(200, "GET", "/topics/work/0/0/status", "")
	n.want(404, "GET", "/topics/work/0/99/status", "")
	n.want(200, "POST", "/groups/work/billing/nodes/w1/heartbeat", `{"epoch":`+m.epoch+`,"partitions":[0,1]}`)
	n.want(409, "POST", "/groups/work/billing/nodes/w1/heartbeat", `{"epoch":1}`)
	n.want(409, "PUT", "/groups/work/billing/offsets", `{"from":"latest"}`)
	n.want(200, "GET", "/groups/work/billing", "")
	n.groups.Fail(n.memory.node, func(string) error { return fault.New(fault.UnknownOutcome, "broken").Lasts() })
	n.want(504, "POST", "/groups/work/billing/ack", `{`+m.body+`,"ack":[{"partition":0,"offset":1}]}`)
	n.groups.Fail(n.memory.node, nil)
	n.want(204, "DELETE", "/groups/work/billing/nodes/w1", "")
	n.want(404, "DELETE", "/groups/work/billing/nodes/w1", "")
	n.want(200, "PUT", "/groups/work/billing/offsets", `{"offsets":{"0":0},"dry_run":true,"force":false}`)
	n.want(204, "DELETE", "/groups/work/billing", "")
}

// joined is a member as its calls name it.
type joined struct{ epoch, query, body string }

func (n *node) join(topic, group, member string) joined {
	n.t.Helper()
	m := n.want(200, "POST", "/groups/"+topic+"/node", `{"group":"`+group+`","member":"`+member+`"}`).json(n.t)
	epoch := fmt.Sprint(m["epoch"])
	return joined{epoch, "member=" + member + "&epoch=" + epoch, `"member":"` + member + `","epoch":` + epoch}
}

// publish keeps values in a topic's partition 0.
func (n *node) publish(topic string, values ...string) {
	n.t.Helper()
	for _, v := range values {
		n.want(201, "POST", "/topics/"+topic+"?partition=0", v, "Content-Type: application/json")
	}
}

// take is what a member gets, as offset:delivery.
func (n *node) take(topic, group string, m joined, more string) string {
	n.t.Helper()
	var out []string
	for _, v := range n.want(200, "GET", "/groups/"+topic+"/"+group+"/messages?"+m.query+more, "").json(n.t)["messages"].([]any) {
		v := v.(map[string]any)
		until, err := time.Parse(time.RFC3339, v["lease_until"].(string))
		if left := v["lease_ms"].(float64); err != nil || left <= 0 || time.Until(until) > time.Minute {
			n.t.Errorf("%v", v)
		}
		out = append(out, fmt.Sprintf("%v:%v", v["offset"], v["delivery"]))
	}
	return strings.Join(out, " ")
}

func TestAGroupOverHTTP(t *testing.T) {
	n := newNode(t)
	n.topic("orders", "")
	n.publish("orders", "0", "1", "2", "3")
	r := n.want(201, "POST", "/groups/orders/register", `{"group":"g","max_deliveries":2,"backoff":"0s"}`)
	if r.header.Get("Location") != "/groups/orders/g" {
		t.Error(r.header)
	}
	m := n.join("orders", "g", "w1")
	if got := n.take("orders", "g", m, "&limit=3"); got != "0:1 1:1 2:1" {
		t.Error(got)
	}
	settled := n.want(200, "POST", "/groups/orders/g/ack", `{`+m.body+`,"ack":[{"partition":0,"offset":0}],"nack":[{"partition":0,"offset":1}],"reject":[{"partition":0,"offset":2,"reason":"broken"}],"extend":[{"partition":0,"offset":9}]}`)
	if got := strings.TrimSpace(string(settled.body)); got != `{"stale":[{"partition":0,"offset":9,"reason":"fenced"}]}` {
		t.Error(got)
	}
	if got := n.take("orders", "g", m, ""); got != "1:2 3:1" {
		t.Error(got)
	}
	for offset, want := range map[int]string{
		0: `[{"group":"g","status":"processed","delivery":1}]`,
		2: `[{"group":"g","status":"dead","delivery":1}]`,
	} {
		if got := string(n.want(200, "GET", fmt.Sprintf("/topics/orders/0/%d/status", offset), "").body); !strings.Contains(got, `"groups":`+want+"}") {
			t.Errorf("%d: %s", offset, got)
		}
	}
	if got := n.want(200, "GET", "/topics/orders/0/1/status", "").json(t)["groups"].([]any)[0].(map[string]any); got["status"] != "in-flight" || got["member"] != "w1" || got["delivery"] != 2.0 || got["lease_until"] == nil {
		t.Error(got)
	}
	d := n.want(200, "GET", "/groups/orders/g", "").json(t)
	p := d["partitions"].([]any)[0].(map[string]any)
	for name, want := range map[string]any{"partition": 0.0, "member": "w1", "committed": 1.0, "in_flight": 2.0, "end": 4.0, "lag": 2.0, "redelivered": 1.0, "dead": 1.0, "expired": 0.0, "paused": false} {
		if p[name] != want {
			t.Errorf("%s is %v, want %v", name, p[name], want)
		}
	}
	if w := d["members"].([]any)[0].(map[string]any); w["member"] != "w1" || w["node"] != "node-a" || fmt.Sprint(w["partitions"]) != "[0]" || w["since"] == nil {
		t.Error(w)
	}
	if list := n.want(200, "GET", "/groups/orders/", "").json(t)["groups"].([]any); len(list) != 1 || list[0].(map[string]any)["partitions"] != nil {
		t.Error(list)
	}
	n.groups.Fail(n.memory.node, func(string) error { return fault.New(fault.LeaderUnavailable, "none") })
	p = n.want(200, "GET", "/groups/orders/g", "").json(t)["partitions"].([]any)[0].(map[string]any)
	if p["committed"] != nil || p["lag"] != nil || p["member"] != "w1" {
		t.Error("a leader that says nothing is not guessed at:", p)
	}
}

func TestOnlyALifeThatCountsIsServed(t *testing.T) {
	n := newNode(t)
	n.topic("orders", "")
	n.want(201, "POST", "/groups/orders/register", `{"group":"g"}`)
	first := n.join("orders", "g", "w1")
	second := n.join("orders", "g", "w1")
	for _, c := range [][3]string{
		{"GET", "/groups/orders/g/messages?" + first.query, ""},
		{"POST", "/groups/orders/g/ack", `{` + first.body + `}`},
		{"POST", "/groups/orders/g/nodes/w1/heartbeat", `{"epoch":` + first.epoch + `}`},
		{"DELETE", "/groups/orders/g/nodes/w1?epoch=" + first.epoch, ""},
	} {
		if p := n.want(409, c[0], c[1], c[2]).json(t); p["code"] != "fenced" || p["member"] != "w1" {
			t.Errorf("%v: %v", c, p)
		}
	}
	if h := n.want(200, "POST", "/groups/orders/g/nodes/w1/heartbeat", `{"epoch":`+second.epoch+`}`).json(t); fmt.Sprint(h["partitions"], h["revoke"]) != "[0] []" {
		t.Error(h)
	}
	if len(n.groups.Touched()) == 0 {
		t.Error("the coordinator has heard nothing")
	}
}

func TestMistakesInCallsOfGroups(t *testing.T) {
	n := newNode(t)
	n.topic("orders", "")
	n.want(201, "POST", "/groups/orders/register", `{"group":"g"}`)
	m := n.join("orders", "g", "w1")
	for _, c := range []struct {
		method, path, body string
		status             int
		code, detail       string
	}{
		{"POST", "/groups/nothing/register", `{"group":"g"}`, 404, "topic-not-found", "nothing"},
		{"POST", "/groups/orders/register", `{"group":"node"}`, 400, "reserved-name", "word of the API"},
		{"POST", "/groups/orders/register", `{"group":"a b"}`, 400, "invalid", "group name"},
		{"POST", "/groups/orders/register", `{"grup":"g"}`, 400, "unknown-field", `did you mean "group"`},
		{"POST", "/groups/orders/register?x=1", `{"group":"g"}`, 400, "unknown-field", "none is taken"},
		{"POST", "/groups/orders/node", `{"group":"h"}`, 404, "group-not-found", "register it"},
		{"POST", "/groups/orders/node", `{"group":"g","member":"a/b"}`, 400, "invalid", "member"},
		{"PATCH", "/groups/orders/g", `{"mode":"shared"}`, 400, "invalid", "cannot be changed"},
		{"PATCH", "/groups/orders/h", `{}`, 404, "group-not-found", ""},
		{"GET", "/groups/orders/g/messages", "", 400, "invalid", `"member" is needed`},
		{"GET", "/groups/orders/g/messages?member=w1", "", 400, "invalid", `"epoch" is needed`},
		{"GET", "/groups/orders/g/messages?" + m.query + "&limit=0", "", 400, "invalid", `"limit" takes`},
		{"GET", "/groups/orders/g/messages?" + m.query + "&limit=1025", "", 400, "invalid", `"limit" takes`},
		{"GET", "/groups/orders/g/messages?" + m.query + "&wait=2m", "", 400, "invalid", `"wait" takes`},
		{"GET", "/groups/orders/g/messages?" + m.query + "&offset=1", "", 400, "unknown-field", ""},
		{"POST", "/groups/orders/g/ack", `{` + m.body + `,"ack":[{"partition":0,"offset":1}],"nack":[{"partition":0,"offset":1}]}`, 400, "invalid", "one thing of a record"},
		{"POST", "/groups/orders/g/ack", `{` + m.body + `,"ack":[{"offset":1}]}`, 400, "invalid", `"partition" and "offset"`},
		{"POST", "/groups/orders/h/ack", `{` + m.body + `}`, 404, "group-not-found", ""},
		{"PUT", "/groups/orders/g/offsets", `{}`, 400, "invalid", `"from" or "offsets"`},
		{"PUT", "/groups/orders/g/offsets", `{"offsets":{"0":5},"force":true}`, 404, "offset-not-found", "its end is 0"},
		{"POST", "/groups/orders/g/nodes/w1/heartbeat", `{}`, 400, "invalid", `"epoch" is needed`},
		{"DELETE", "/groups/orders/g/nodes/w9", "", 404, "member-not-found", "w9"},
		{"DELETE", "/groups/orders/g/nodes/w1?epoch=x", "", 400, "invalid", "epoch"},
		{"GET", "/topics/orders/x/0/status", "", 400, "invalid", "partition"},
		{"GET", "/topics/orders/0/x/status", "", 400, "invalid", "offset"},
		{"GET", "/topics/orders/7/0/status", "", 404, "partition-not-found", ""},
		{"HEAD", "/groups/orders/g/messages?" + m.query, "", 405, "", ""},
		{"POST", "/groups/orders/g/offsets", `{}`, 405, "method-not-allowed", "PUT"},
	} {
		r := n.want(c.status, c.method, c.path, c.body)
		if c.code == "" {
			continue
		}
		if p := r.json(t); p["code"] != c.code || !strings.Contains(p["detail"].(string), c.detail) {
			t.Errorf("%s %s %s: %s", c.method, c.path, c.body, r.body)
		}
	}
	if n.groups.Calls("take") > 0 {
		t.Error("something was leased")
	}
}

func TestGroupsNeedTheirRight(t *testing.T) {
	n := newGuardedNode(t)
	n.want(201, "POST", "/topics/", `{"name":"orders"}`, n.bearer(access.Claims{Admin: true}))
	able, unable := n.bearer(access.Claims{Subject: "ann", Topics: map[access.Right][]string{access.Group: {"orders"}}}), n.bearer(access.Claims{Subject: "bob", Topics: map[access.Right][]string{access.Subscribe: {"*"}, access.Publish: {"*"}}})
	n.want(201, "POST", "/groups/orders/register", `{"group":"g"}`, able)
	for _, c := range [][3]string{
		{"GET", "/groups/orders/", ""},
		{"POST", "/groups/orders/register", `{"group":"g"}`},
		{"POST", "/groups/orders/node", `{"group":"g"}`},
		{"GET", "/groups/orders/g", ""},
		{"PATCH", "/groups/orders/g", `{}`},
		{"DELETE", "/groups/orders/g", ""},
		{"GET", "/groups/orders/g/messages?member=a&epoch=1", ""},
		{"POST", "/groups/orders/g/ack", `{}`},
		{"PUT", "/groups/orders/g/offsets", `{"from":"latest"}`},
		{"POST", "/groups/orders/g/nodes/a/heartbeat", `{}`},
		{"DELETE", "/groups/orders/g/nodes/a", ""},
		{"GET", "/topics/orders/0/0/status", ""},
	} {
		if p := n.want(http.StatusForbidden, c[0], c[1], c[2], unable).json(t); p["right"] != "group" {
			t.Errorf("%v: %v", c, p)
		}
		n.want(http.StatusUnauthorized, c[0], c[1], c[2])
	}
	n.want(200, "GET", "/groups/orders/g", "", able)
}

// A page of a foreign origin may read, though its browser keeps that from it; taking
// messages is no reading.
func TestAForeignPageTakesNoMessages(t *testing.T) {
	n := newNode(t)
	n.topic("orders", "")
	n.want(201, "POST", "/groups/orders/register", `{"group":"g"}`)
	m := n.join("orders", "g", "w1")
	n.publish("orders", "1")
	n.want(http.StatusForbidden, "GET", "/groups/orders/g/messages?"+m.query, "", "Origin: https://evil.example")
	// An image, a frame or a link sends no Origin.
	for _, header := range []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-site", "Referer: https://evil.example/page"} {
		if r := n.want(http.StatusForbidden, "GET", "/groups/orders/g/messages?"+m.query, "", header); r.json(t)["code"] != "forbidden" {
			t.Errorf("%s: %s", header, r.body)
		}
		n.want(http.StatusForbidden, "GET", "/topics/orders/events", "", header)
		n.want(http.StatusOK, "GET", "/topics/orders", "", header) // it only reads
	}
	if n.groups.Calls("take") > 0 {
		t.Error("something was leased")
	}
	n.want(http.StatusOK, "GET", "/groups/orders/g/messages?"+m.query, "", "Origin: https://app.example.com", "Sec-Fetch-Site: cross-site")
	n.want(http.StatusOK, "GET", "/groups/orders/g/messages?"+m.query, "", "Sec-Fetch-Site: same-origin")
	n.want(http.StatusOK, "GET", "/groups/orders/g/messages?"+m.query, "", "Sec-Fetch-Site: none") // its address was typed
}

func TestAWaitForMessagesEndsWithTheNode(t *testing.T) {
	n := newNode(t)
	n.topic("orders", "")
	n.want(201, "POST", "/groups/orders/register", `{"group":"g"}`)
	m := n.join("orders", "g", "w1")
	time.AfterFunc(50*time.Millisecond, n.api.Drain)
	if p := n.want(503, "GET", "/groups/orders/g/messages?wait=50s&"+m.query, "").json(t); p["code"] != "draining" {
		t.Error(p)
	}
}

// unwritable is where no answer goes.
type unwritable struct{ *httptest.ResponseRecorder }

func (unwritable) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// Records of which the client is gone before it was answered, or whose answer cannot be
// written, are there for others at once, and were not delivered.
func TestMessagesThatAreNotAnsweredAreGivenBack(t *testing.T) {
	n := newNode(t)
	n.topic("orders", "")
	n.publish("orders", "0", "1")
	n.want(201, "POST", "/groups/orders/register", `{"group":"g","mode":"shared","lease":"30s"}`)
	gone, other := n.join("orders", "g", "gone"), n.join("orders", "g", "other")
	request := httptest.NewRequest("GET", "/groups/orders/g/messages?"+gone.query, nil)

	left, leave := context.WithCancel(t.Context())
	n.groups.Fail(n.memory.node, func(call string) error {
		if call == "taken" {
			leave()
		}
		return nil
	})
	n.api.ServeHTTP(httptest.NewRecorder(), request.WithContext(left))
	n.groups.Fail(n.memory.node, nil)
	if left.Err() == nil || n.groups.Calls("take") != 1 {
		t.Fatal("it left before anything was leased")
	}
	if got := n.take("orders", "g", other, "&limit=1&wait=10s"); got != "0:1" {
		t.Errorf("of a client that left: %q", got)
	}

	n.api.ServeHTTP(unwritable{httptest.NewRecorder()}, request)
	if got := n.take("orders", "g", other, "&wait=10s"); got != "1:1" {
		t.Errorf("of an answer that was not written: %q", got)
	}
}
