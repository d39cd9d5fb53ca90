package e2e_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tidewire/e2e/client"
	"tidewire/e2e/harness"
)

const accessKey = "a-secret-of-tests-longer-than-32-bytes"

// guarded is a node that asks for tokens.
type guarded struct {
	*harness.Node
	keyFile string
	root    string // a token with every right
	api     *client.API
}

func startGuarded(t *testing.T, args ...string) *guarded {
	t.Helper()
	g := &guarded{keyFile: filepath.Join(t.TempDir(), "key")}
	if err := os.WriteFile(g.keyFile, []byte(accessKey+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	g.Node = harness.Start(t, harness.Options{Args: append([]string{"--auth-key-file", g.keyFile, "--auth-audience", "tests", "--auth-issuer", "us"}, args...)})
	g.root = jwt(hs256, claims{"sub": "root", "tidewire": map[string]any{"admin": true}}, accessKey)
	g.api = client.New(g.URL)
	for _, topic := range []string{"orders", "news"} {
		g.api.Must(t, 201, "POST", "/topics/", jsonType, `{"name":"`+topic+`"}`, "Authorization", "Bearer "+g.root)
	}
	return g
}

type claims map[string]any

const hs256 = `{"alg":"HS256","typ":"JWT"}`

// jwt makes a token by hand. Claims that are not given are what the node wants.
func jwt(header string, c claims, key string) string {
	all := claims{"iss": "us", "aud": "tests", "exp": time.Now().Add(time.Hour).Unix()}
	for k, v := range c {
		if all[k] = v; v == nil {
			delete(all, k)
		}
	}
	b, err := json.Marshal(all)
	if err != nil {
		panic(err) // only what cannot be JSON
	}
	text := base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + base64.RawURLEncoding.EncodeToString(b)
	if key == "" {
		return text + "."
	}
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(text))
	return text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

func bearer(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }

func may(publish, subscribe string) map[string]any {
	return map[string]any{"publish": []string{publish}, "subscribe": []string{subscribe}}
}

// refusals tries one credential on every transport and gives what each said.
func (g *guarded) refusals(t *testing.T, token string) map[string]client.Problem {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out := map[string]client.Problem{}
	for name, call := range map[string][2]string{"publish": {"POST", "/topics/orders"}, "poll": {"GET", "/topics/orders"}, "long poll": {"GET", "/topics/orders?offset=latest&wait=30s"}, "topics": {"GET", "/topics/"}, "ticket": {"POST", "/tickets"}, "metrics": {"GET", "/metrics"}} {
		body := ""
		if name == "publish" {
			body = "1"
		}
		ans, err := g.api.Do(ctx, call[0], call[1], "", body, "Authorization", "Bearer "+token)
		if err != nil {
			t.Fatal(err)
		}
		p, err := ans.Problem()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if ans.Status == 401 && !strings.HasPrefix(ans.Header.Get("WWW-Authenticate"), "Bearer") {
			t.Errorf("%s: WWW-Authenticate %q", name, ans.Header.Get("WWW-Authenticate"))
		}
		out[name] = p
	}
	_, err := g.stream(ctx, "/topics/orders/events", token)
	out["sse"] = refusal(t, err)
	_, err = client.UpgradeWS(ctx, g.Addr, "", bearer(token))
	out["websocket by header"] = refusal(t, err)
	_, err = client.UpgradeWS(ctx, g.Addr, "", nil, "bearer."+token)
	out["websocket by subprotocol"] = refusal(t, err)

	w, err := client.UpgradeWS(ctx, g.Addr, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Drop()
	f, err := w.Call(ctx, 1, claims{"op": "hello", "id": 1, "token": token})
	if err != nil {
		t.Fatal(err)
	}
	out["websocket by hello"] = client.Problem{Status: 401, Code: f.Code, Reason: f.Reason, Detail: f.Detail}
	_, err = w.Next(ctx)
	want := 4501
	if f.Reason == "expired" {
		want = 4003
	}
	if code := client.CloseCode(err); code != want {
		t.Errorf("hello refused for %q: closed with %d, want %d", f.Reason, code, want)
	}
	return out
}

func (g *guarded) stream(ctx context.Context, path, token string) (*client.SSE, error) {
	req, err := http.NewRequestWithContext(ctx, "GET", g.URL+path, nil)
	if err != nil {
		return nil, err
	}
	if token != "" {
		req.Header = bearer(token)
	}
	return client.Stream(req)
}

func refusal(t *testing.T, err error) client.Problem {
	t.Helper()
	var r *client.Refusal
	if !errors.As(err, &r) {
		t.Fatalf("not refused: %v", err)
	}
	if r.Problem.Status != r.Status {
		t.Errorf("status %d with %s", r.Status, r.Body)
	}
	return r.Problem
}

// TestTokensThatAreRefused shows each bad token to every transport.
func TestTokensThatAreRefused(t *testing.T) {
	t.Parallel()
	g := startGuarded(t)
	everything := map[string]any{"admin": true}
	now := time.Now()
	for name, c := range map[string]struct{ token, reason string }{
		"expired":        {jwt(hs256, claims{"exp": now.Add(-time.Second).Unix(), "tidewire": everything}, accessKey), "expired"},
		"forged":         {jwt(hs256, claims{"tidewire": everything}, "another key"), "signature"},
		"other audience": {jwt(hs256, claims{"aud": []string{"others"}, "tidewire": everything}, accessKey), "audience"},
		"no audience":    {jwt(hs256, claims{"aud": nil, "tidewire": everything}, accessKey), "audience"},
		"other issuer":   {jwt(hs256, claims{"iss": "them", "tidewire": everything}, accessKey), "issuer"},
		"alg none":       {jwt(`{"alg":"none"}`, claims{"tidewire": everything}, ""), "algorithm"},
		"alg HS384":      {jwt(`{"alg":"HS384"}`, claims{"tidewire": everything}, accessKey), "algorithm"},
		"not yet valid":  {jwt(hs256, claims{"nbf": now.Add(time.Minute).Unix(), "tidewire": everything}, accessKey), "not-yet-valid"},
		"of the future":  {jwt(hs256, claims{"iat": now.Add(time.Minute).Unix(), "tidewire": everything}, accessKey), "not-yet-valid"},
		"without end":    {jwt(hs256, claims{"exp": nil, "tidewire": everything}, accessKey), "claims"},
		"no JWT":         {"hush-hush-hush", "malformed"},
	} {
		for transport, p := range g.refusals(t, c.token) {
			if p.Status != 401 || p.Code != "unauthorized" || p.Reason != c.reason || p.Detail == "" {
				t.Errorf("%s, %s: %+v, want reason %q", name, transport, p, c.reason)
			}
		}
	}
	if strings.Contains(g.Log(), "hush-hush") || strings.Contains(g.Log(), "eyJ") {
		t.Error("a token is in the log")
	}
	// Nobody at all.
	for _, path := range []string{"/topics/", "/topics/orders", "/topics/orders/events", "/topics/orders/metadata", "/nodes/", "/connections/", "/metrics"} {
		ans := g.api.Must(t, 401, "GET", path, "", "")
		if p, err := ans.Problem(); err != nil || p.Reason != "missing" {
			t.Errorf("%s: %v %v", path, p, err)
		}
	}
	for _, path := range []string{"/healthz", "/readyz", "/openapi.json", "/asyncapi.json", "/problems/unauthorized", "/"} {
		g.api.Must(t, 200, "GET", path, "", "")
	}
}

func TestRightsThatAreMissing(t *testing.T) {
	t.Parallel()
	g := startGuarded(t, "--max-subscriptions", "2", "--max-frame-bytes", "8192")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	writer := jwt(hs256, claims{"sub": "w", "tidewire": may("orders", "none")}, accessKey)
	reader := jwt(hs256, claims{"sub": "r", "tidewire": may("none", "or*")}, accessKey)
	check := func(name string, p client.Problem, right string) {
		t.Helper()
		if p.Status != 403 || p.Code != "forbidden" || p.Right != right || !strings.Contains(p.Detail, right) {
			t.Errorf("%s: %+v, want the right %q named", name, p, right)
		}
	}
	call := func(method, path, contentType, body, token string) client.Problem {
		t.Helper()
		ans, err := g.api.Do(ctx, method, path, contentType, body, "Authorization", "Bearer "+token)
		if err != nil {
			t.Fatal(err)
		}
		p, err := ans.Problem()
		if err != nil {
			t.Errorf("%s %s: %v", method, path, err)
		}
		return p
	}
	check("publish", call("POST", "/topics/orders", jsonType, "1", reader), "publish")
	check("publish lines", call("POST", "/topics/orders", "application/x-ndjson", "{\"value\":1}\n", reader), "publish")
	check("poll", call("GET", "/topics/orders", "", "", writer), "subscribe")
	check("subscribe", call("POST", "/topics/subscribe", jsonType, `{"topic":"orders"}`, writer), "subscribe")
	check("create", call("POST", "/topics/", jsonType, `{"name":"x"}`, writer), "admin")
	check("delete", call("DELETE", "/topics/orders", "", "", writer), "admin")
	check("metrics", call("GET", "/metrics", "", "", reader), "admin")
	_, err := g.stream(ctx, "/topics/orders/events", writer)
	check("sse", refusal(t, err), "subscribe")

	w, err := client.UpgradeWS(ctx, g.Addr, "", bearer(reader))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Drop()
	for id, c := range []struct {
		line  claims
		right string
	}{
		{claims{"op": "publish", "topic": "orders", "value": 1}, "publish"},
		{claims{"op": "subscribe", "topic": "news"}, "subscribe"},
		{claims{"op": "subscribe", "topic": "no-such-topic"}, "subscribe"},
	} {
		c.line["id"] = id + 1
		f, err := w.Call(ctx, int64(id+1), c.line)
		if err != nil || f.Op != "error" || f.Code != "forbidden" || !strings.Contains(string(f.Raw), `"right":"`+c.right+`"`) {
			t.Errorf("%v: %s %v", c.line, f.Raw, err)
		}
	}
	// And the limits of a connection.
	for id := int64(10); id < 13; id++ {
		f, err := w.Call(ctx, id, claims{"op": "subscribe", "id": id, "topic": "orders"})
		if want := map[bool]string{true: "", false: "limit"}[id < 12]; err != nil || f.Code != want {
			t.Errorf("subscription %d: %s %v", id, f.Raw, err)
		}
	}
	if err := w.Send(ctx, `{"op":"publish","topic":"orders","value":"`+strings.Repeat("x", 8192)+`"}`); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = w.Next(ctx)
	}
	if code := client.CloseCode(err); code != 1009 {
		t.Errorf("a frame too long: closed with %d", code)
	}
	// What was refused was not kept.
	if page := g.api.Must(t, 200, "GET", "/topics/orders", "", "", "Authorization", "Bearer "+reader); !strings.Contains(page.Body, `"messages":[]`) {
		t.Errorf("%s", page.Body)
	}
}

func TestTicketsAndOrigins(t *testing.T) {
	t.Parallel()
	g := startGuarded(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	reader := jwt(hs256, claims{"sub": "r", "tidewire": may("none", "orders")}, accessKey)
	ticket := func() string {
		var out struct {
			Ticket  string
			Expires time.Time
		}
		ans := g.api.Must(t, 201, "POST", "/tickets", "", "", "Authorization", "Bearer "+reader)
		if err := json.Unmarshal([]byte(ans.Body), &out); err != nil || out.Ticket == "" || time.Until(out.Expires) > 31*time.Second {
			t.Fatalf("%s %v", ans.Body, err)
		}
		return out.Ticket
	}
	one := ticket()
	s, err := g.stream(ctx, "/topics/orders/events?from=earliest&ticket="+one, "")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, err = g.stream(ctx, "/topics/orders/events?ticket="+one, "")
	if p := refusal(t, err); p.Code != "unauthorized" || p.Reason != "ticket" {
		t.Errorf("sse with a used ticket: %+v", p)
	}
	two := ticket()
	w, err := client.UpgradeWS(ctx, g.Addr, "?ticket="+two, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Drop()
	if f, err := w.Next(ctx); err != nil || f.Op != "welcome" {
		t.Errorf("%s %v", f.Raw, err)
	}
	_, err = client.UpgradeWS(ctx, g.Addr, "?ticket="+two, nil)
	if p := refusal(t, err); p.Reason != "ticket" {
		t.Errorf("websocket with a used ticket: %+v", p)
	}
	for _, path := range []string{"/topics/orders?ticket=" + ticket(), "/topics/?ticket=" + ticket()} {
		g.api.Must(t, 401, "GET", path, "", "")
	}
	if strings.Contains(g.Log(), one) {
		t.Error("a ticket is in the log")
	}

	evil := "https://evil.example"
	g.api.Must(t, 403, "POST", "/topics/orders", jsonType, "1", "Authorization", "Bearer "+g.root, "Origin", evil)
	req, _ := http.NewRequestWithContext(ctx, "GET", g.URL+"/topics/orders/events", nil)
	req.Header = bearer(reader)
	req.Header.Set("Origin", evil)
	_, err = client.Stream(req)
	if p := refusal(t, err); p.Code != "forbidden" {
		t.Errorf("sse: %+v", p)
	}
	_, err = client.UpgradeWS(ctx, g.Addr, "", req.Header)
	if p := refusal(t, err); p.Code != "forbidden" {
		t.Errorf("websocket: %+v", p)
	}
	// A browser sends the cookie along for the foreign page.
	ans := g.api.Must(t, 401, "GET", "/topics/", "", "", "Cookie", "tidewire_token="+reader, "Origin", evil)
	if p, err := ans.Problem(); err != nil || p.Reason != "missing" {
		t.Errorf("%v %v", p, err)
	}
	g.api.Must(t, 200, "GET", "/topics/", "", "", "Cookie", "tidewire_token="+reader)
}

// TestTheEndOfAToken has a token of a few seconds on every transport.
func TestTheEndOfAToken(t *testing.T) {
	t.Parallel()
	g := startGuarded(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	end := time.Now().Add(6 * time.Second).Truncate(time.Second)
	short := jwt(hs256, claims{"sub": "ann", "exp": end.Unix(), "tidewire": may("orders", "orders")}, accessKey)
	open := func() *client.WS {
		w, err := client.UpgradeWS(ctx, g.Addr, "", nil, "bearer."+short)
		if err != nil {
			t.Fatal(err)
		}
		if f, err := w.Next(ctx); err != nil || f.Op != "welcome" {
			t.Fatalf("%s %v", f.Raw, err)
		}
		if f, err := w.Call(ctx, 1, claims{"op": "subscribe", "id": 1, "topic": "orders"}); err != nil || f.Op != "subscribed" {
			t.Fatalf("%s %v", f.Raw, err)
		}
		return w
	}
	ends, lives := open(), open()
	defer ends.Drop()
	defer lives.Drop()
	s, err := g.stream(ctx, "/topics/orders/events", short)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	polled := make(chan string, 1)
	go func() {
		ans, err := g.api.Do(ctx, "GET", "/topics/orders?offset=latest&wait=30s", "", "", "Authorization", "Bearer "+short)
		polled <- fmt.Sprint(ans.Status, err, time.Now().After(end.Add(slack(2*time.Second))))
	}()
	lives.Send(ctx, claims{"op": "auth", "id": 2, "token": jwt(hs256, claims{"sub": "ann", "tidewire": may("orders", "orders")}, accessKey)})
	f, err := lives.Answer(ctx, 2)
	if err != nil || f.Op != "authorized" || !strings.Contains(string(f.Raw), `"expires":"`) {
		t.Fatalf("%s %v", f.Raw, err)
	}

	for err == nil {
		_, err = ends.Next(ctx)
	}
	if code, late := client.CloseCode(err), time.Since(end); code != 4003 || late < 0 || late > slack(time.Second) {
		t.Errorf("websocket: closed with %d, %s after the end", code, late)
	}
	e, err := s.Next()
	if err != nil || e.Name != "closing" || !strings.Contains(string(e.Data), "expired") || e.ID == "" {
		t.Errorf("sse: %+v %v", e, err)
	}
	if e, err := s.Next(); err == nil {
		t.Errorf("sse goes on: %+v", e)
	}
	if got := <-polled; got != "200 <nil> false" {
		t.Errorf("long poll: %s", got)
	}
	g.api.Must(t, 401, "POST", "/topics/orders", jsonType, "1", "Authorization", "Bearer "+short)
	if f, err := lives.Call(ctx, 3, claims{"op": "publish", "id": 3, "topic": "orders", "value": 1}); err != nil || f.Op != "published" {
		t.Errorf("the refreshed one: %s %v", f.Raw, err)
	}
	if f, err := lives.Next(ctx); err != nil || f.Op != "message" && f.Op != "cursor" {
		t.Errorf("the refreshed one: %s %v", f.Raw, err)
	}
	// Who never says who it is has 10 s.
	began := time.Now()
	silent, err := client.UpgradeWS(ctx, g.Addr, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Drop()
	_, err = silent.Next(ctx)
	if code, took := client.CloseCode(err), time.Since(began); code != 4501 || took < 9*time.Second || took > 10*time.Second+slack(2*time.Second) {
		t.Errorf("silence: closed with %d after %s", code, took)
	}
}

// TestConnectionsAreListedAndClosed goes by what an operator has: the list, and a
// call that closes one.
func TestConnectionsAreListedAndClosed(t *testing.T) {
	t.Parallel()
	g := startGuarded(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	as := func(sub string) string {
		return jwt(hs256, claims{"sub": sub, "tidewire": may("orders", "orders")}, accessKey)
	}
	w, err := client.UpgradeWS(ctx, g.Addr, "", bearer(as("ann")))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Drop()
	if f, err := w.Call(ctx, 1, claims{"op": "subscribe", "id": 1, "topic": "orders", "from": "earliest", "credit": 0}); err != nil || f.Op != "subscribed" {
		t.Fatalf("%s %v", f.Raw, err)
	}
	s, err := g.stream(ctx, "/topics/orders/events", as("bob"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	g.api.Must(t, 201, "POST", "/topics/orders", jsonType, "1", "Authorization", "Bearer "+as("ann"))
	list := func(query string) (all []map[string]any) {
		t.Helper()
		var out struct{ Connections []map[string]any }
		ans := g.api.Must(t, 200, "GET", "/connections/"+query, "", "", "Authorization", "Bearer "+g.root)
		if err := json.Unmarshal([]byte(ans.Body), &out); err != nil {
			t.Fatal(err)
		}
		return out.Connections
	}
	harness.Await(t, patience, "both are listed", func() bool { return len(list("")) == 2 })
	ann := list("?principal=ann")
	if len(ann) != 1 || ann[0]["transport"] != "websocket" || ann[0]["subscriptions"] != 1.0 || ann[0]["behind"] != 1.0 || ann[0]["principal"] != "ann" {
		t.Errorf("%v", ann)
	}
	for _, field := range []string{"connection", "node", "principal", "transport", "address", "since", "subscriptions", "in_rate", "out_rate", "behind"} {
		if _, ok := ann[0][field]; !ok {
			t.Errorf("no %q in %v", field, ann[0])
		}
	}
	if here := list("?node=" + ann[0]["node"].(string)); len(here) != 2 {
		t.Errorf("%v", here)
	}
	g.api.Must(t, 404, "GET", "/connections/?node=none", "", "", "Authorization", "Bearer "+g.root)
	for _, c := range list("") {
		g.api.Must(t, 204, "DELETE", "/connections/"+c["connection"].(string), "", "", "Authorization", "Bearer "+g.root)
	}
	for err == nil {
		_, err = w.Next(ctx)
	}
	if code := client.CloseCode(err); code != 1001 {
		t.Errorf("closed with %d", code)
	}
	var last client.Event
	for {
		e, err := s.Next()
		if err != nil {
			break
		}
		last = e
	}
	if last.Name != "closing" {
		t.Errorf("the stream ended with %+v", last)
	}
	harness.Await(t, patience, "none is left", func() bool { return len(list("")) == 0 })
}

// TestTheCommandLineShowsTokens signs one with the binary and uses it.
func TestTheCommandLineShowsTokens(t *testing.T) {
	t.Parallel()
	g := startGuarded(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	token, errs, code := g.CLI(ctx, nil, "token", "--auth-key-file", g.keyFile, "--issuer", "us", "--audience", "tests", "--sub", "ann", "--publish", "orders", "--subscribe", "*", "--lasts", "1m")
	if code != exitOK {
		t.Fatal(errs)
	}
	token = strings.TrimSpace(token)
	for _, c := range []struct {
		stdin string
		args  []string
		code  int
	}{
		{"1\n", []string{"publish", "orders", "--token", token}, exitOK},
		{"", []string{"tail", "orders", "--from", "earliest", "--token", token}, exitOK},
		{"", []string{"topic", "list", "--token", token}, exitOK},
		{"1\n", []string{"publish", "news", "--token", token}, exitRefused},
		{"", []string{"nodes", "--token", token}, exitRefused},
		{"", []string{"nodes", "--token", g.root}, exitOK},
		{"", []string{"nodes"}, exitRefused},
		{"", []string{"healthcheck"}, exitOK},
	} {
		out, errs, code := g.CLI(ctx, strings.NewReader(c.stdin), c.args...)
		if code != c.code {
			t.Errorf("%v: exit code %d, want %d\n%s%s", c.args[:2], code, c.code, out, errs)
		}
		if strings.Contains(out+errs, token) {
			t.Errorf("%v shows the token", c.args[:2])
		}
	}
}
