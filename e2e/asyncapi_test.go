package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/uuid"

	"tidewire/e2e/asyncapi"
	"tidewire/e2e/client"
	"tidewire/e2e/harness"
	"tidewire/gateway/reply"
	"tidewire/internal/wire"
)

func asyncAPI(t *testing.T, api *client.API) *asyncapi.Document {
	t.Helper()
	d, err := asyncapi.Parse([]byte(api.Must(t, 200, "GET", "/asyncapi.json", "", "").Body))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// tape is a WebSocket of which every line, there and back, is held against the
// document.
type tape struct {
	t     *testing.T
	ctx   context.Context
	doc   *asyncapi.Document
	conn  *websocket.Conn
	lines []said
}

// said is a line of the server.
type said struct {
	Op, Sub, Code, Connection, Cursor string
	ID, Offset                        int64
	Headers                           map[string]string
	raw                               string
}

func startTape(t *testing.T, doc *asyncapi.Document, addr string) *tape {
	t.Helper()
	ctx := within(t)
	w, err := client.UpgradeWS(ctx, addr, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Drop)
	return &tape{t: t, ctx: ctx, doc: doc, conn: w.Conn()}
}

// say sends a line that is as the document says.
func (p *tape) say(format string, args ...any) {
	p.t.Helper()
	line := fmt.Sprintf(format, args...)
	if err := p.doc.FromClient([]byte(line)); err != nil {
		p.t.Errorf("%v", err)
	}
	p.send(line)
}

// send sends anything.
func (p *tape) send(line string) {
	p.t.Helper()
	if err := p.conn.Write(p.ctx, websocket.MessageText, []byte(line)); err != nil {
		p.t.Fatal(err)
	}
}

// read takes in one frame.
func (p *tape) read() error {
	p.t.Helper()
	_, text, err := p.conn.Read(p.ctx)
	if err != nil {
		return err
	}
	if err := p.doc.FromServer(text); err != nil {
		p.t.Errorf("%v", err)
	}
	for l := range strings.SplitSeq(string(text), "\n") {
		s := said{raw: l}
		if err := json.Unmarshal([]byte(l), &s); err != nil {
			p.t.Fatalf("%v: %s", err, l)
		}
		p.lines = append(p.lines, s)
	}
	return nil
}

// next is the next line.
func (p *tape) next() (said, error) {
	p.t.Helper()
	for len(p.lines) == 0 {
		if err := p.read(); err != nil {
			return said{}, err
		}
	}
	s := p.lines[0]
	p.lines = p.lines[1:]
	return s, nil
}

// hear waits for the next line of an op, "" for a message, and leaves others for
// later. An error that nobody expects ends the test.
func (p *tape) hear(op string) said {
	p.t.Helper()
	for i := 0; ; i++ {
		for i == len(p.lines) {
			if err := p.read(); err != nil {
				p.t.Fatalf("waiting for %q: %v", op, err)
			}
		}
		switch s := p.lines[i]; s.Op {
		case op:
			p.lines = slices.Delete(p.lines, i, i+1)
			return s
		case "error":
			p.t.Fatalf("waiting for %q: %s", op, s.raw)
		}
	}
}

// closed waits for the end, which has to be one of the document's.
func (p *tape) closed(want int) {
	p.t.Helper()
	for {
		if _, err := p.next(); err != nil {
			if got := client.CloseCode(err); got != want || !slices.Contains(p.doc.CloseCodes(), got) {
				p.t.Errorf("closed with %v, want %d, one of %v", err, want, p.doc.CloseCodes())
			}
			return
		}
	}
}

// TestFramesAreAsDescribed has a node say everything that its AsyncAPI document
// says it can, and holds every line and every event to it.
func TestFramesAreAsDescribed(t *testing.T) {
	n := harness.Start(t, harness.Options{})
	api := client.New(n.URL)
	doc := asyncAPI(t, api)
	if got := doc.Ops(); !slices.Equal(got, slices.Sorted(slices.Values(wire.Ops))) {
		t.Errorf("the document has the ops %v, the node takes %v", got, wire.Ops)
	}
	all := []int{
		reply.CloseNormal, reply.CloseGoingAway, reply.CloseTooBig, reply.CloseRestart, reply.CloseTryLater, reply.CloseSlowConsumer,
		reply.CloseSilent, reply.CloseExpired, reply.CloseUnauthorized, reply.CloseProtocol, reply.CloseLimit,
	}
	if !slices.Equal(doc.CloseCodes(), all) {
		t.Errorf("the document has the close codes %v, the node %v", doc.CloseCodes(), all)
	}

	recordsOnTape(t, doc, n, api)
	groupsOnTape(t, doc, n, api)
	requestsOnTape(t, doc, n, api)
	eventsOnTape(t, doc, api)
	refusalsOnTape(t, doc, n, api)
	tokensOnTape(t, doc)
	farewellOnTape(t, doc, n, api)

	if left := doc.Unseen(); len(left) > 0 {
		t.Errorf("nothing was held against %v", left)
	}
}

func recordsOnTape(t *testing.T, doc *asyncapi.Document, n *harness.Node, api *client.API) {
	api.CreateTopic(t, "records", `"partitions":2`)
	p := startTape(t, doc, n.Addr)
	p.hear("welcome")
	p.say(`{"op":"hello","id":1,"client":"tape","version":"1"}`)
	p.hear("welcome")
	p.say(`{"op":"metadata","id":2,"topic":"records"}`)
	p.hear("metadata")
	p.say(`{"op":"subscribe","id":3,"topic":"records","from":"earliest","credit":3}`)
	sub := p.hear("subscribed")
	for i, record := range []string{
		`"key":"alice","value":{"total":12},"headers":{"trace":"7f"}`,
		`"value":"hi","content_type":"text/plain","acks":"leader"`,
		`"value_base64":"AAE=","acks":"none"`,
		`"key":"alice","tombstone":true`,
		`"key":null,"value":null`,
	} {
		p.say(`{"op":"publish","id":%d,"topic":"records",%s}`, 10+i, record)
		p.hear("published")
	}
	for range 2 { // the second time it is a repeat
		p.say(`{"op":"publish","id":20,"topic":"records","partition":1,"producer":"0193b0a6-7c1e-7d0c-8f2a-3a1b2c3d4e5f","sequence":0,"value":1}`)
		p.hear("published")
	}
	p.say(`{"op":"credit","sub":%q,"add":100}`, sub.Sub)
	cursor := p.hear("cursor").Cursor
	p.say(`{"op":"unsubscribe","id":21,"sub":%q}`, sub.Sub)
	p.hear("unsubscribed")
	p.say(`{"op":"subscribe","id":22,"topic":"records","cursor":%q,"after":{"0":0,"1":0}}`, cursor)
	p.hear("subscribed")
	p.say(`{"op":"subscribe","id":23,"topic":"records","cursor":"of-nobody","keys":["alice","bob"]}`)
	p.hear("gap")
	p.say(`{"op":"subscribe","id":24,"topic":"records","from":"2026-01-31T15:04:05Z","key_prefix":"al","partition":0}`)
	p.hear("subscribed")

	// Its topic goes, and with it its subscriptions.
	api.Must(t, 204, "DELETE", "/topics/records", "", "")
	for {
		if s, err := p.next(); err != nil {
			t.Fatal(err)
		} else if s.Op == "error" && s.Sub != "" {
			break
		}
	}
}

func groupsOnTape(t *testing.T, doc *asyncapi.Document, n *harness.Node, api *client.API) {
	api.CreateTopic(t, "work", `"partitions":2`)
	p, q := startTape(t, doc, n.Addr), startTape(t, doc, n.Addr)
	p.say(`{"op":"join","id":1,"topic":"work","group":"g","mode":"exclusive","from":"earliest","lease":"30s","session":"10s","max_deliveries":5,"backoff":"0s","dead_letter":"work.dead","max_in_flight":64}`)
	sub := p.hear("joined").Sub
	for i := range 6 {
		api.Must(t, 201, "POST", "/topics/work?partition=0", jsonType, fmt.Sprint(i))
	}
	for range 6 {
		p.hear("")
	}
	p.say(`{"op":"ack","id":2,"sub":%q,"partition":0,"offset":0}`, sub)
	p.hear("acked")
	p.say(`{"op":"extend","id":3,"sub":%q,"partition":0,"offsets":[1,2]}`, sub)
	p.hear("acked")
	p.say(`{"op":"nack","id":4,"sub":%q,"partition":0,"offset":1,"delay":"1h"}`, sub)
	p.hear("acked")
	p.say(`{"op":"reject","id":5,"sub":%q,"partition":0,"offset":2,"reason":"no such customer"}`, sub)
	p.hear("acked")
	p.say(`{"op":"ack","id":6,"sub":%q,"partition":0,"through":5}`, sub)
	p.hear("acked")
	p.say(`{"op":"nack","id":7,"sub":%q,"partition":0,"offset":0}`, sub) // it is done
	if s := p.hear("acked"); !strings.Contains(s.raw, `"stale"`) {
		t.Errorf("given back once it was done: %s", s.raw)
	}
	q.say(`{"op":"join","id":1,"topic":"work","group":"g","member":"q","credit":1}`)
	q.hear("joined")
	p.hear("revoked")
	p.say(`{"op":"leave","id":8,"sub":%q}`, sub)
	p.hear("left")
	q.hear("assigned")
	q.closeNormally()
}

func (p *tape) closeNormally() {
	p.t.Helper()
	if err := p.conn.Close(websocket.StatusNormalClosure, ""); err != nil && !errors.Is(err, io.EOF) {
		p.t.Logf("close: %v", err) // what it has not read is no failure
	}
}

func requestsOnTape(t *testing.T, doc *asyncapi.Document, n *harness.Node, api *client.API) {
	api.CreateTopic(t, "prices", "")
	asker, server := startTape(t, doc, n.Addr), startTape(t, doc, n.Addr)
	server.say(`{"op":"join","id":1,"topic":"prices","group":"responders","mode":"shared","from":"latest"}`)
	server.hear("joined")
	served(t, api, "prices")
	asker.say(`{"op":"request","id":1,"topic":"prices","key":"k","value":{"sku":7},"headers":{"trace":"1"},"timeout":"20s","correlation":"c-1"}`)
	asker.say(`{"op":"request","id":2,"topic":"prices","value":8}`)
	for i, answer := range []string{`"value":{"price":12},"headers":{"a":"b"}`, `"value_base64":"AAE=","status":422`} {
		inbox := server.hear("").Headers["Tidewire-Reply-To"]
		server.say(`{"op":"reply","id":%d,"to":%q,%s}`, 2+i, inbox, answer)
		server.hear("replied")
		asker.hear("reply")
	}
}

func eventsOnTape(t *testing.T, doc *asyncapi.Document, api *client.API) {
	api.CreateTopic(t, "events", "")
	postText(t, api, "events", "one", 201)
	for _, c := range []struct {
		query string
		end   func(id string)
		last  string
	}{
		{"?from=earliest", func(id string) { api.Must(t, 204, "DELETE", "/connections/"+id, "", "") }, "closing"},
		{"?cursor=of-nobody", func(string) { api.Must(t, 204, "DELETE", "/topics/events", "", "") }, "error"},
	} {
		s, err := client.OpenSSE(within(t), api.URL+"/topics/events/events"+c.query, "")
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for {
			e, err := s.Next()
			if err != nil {
				t.Fatalf("%s: %v", c.query, err)
			}
			if err := doc.Event(e.Name, e.Data); err != nil {
				t.Errorf("%v", err)
			}
			if e.Name == c.last {
				break
			}
			if e.Name != "message" {
				continue
			}
			var list struct {
				Connections []struct{ Connection, Transport string }
			}
			parse(t, api.Must(t, 200, "GET", "/connections/", "", "").Body, &list)
			for _, x := range list.Connections {
				if x.Transport == "sse" {
					c.end(x.Connection)
					break // the stream of the case before may be listed yet
				}
			}
		}
	}
}

func refusalsOnTape(t *testing.T, doc *asyncapi.Document, n *harness.Node, api *client.API) {
	api.CreateTopic(t, "refusals", `"partitions":2,"max_message_bytes":100`)
	p := startTape(t, doc, n.Addr)
	p.hear("welcome")
	refused := map[string]bool{}
	producer := uuid.NewString()
	for _, line := range []string{
		`nothing`, `{"id":1}`, `{"op":"no-such-op","id":1}`, `{"op":"publish","id":1,"topics":"refusals"}`,
		`{"op":"publish","id":1,"topic":"none","value":1}`,
		`{"op":"publish","id":1,"topic":"_alerts","value":1}`,
		`{"op":"publish","id":1,"topic":"refusals","partition":9,"value":1}`,
		`{"op":"publish","id":1,"topic":"refusals","key":"alice","partition":1,"value":1}`,
		`{"op":"publish","id":1,"topic":"refusals","value":"` + strings.Repeat("x", 200) + `"}`,
		`{"op":"publish","id":1,"topic":"refusals","partition":0,"producer":"` + producer + `","sequence":1,"value":1}`,
		`{"op":"publish","id":1,"topic":"refusals","partition":0,"producer":"` + producer + `","sequence":0,"value":1}`, // is taken
		`{"op":"publish","id":1,"topic":"refusals","partition":0,"producer":"` + producer + `","sequence":9,"value":1}`,
		`{"op":"request","id":1,"topic":"refusals","value":1}`,
		`{"op":"reply","id":1,"to":"nobody","value":1}`,
		`{"op":"join","id":1,"topic":"refusals","group":"none"}`,
		`{"op":"auth","id":1,"token":"x"}`,
	} {
		p.send(line)
		s, err := p.next()
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		refused[s.Code] = true
	}
	for _, code := range []string{
		"invalid", "unknown-field", "reserved-name", "topic-not-found", "partition-not-found", "group-not-found", "wrong-partition",
		"out-of-order-sequence", "unknown-producer", "message-too-large", "no-responders", "requester-gone",
	} {
		if !refused[code] {
			t.Errorf("nothing was refused as %s", code)
		}
	}

	p.send(strings.Repeat("x", 4<<20))
	p.closed(reply.CloseTooBig)
	p = startTape(t, doc, n.Addr)
	if err := p.conn.Write(p.ctx, websocket.MessageBinary, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	p.closed(reply.CloseProtocol)
	p = startTape(t, doc, n.Addr)
	api.Must(t, 204, "DELETE", "/connections/"+p.hear("welcome").Connection, "", "")
	p.closed(reply.CloseGoingAway)
}

func tokensOnTape(t *testing.T, doc *asyncapi.Document) {
	g := startGuarded(t)
	token := func(life time.Duration) string {
		return jwt(hs256, claims{"sub": "ann", "exp": time.Now().Add(life).Unix(), "tidewire": may("orders", "orders")}, accessKey)
	}
	p := startTape(t, doc, g.Addr)
	p.say(`{"op":"hello","id":1,"token":%q}`, token(time.Hour))
	p.hear("welcome")
	p.say(`{"op":"auth","id":2,"token":%q}`, token(2*time.Second))
	p.hear("authorized")
	p.send(`{"op":"publish","id":3,"topic":"news","value":1}`)
	if s, err := p.next(); err != nil || s.Code != "forbidden" {
		t.Errorf("%v %s", err, s.raw)
	}
	p.closed(reply.CloseExpired)
	p = startTape(t, doc, g.Addr)
	p.say(`{"op":"hello","id":1,"token":"nonsense"}`)
	p.closed(reply.CloseUnauthorized)
}

func farewellOnTape(t *testing.T, doc *asyncapi.Document, n *harness.Node, api *client.API) {
	api.CreateTopic(t, "farewell", "")
	p := startTape(t, doc, n.Addr)
	p.say(`{"op":"subscribe","id":1,"topic":"farewell"}`)
	p.hear("subscribed")
	s, err := client.OpenSSE(within(t), api.URL+"/topics/farewell/events", "")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	stopped := make(chan error, 1)
	go func() { stopped <- n.Stop() }()
	p.hear("closing")
	p.closed(reply.CloseRestart)
	e, err := s.Next()
	if err == nil {
		err = doc.Event(e.Name, e.Data)
	}
	if err != nil || e.Name != "closing" {
		t.Errorf("the stream ends with %q: %v", e.Name, err)
	}
	if err := <-stopped; err != nil {
		t.Errorf("stop: %v", err)
	}
}
