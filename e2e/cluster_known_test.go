package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tidewire/e2e/client"
	"tidewire/e2e/harness"
)

// user is a client of one node, over HTTP and over a WebSocket.
type user struct {
	*client.API
	node string
	ws   *client.WS
	id   int64
}

func newUser(t *testing.T, m *harness.Member) *user {
	t.Helper()
	ws, err := client.DialWS(t.Context(), strings.TrimPrefix(m.URL, "http://"), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ws.Drop)
	return &user{API: client.New(m.URL), node: m.Name, ws: ws}
}

// over says one line over the WebSocket, and gives the code of a refusal; "": it was taken.
func (u *user) over(ctx context.Context, line string) (code string, err error) {
	u.id++
	f, err := u.ws.Call(ctx, u.id, fmt.Sprintf(`{"id":%d,%s}`, u.id, line))
	if err == nil && f.Op == "error" {
		code = f.Code
	}
	return code, err
}

// call calls over HTTP, and gives the code of a refusal.
func (u *user) call(ctx context.Context, method, path, kind, body string) (code string, err error) {
	ans, err := u.Do(ctx, method, path, kind, body)
	if err != nil || ans.Status < 300 {
		return "", err
	}
	p, err := ans.Problem()
	return p.Code, err
}

// lists looks for something in a list.
func (u *user) lists(ctx context.Context, path, what string) (code string, err error) {
	ans, err := u.Do(ctx, http.MethodGet, path, "", "")
	if err == nil && (ans.Status != http.StatusOK || !strings.Contains(ans.Body, what)) {
		code = "not in the list"
	}
	return code, err
}

// use is one way to use a topic or group.
type use struct {
	name string
	do   func(ctx context.Context, u *user, topic string) (code string, err error)
}

// The ways to use a topic that has just been made, a group, and a member of a group.
var (
	usesOfTopics = []use{
		{"publish", func(ctx context.Context, u *user, topic string) (string, error) {
			return u.call(ctx, http.MethodPost, "/topics/"+topic, "application/json", `1`)
		}},
		{"publish over WebSocket", func(ctx context.Context, u *user, topic string) (string, error) {
			return u.over(ctx, `"op":"publish","topic":"`+topic+`","value":1`)
		}},
		{"poll", func(ctx context.Context, u *user, topic string) (string, error) {
			return u.call(ctx, http.MethodGet, "/topics/"+topic, "", "")
		}},
		{"subscribe", func(ctx context.Context, u *user, topic string) (string, error) {
			return u.over(ctx, `"op":"subscribe","topic":"`+topic+`"`)
		}},
		{"subscription", func(ctx context.Context, u *user, topic string) (string, error) {
			return u.call(ctx, http.MethodPost, "/topics/subscribe", "application/json", `{"topic":"`+topic+`"}`)
		}},
		{"metadata", func(ctx context.Context, u *user, topic string) (string, error) {
			return u.over(ctx, `"op":"metadata","topic":"`+topic+`"`)
		}},
		{"description", func(ctx context.Context, u *user, topic string) (string, error) {
			return u.call(ctx, http.MethodGet, "/topics/"+topic+"/metadata", "", "")
		}},
		{"list", func(ctx context.Context, u *user, topic string) (string, error) {
			return u.lists(ctx, "/topics/", `"name":"`+topic+`"`)
		}},
		{"register", func(ctx context.Context, u *user, topic string) (string, error) {
			return u.call(ctx, http.MethodPost, "/groups/"+topic+"/register", "application/json", `{"group":"`+u.node+`"}`)
		}},
	}
	usesOfGroups = []use{
		{"join", func(ctx context.Context, u *user, topic string) (string, error) {
			return u.call(ctx, http.MethodPost, "/groups/"+topic+"/node", "application/json", `{"group":"g","member":"`+u.node+`"}`)
		}},
		{"join over WebSocket", func(ctx context.Context, u *user, topic string) (string, error) {
			return u.over(ctx, `"op":"join","topic":"`+topic+`","group":"g"`)
		}},
		{"list of groups", func(ctx context.Context, u *user, topic string) (string, error) {
			return u.lists(ctx, "/groups/"+topic+"/", `"group":"g"`)
		}},
		{"status of a record", func(ctx context.Context, u *user, topic string) (string, error) {
			return u.lists(ctx, "/topics/"+topic+"/0/0/status", `"group":"g"`)
		}},
		{"description of the group", func(ctx context.Context, u *user, topic string) (string, error) {
			return u.call(ctx, http.MethodGet, "/groups/"+topic+"/g", "", "")
		}},
	}
	// Nobody replies, and the machine may be busy.
	usesOfMembers = []use{
		{"request", func(ctx context.Context, u *user, topic string) (string, error) {
			return u.call(ctx, http.MethodPost, "/requests/"+topic+"?timeout=50ms", "application/json", `1`)
		}},
		{"request over WebSocket", func(ctx context.Context, u *user, topic string) (string, error) {
			return u.over(ctx, `"op":"request","topic":"`+topic+`","value":1,"timeout":"5s"`)
		}},
	}
)

