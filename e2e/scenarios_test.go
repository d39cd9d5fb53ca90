package e2e_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/uuid"

	"tidewire/e2e/asyncapi"
	"tidewire/e2e/client"
	"tidewire/e2e/conformance"
	"tidewire/e2e/harness"
)

// scenario is a script of e2e/conformance/scenarios; docs/clients.md tells what
// each step means. The SDK's tests play them against a client, these against a node.
type scenario struct {
	Says, Played string
	Topic        json.RawMessage
	Values       map[string]any
	Tokens       []string
	Later        bool // it has frames of a later version
	Steps        []struct {
		App    json.RawMessage
		Client struct {
			Connects, Silent, Away any
			Sends                  map[string]any
			Without                []string
			Calls                  *struct {
				Path, From, After, Within string
				Query                     map[string]string
			}
		}
		Server struct {
			Sends                 []map[string]any
			Streams               []event
			Closes                *struct{ Code int }
			Cuts, Silent, Refuses bool
		}
		World struct {
			Publish                    []int
			Kept                       int
			Kill, Stop, Delete, Binary bool
		}
	}
}

// event is one of a stream; without an event it is an id alone.
type event struct {
	ID, Event string
	Data      any
}

func scenarios(t *testing.T) map[string]scenario {
	t.Helper()
	files, err := fs.Glob(conformance.Files, "scenarios/*.json")
	if err != nil || len(files) < 20 {
		t.Fatalf("%v, %d scripts", err, len(files))
	}
	all := map[string]scenario{}
	for _, file := range files {
		text, err := fs.ReadFile(conformance.Files, file)
		if err != nil {
			t.Fatal(err)
		}
		var s scenario
		if err := json.Unmarshal(text, &s); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all[strings.TrimSuffix(path.Base(file), ".json")] = s
	}
	return all
}

// TestScenariosAreWhatANodeDoes plays the clients of all scripts that a node can be
// brought to play, and wants of it what the script says that the server does.
func TestScenariosAreWhatANodeDoes(t *testing.T) {
	for name, s := range scenarios(t) {
		if s.Played != "both" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of it is waiting
			p := &player{t: t, s: s, vars: map[string]any{}}
			if s.Tokens != nil {
				p.n = startGuarded(t).Node
			} else {
				p.n = harness.Start(t, harness.Options{})
				p.api = client.New(p.n.URL)
				p.api.Must(t, 201, "POST", "/topics/", jsonType, string(s.Topic))
			}
			p.doc = asyncAPI(t, client.New(p.n.URL))
			for i := range s.Steps {
				t.Logf("step %d", i+1) // shown where it fails
				p.world(i)
				p.client(i)
				p.server(i)
			}
		})
	}
}

// TestScenariosSayWhatANodeMaySay holds also those frames against the document
// that no node is brought to send.
func TestScenariosSayWhatANodeMaySay(t *testing.T) {
	doc := asyncAPI(t, client.New(harness.Start(t, harness.Options{}).URL))
	for name, s := range scenarios(t) {
		p := &player{t: t, s: s, vars: maps.Clone(s.Values)}
		for i, step := range s.Steps {
			if len(step.Client.Sends) > 0 {
				line := p.filled(step.Client.Sends)
				if err := doc.FromClient(encoded(t, line)); err != nil {
					t.Errorf("%s, step %d: %v", name, i+1, err)
				}
			}
			for _, frame := range step.Server.Sends {
				frame := p.filled(frame).(map[string]any)
				lines := encoded(t, frame)
				if messages, ok := frame["messages"].([]any); ok {
					lines = encoded(t, map[string]any{"op": frame["op"], "sub": frame["sub"], "count": len(messages)})
					for _, m := range messages {
						lines = append(append(lines, '\n'), encoded(t, m)...)
					}
				}
				if err := doc.FromServer(lines); err != nil && !s.Later {
					t.Errorf("%s, step %d: %v", name, i+1, err)
				}
			}
			for _, e := range step.Server.Streams {
				if e.Event == "" {
					continue
				}
				if err := doc.Event(e.Event, encoded(t, p.filled(e.Data))); err != nil {
					t.Errorf("%s, step %d: %v", name, i+1, err)
				}
			}
		}
	}
}

