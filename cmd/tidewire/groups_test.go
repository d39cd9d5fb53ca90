package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"
)

// caller calls a node over HTTP.
type caller struct {
	*testing.T
	server string
}

// call wants a status, and gives the answer as it decodes.
func (c caller) call(status int, method, path, body string) (answer struct {
	Messages []leased
	Stale    []struct {
		Partition, Offset int
		Reason            string
	}
	Member, Code string
	Epoch        int64
	Partitions   json.RawMessage
	Revoke       []int
	Groups       []struct {
		Group, Status, Member string
		Delivery              int
	}
},
) {
	c.Helper()
	req, err := http.NewRequestWithContext(c.Context(), method, "http://"+c.server+path, strings.NewReader(body))
	if err != nil {
		c.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		c.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != status {
		c.Fatalf("%s %s: %d, want %d: %s %v", method, path, res.StatusCode, status, b, err)
	}
	if len(b) > 0 && res.Header.Get("Content-Type") != "" {
		if err := json.Unmarshal(b, &answer); err != nil {
			c.Fatalf("%s %s: %v in %s", method, path, err, b)
		}
	}
	return answer
}

// leased is a message as a member gets it.
type leased struct {
	Topic                       string
	Partition, Offset, Delivery int
	LeaseMs                     int `json:"lease_ms"`
	Value                       json.RawMessage
	Headers                     map[string]string
}

func (m leased) String() string { return fmt.Sprintf("%s:%d", m.Value, m.Delivery) }

// work is the calls of one member of the group g of the topic t.
type work struct {
	caller
	name  string
	epoch int64
}

func (c caller) join(name string) work {
	c.Helper()
	return work{c, name, c.call(200, "POST", "/groups/t/node", `{"group":"g","member":"`+name+`"}`).Epoch}
}

func (w work) take(n int) string {
	w.Helper()
	var out []string
	for len(out) < n {
		a := w.call(200, "GET", fmt.Sprintf("/groups/t/g/messages?member=%s&epoch=%d&limit=%d&wait=20s", w.name, w.epoch, n-len(out)), "")
		if len(a.Messages) == 0 {
			w.Fatalf("nothing came in 20 s; there was %v", out)
		}
		for _, m := range a.Messages {
			out = append(out, m.String())
		}
	}
	return strings.Join(out, " ")
}

func (w work) say(what string) string {
	w.Helper()
	return fmt.Sprint(w.call(200, "POST", "/groups/t/g/ack", fmt.Sprintf(`{"member":%q,"epoch":%d,%s}`, w.name, w.epoch, what)).Stale)
}

func (c caller) status(offset int) string {
	c.Helper()
	g := c.call(200, "GET", fmt.Sprintf("/topics/t/0/%d/status", offset), "").Groups
	if len(g) != 1 || g[0].Group != "g" {
		c.Fatalf("%+v", g)
	}
	return g[0].Status
}

// A group's records over HTTP, on a node with all that belongs to one: each is settled,
// comes again, or ends in the dead-letter topic; and what was done is known after a restart.
func TestAGroupWorksOnANode(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	defer http.DefaultClient.CloseIdleConnections()
	data := filepath.Join(t.TempDir(), "data")
	listening, stop := startNode(t, data)
	c := caller{t, listening["http"]}
	c.call(201, "POST", "/topics/", `{"name":"t"}`)
	for i := range 5 {
		c.call(201, "POST", "/topics/t", fmt.Sprint(i))
	}
	c.call(201, "POST", "/groups/t/register", `{"group":"g","backoff":"50ms","max_deliveries":2,"session":"1m"}`)
	c.call(200, "POST", "/groups/t/register", `{"group":"g"}`)
	if code := c.call(409, "POST", "/groups/t/register", `{"group":"g","lease":"1s"}`).Code; code != "group-exists" {
		t.Error(code)
	}
	w := c.join("w1")
	if got := w.take(4); got != "0:1 1:1 2:1 3:1" {
		t.Error(got)
	}
	if got := w.say(`"ack":[{"partition":0,"offset":0},{"partition":0,"offset":99}],"nack":[{"partition":0,"offset":1}],"extend":[{"partition":0,"offset":2}],"reject":[{"partition":0,"offset":3,"reason":"broken"}]`); got != "[{0 99 offset-not-found}]" {
		t.Error(got)
	}
	if got := w.take(2); got != "4:1 1:2" && got != "1:2 4:1" {
		t.Error(got)
	}
	w.say(`"nack":[{"partition":0,"offset":1}]`) // for the second time: it is dead
	for offset, want := range []string{"processed", "dead", "in-flight", "dead", "in-flight"} {
		if got := c.status(offset); got != want {
			t.Errorf("offset %d is %s, want %s", offset, got, want)
		}
	}
	var dead []leased
	for len(dead) < 2 {
		dead = c.call(200, "GET", "/topics/t.g.dlq?wait=1s", "").Messages
	}
	if dead[0].Headers["Tidewire-Dead-Reason"] != "broken" || string(dead[1].Value) != "1" || dead[1].Headers["Tidewire-Dead-Deliveries"] != "2" {
		t.Errorf("%+v", dead)
	}
	if h := c.call(200, "POST", "/groups/t/g/nodes/w1/heartbeat", fmt.Sprintf(`{"epoch":%d,"partitions":[0]}`, w.epoch)); string(h.Partitions) != "[0]" || len(h.Revoke) != 0 {
		t.Errorf("%+v", h)
	}
	c.call(409, "PUT", "/groups/t/g/offsets", `{"from":"earliest"}`)
	if err := stop(); err != nil {
		t.Fatal(err)
	}

	listening, stop = startNode(t, data)
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	c.server = listening["http"]
	w.server = c.server
	if got := w.say(`"ack":[{"partition":0,"offset":2}]`); got != "[]" {
		t.Error("an acknowledgement that came too late for the leader that leased:", got)
	}
	if got := w.take(1); got != "4:1" && got != "4:2" {
		t.Error(got)
	}
	w.say(`"ack":[{"partition":0,"offset":4}]`)
	if got := c.status(2) + " " + c.status(3) + " " + c.status(4); got != "processed dead processed" {
		t.Error(got)
	}
	again := c.join("w1")
	if code := c.call(409, "GET", fmt.Sprintf("/groups/t/g/messages?member=w1&epoch=%d", w.epoch), "").Code; code != "fenced" {
		t.Error(code)
	}
	c.call(204, "DELETE", fmt.Sprintf("/groups/t/g/nodes/w1?epoch=%d", again.epoch), "")
	c.call(200, "PUT", "/groups/t/g/offsets", `{"offsets":{"0":3}}`)
	if got := c.status(2) + " " + c.status(3); got != "skipped received" && got != "processed received" {
		t.Error(got)
	}
	c.call(204, "DELETE", "/groups/t/g", "")
	c.call(404, "GET", "/groups/t/g", "")
}

// socket is a WebSocket that reads line by line.
type socket struct {
	*testing.T
	ws    *websocket.Conn
	lines []string
}

func (c caller) dial() *socket {
	c.Helper()
	ws, _, err := websocket.Dial(c.Context(), "ws://"+c.server+"/ws", nil)
	if err != nil {
		c.Fatal(err)
	}
	return &socket{T: c.T, ws: ws}
}

func (s *socket) say(format string, args ...any) {
	s.Helper()
	if err := s.ws.Write(s.Context(), websocket.MessageText, fmt.Appendf(nil, format, args...)); err != nil {
		s.Fatal(err)
	}
}

// frame is what the server says in one line.
type frame struct {
	Op, Sub, Member, Code string
	ID, Epoch, Count      int64
	Partitions            []int
	Stale                 []struct {
		Offset int
		Reason string
	}
}

func (s *socket) next(into any) {
	s.Helper()
	for len(s.lines) == 0 {
		_, b, err := s.ws.Read(s.Context())
		if err != nil {
			s.Fatal(err)
		}
		s.lines = strings.Split(string(b), "\n")
	}
	if err := json.Unmarshal([]byte(s.lines[0]), into); err != nil {
		s.Fatal(err)
	}
	s.lines = s.lines[1:]
}

func (s *socket) want(op string) (l frame) {
	s.Helper()
	for l.Op == "" || l.Op == "welcome" {
		s.next(&l)
	}
	if l.Op != op {
		s.Fatalf("%+v, want %s", l, op)
	}
	return l
}

func (s *socket) messages(n int) string {
	s.Helper()
	var out []string
	for len(out) < n {
		for range s.want("messages").Count {
			var m leased
			s.next(&m)
			out = append(out, m.String())
		}
	}
	return strings.Join(out, " ")
}

// The same over WebSockets, with a partition that moves from one to another.
func TestAGroupWorksOverWebSockets(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	defer http.DefaultClient.CloseIdleConnections()
	listening, stop := startNode(t, filepath.Join(t.TempDir(), "data"))
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	c := caller{t, listening["http"]}
	c.call(201, "POST", "/topics/", `{"name":"t","partitions":2}`)
	for i := range 4 {
		c.call(201, "POST", fmt.Sprintf("/topics/t?partition=%d", i%2), fmt.Sprint(i))
	}
	a := c.dial()
	defer func() { _ = a.ws.CloseNow() }()
	a.say(`{"op":"join","id":1,"topic":"t","group":"g","member":"a","backoff":"50ms","max_deliveries":2}`)
	if l := a.want("joined"); l.Sub != "s1" || l.Member != "a" || fmt.Sprint(l.Partitions) != "[0 1]" {
		t.Errorf("%+v", l)
	}
	if got := a.messages(4); len(got) != len("0:1 1:1 2:1 3:1") {
		t.Error(got)
	}
	a.say(`{"op":"ack","id":2,"sub":"s1","partition":0,"offsets":[0,7]}`)
	if l := a.want("acked"); l.ID != 2 || fmt.Sprint(l.Stale) != "[{7 offset-not-found}]" {
		t.Errorf("%+v", l)
	}
	a.say(`{"op":"nack","id":3,"sub":"s1","partition":0,"offset":1}`)
	if l := a.want("acked"); l.ID != 3 || len(l.Stale) > 0 {
		t.Errorf("%+v", l)
	}
	if got := a.messages(1); got != "2:2" {
		t.Error(got)
	}
	a.say(`{"op":"reject","id":4,"sub":"s1","partition":0,"offset":1,"reason":"broken"}`)
	a.want("acked")
	if got := c.status(0) + " " + c.status(1); got != "processed dead" {
		t.Error(got)
	}

	b := c.dial()
	defer func() { _ = b.ws.CloseNow() }()
	b.say(`{"op":"join","id":1,"topic":"t","group":"g","member":"b"}`)
	b.want("joined")
	// The partition without anything in a's hands goes at once; of the other it is told.
	l := a.want("revoked")
	if len(l.Partitions) != 1 {
		t.Errorf("%+v", l)
	}
	if l.Partitions[0] == 1 {
		a.say(`{"op":"ack","id":5,"sub":"s1","partition":1,"through":1}`)
		a.want("acked")
	}
	if got := b.want("assigned"); fmt.Sprint(got.Partitions) != fmt.Sprint(l.Partitions) {
		t.Errorf("%+v, and revoked was %+v", got, l)
	}
	began := time.Now()
	c.call(201, "POST", fmt.Sprintf("/topics/t?partition=%d", l.Partitions[0]), "9")
	if got := b.messages(1); got != "9:1" {
		t.Error(got)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Error("it took", took)
	}
	if err := b.ws.Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Error(err)
	}
	if got := a.want("assigned"); fmt.Sprint(got.Partitions) != fmt.Sprint(l.Partitions) {
		t.Errorf("%+v", got)
	}
	if got := a.messages(1); got != "9:1" && got != "9:2" {
		t.Error(got)
	}
	c.join("a")
	if l := a.want("error"); l.Code != "fenced" || l.Sub != "s1" {
		t.Errorf("%+v", l)
	}
}