// TestWhatOneNodeAnsweredIsThereAtAllOthers makes topics, groups and members through each
// node, and uses them at once through the others.
func TestWhatOneNodeAnsweredIsThereAtAllOthers(t *testing.T) {
	t.Parallel()
	const rounds = 40
	c := harness.StartCluster(t, harness.ClusterOptions{})
	var users []*user
	for _, m := range c.Members {
		users = append(users, newUser(t, m))
	}
	uses, slowest := 0, map[string]time.Duration{}
	each := func(maker *user, of use, topic string) {
		t.Helper()
		var mu sync.Mutex
		var using sync.WaitGroup
		for _, u := range users {
			if u == maker {
				continue
			}
			using.Go(func() {
				began := time.Now()
				code, err := of.do(t.Context(), u, topic)
				took := time.Since(began)
				mu.Lock()
				defer mu.Unlock()
				uses++
				slowest[of.name] = max(slowest[of.name], took)
				if err != nil || code != "" && code != "reply-timeout" && code != "unknown-outcome" {
					t.Errorf("made through %s, %s through %s: %s %v", maker.node, of.name, u.node, code, err)
				}
			})
		}
		using.Wait()
	}
	taken := func(maker *user, method, path, body string) {
		t.Helper()
		if code, err := maker.call(t.Context(), method, path, "application/json", body); err != nil || code != "" {
			t.Fatalf("through %s, %s: %s %v", maker.node, path, code, err)
		}
	}
	for i := range rounds {
		for _, maker := range users {
			topic := fmt.Sprintf("made-%s-%d", maker.node, i)
			taken(maker, http.MethodPost, "/topics/", `{"name":"`+topic+`","replicas":3}`)
			each(maker, usesOfTopics[i%len(usesOfTopics)], topic)
			taken(maker, http.MethodPost, "/topics/"+topic, `1`)
			taken(maker, http.MethodPost, "/groups/"+topic+"/register", `{"group":"g","mode":"shared"}`)
			each(maker, usesOfGroups[i%len(usesOfGroups)], topic)
			other := topic + "-served" // nobody of the others has joined
			taken(maker, http.MethodPost, "/topics/", `{"name":"`+other+`"}`)
			taken(maker, http.MethodPost, "/groups/"+other+"/register", `{"group":"g","mode":"shared"}`)
			taken(maker, http.MethodPost, "/groups/"+other+"/node", `{"group":"g","member":"m"}`)
			each(maker, usesOfMembers[i%len(usesOfMembers)], other)
		}
	}
	var names []string
	for name := range slowest {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		t.Logf("%s: at most %s", name, slowest[name].Round(time.Millisecond/10))
	}
	t.Logf("%d uses through another node than the one that made it", uses)
}