func encoded(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// player is the client of a script.
type player struct {
	t    *testing.T
	s    scenario
	n    *harness.Node
	api  *client.API
	doc  *asyncapi.Document
	vars map[string]any // what each $name stands for
	ids  int

	ws       *client.WS
	heard    []map[string]any // frames, and messages of runs one by one, with their sub
	blocks   *bufio.Reader    // of a stream of events
	stopping chan error       // of a node that was told to stop
}

func (p *player) world(i int) {
	p.t.Helper()
	w := p.s.Steps[i].World
	for _, v := range w.Publish {
		p.api.Must(p.t, 201, "POST", "/topics/orders?timeout=20s", jsonType, fmt.Sprint(v))
	}
	if w.Kept > 0 {
		harness.Await(p.t, patience, "the record is kept", func() bool {
			return len(p.api.MustPoll(p.t, "orders").Messages) >= w.Kept
		})
	}
	switch {
	case w.Kill:
		p.n.Kill()
		if err := p.n.Run(); err != nil {
			p.t.Fatal(err)
		}
	case w.Stop:
		p.stopping = make(chan error, 1)
		go func() { p.stopping <- p.n.Stop() }()
	case w.Delete:
		p.api.Must(p.t, 204, "DELETE", "/topics/orders", "", "")
	case w.Binary:
		if err := p.ws.Conn().Write(p.t.Context(), websocket.MessageBinary, []byte("{}")); err != nil {
			p.t.Fatal(err)
		}
	}
}

// back waits until a node that was stopped is there again.
func (p *player) back() {
	p.t.Helper()
	if p.stopping == nil {
		return
	}
	if err := <-p.stopping; err != nil {
		p.t.Fatal(err)
	}
	p.stopping = nil
	if err := p.n.Run(); err != nil {
		p.t.Fatal(err)
	}
}

func (p *player) client(i int) {
	p.t.Helper()
	c := p.s.Steps[i].Client
	if c.Connects != nil {
		p.back()
		ws, err := client.UpgradeWS(within(p.t), p.n.Addr, "", nil)
		if err != nil {
			p.t.Fatal(err)
		}
		p.t.Cleanup(ws.Drop)
		p.ws, p.heard = ws, nil
		if p.s.Tokens == nil {
			p.expect(map[string]any{"op": "welcome", "connection": "$connection", "node": "$node", "ping": "$ping", "limits": "$limits"})
			delete(p.vars, "$connection") // it is another one each time
		}
	}
	if len(c.Sends) > 0 {
		if err := p.ws.Send(p.t.Context(), p.filled(c.Sends)); err != nil {
			p.t.Fatal(err)
		}
	}
	if c.Calls != nil {
		p.back()
		query := url.Values{}
		for name, v := range c.Calls.Query {
			query.Set(name, v)
		}
		req, err := http.NewRequestWithContext(within(p.t), "GET", p.n.URL+c.Calls.Path+"?"+query.Encode(), nil)
		if err != nil {
			p.t.Fatal(err)
		}
		if c.Calls.From != "" {
			req.Header.Set("Last-Event-ID", p.filled(c.Calls.From).(string))
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil || res.StatusCode != 200 {
			p.t.Fatalf("%v %v", err, res)
		}
		p.t.Cleanup(func() { _ = res.Body.Close() })
		p.blocks = bufio.NewReader(res.Body)
	}
}

func (p *player) server(i int) {
	p.t.Helper()
	s := p.s.Steps[i].Server
	for _, frame := range s.Sends {
		messages, ok := frame["messages"].([]any)
		if !ok {
			p.expect(frame)
		}
		for _, m := range messages {
			m := maps.Clone(m.(map[string]any))
			m["sub"] = frame["sub"]
			p.expect(m)
		}
	}
	for _, e := range s.Streams {
		p.expectEvent(e)
	}
	if s.Closes != nil {
		for {
			if err := p.hear(); err != nil {
				if code := client.CloseCode(err); code != s.Closes.Code {
					p.t.Fatalf("closed with %d (%v), want %d", code, err, s.Closes.Code)
				}
				break
			}
		}
	}
	if s.Cuts && p.ws != nil {
		p.ws.Drop()
	}
}

// hear takes in one text frame.
func (p *player) hear() error {
	p.t.Helper()
	_, text, err := p.ws.Conn().Read(within(p.t))
	if err != nil {
		return err
	}
	if err := p.doc.FromServer(text); err != nil {
		p.t.Errorf("%v", err)
	}
	sub, left := any(nil), 0
	for line := range strings.SplitSeq(string(text), "\n") {
		var f map[string]any
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			p.t.Fatalf("%v: %s", err, line)
		}
		switch {
		case left > 0:
			f["sub"] = sub
			left--
		case f["op"] == "messages":
			sub, left = f["sub"], int(f["count"].(float64))
			continue
		}
		p.heard = append(p.heard, f)
	}
	return nil
}

// expect wants a frame or a message to be the next one. Cursors come whenever they want.
func (p *player) expect(pattern map[string]any) {
	p.t.Helper()
	for {
		for len(p.heard) == 0 {
			if err := p.hear(); err != nil {
				p.t.Fatalf("waiting for %v: %v", pattern, err)
			}
		}
		f := p.heard[0]
		p.heard = p.heard[1:]
		if f["op"] == "cursor" && pattern["op"] != "cursor" {
			continue
		}
		// Members of an error beside the usual ones belong to its code.
		if extra := f["op"] == "error"; !p.fits(pattern, f, extra) {
			p.t.Fatalf("the node says\n%s\nthe script\n%s\nwhere %v", encoded(p.t, f), encoded(p.t, pattern), p.vars)
		}
		return
	}
}

func (p *player) expectEvent(want event) {
	p.t.Helper()
	for {
		var e event
		for line := "-"; line != ""; {
			text, err := p.blocks.ReadString('\n')
			if err != nil {
				p.t.Fatalf("waiting for %+v: %v", want, err)
			}
			line = strings.TrimSuffix(text, "\n")
			name, value, _ := strings.Cut(line, ": ")
			switch name {
			case "id":
				e.ID = value
			case "event":
				e.Event = value
			case "data":
				if err := p.doc.Event(e.Event, []byte(value)); err != nil {
					p.t.Errorf("%v", err)
				}
				if err := json.Unmarshal([]byte(value), &e.Data); err != nil {
					p.t.Fatal(err)
				}
			}
		}
		if e.Event == "" && (e.ID == "" || want.Event != "") {
			continue // a comment, retry, or an id that moved
		}
		if e.Event != want.Event || !p.fits(want.ID, e.ID, false) || want.Data != nil && !p.fits(want.Data, e.Data, false) {
			p.t.Fatalf("the node streams %+v, the script %+v, where %v", e, want, p.vars)
		}
		return
	}
}

// fits holds a value against a pattern: the same, but that a $name that stands for nothing
// yet stands for what is there. With extra an object may have more members.
func (p *player) fits(pattern, got any, extra bool) bool {
	switch pattern := pattern.(type) {
	case string:
		if !strings.HasPrefix(pattern, "$") {
			break
		}
		if v, ok := p.vars[pattern]; ok {
			return reflect.DeepEqual(v, got)
		}
		p.vars[pattern] = got
		return true
	case map[string]any:
		object, ok := got.(map[string]any)
		if !ok || !extra && len(object) != len(pattern) {
			return false
		}
		for name, v := range pattern {
			if member, ok := object[name]; !ok || !p.fits(v, member, false) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(pattern, got)
}

// filled is what a client says: a $name stands for what it found, or for what this client makes up.
func (p *player) filled(v any) any {
	switch v := v.(type) {
	case string:
		if !strings.HasPrefix(v, "$") {
			return v
		}
		if _, ok := p.vars[v]; !ok {
			p.vars[v] = p.invented(v)
		}
		return p.vars[v]
	case map[string]any:
		out := map[string]any{}
		for name, member := range v {
			out[name] = p.filled(member)
		}
		return out
	case []any:
		out := slices.Clone(v)
		for i := range out {
			out[i] = p.filled(out[i])
		}
		return out
	}
	return v
}

func (p *player) invented(name string) any {
	ann := claims{"sub": "ann", "tidewire": may("*", "*")}
	switch {
	case strings.HasPrefix(name, "$id"):
		p.ids++
		return float64(p.ids)
	case name == "$producer":
		return uuid.NewString()
	case name == "$add":
		return float64(100)
	case name == "$token1": // it does not last
		ann["exp"] = time.Now().Add(2 * time.Second).Unix()
		return jwt(hs256, ann, accessKey)
	case name == "$token2":
		return jwt(hs256, ann, accessKey)
	case p.s.Values[name] != nil:
		return p.s.Values[name]
	}
	return strings.TrimPrefix(name, "$")
}
