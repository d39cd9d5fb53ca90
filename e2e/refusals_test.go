package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"tidewire/e2e/client"
)

// TestRefusals is the list of what a node refuses, each on every transport that
// has it: whoever adds a transport sees here what it has to refuse.
func TestRefusals(t *testing.T) {
	t.Parallel()
	g := startGuarded(t, "--max-subscriptions", "16", "--max-connections-per-ip", "40", "--max-frame-bytes", "8192", "--max-connection-rate", "0")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	now, everything := time.Now(), map[string]any{"admin": true}
	reader := jwt(hs256, claims{"sub": "r", "tidewire": may("none", "orders")}, accessKey)
	writer := jwt(hs256, claims{"sub": "w", "tidewire": may("orders", "none")}, accessKey)
	used := func() string {
		var out struct{ Ticket string }
		if err := json.Unmarshal([]byte(g.api.Must(t, 201, "POST", "/tickets", "", "", "Authorization", "Bearer "+g.root).Body), &out); err != nil {
			t.Fatal(err)
		}
		s, err := g.stream(ctx, "/topics/orders/events?ticket="+out.Ticket, "")
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
		return "?ticket=" + out.Ticket
	}
	// Each asks for something and gives the code of the refusal: of a problem, of an
	// error, or of a close.
	overHTTP := func(method, query, body string, h http.Header) string {
		req, err := http.NewRequestWithContext(ctx, method, g.URL+"/topics/orders"+query, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = h
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		var p client.Problem
		if err := json.NewDecoder(res.Body).Decode(&p); err != nil || p.Status != res.StatusCode {
			return res.Status
		}
		return p.Code
	}
	overSSE := func(query string, h http.Header) string {
		req, err := http.NewRequestWithContext(ctx, "GET", g.URL+"/topics/orders/events"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header = h
		s, err := client.Stream(req)
		if err == nil {
			s.Close()
			return "a stream"
		}
		return refusal(t, err).Code
	}
	// An upgrade that is refused gives its problem's code; one that is not says lines
	// and gives the code of the last answer.
	overWS := func(query string, h http.Header, lines ...claims) string {
		w, err := client.UpgradeWS(ctx, g.Addr, query, h)
		if err != nil {
			return refusal(t, err).Code
		}
		defer w.Drop()
		code := "a connection"
		for i, line := range lines {
			line["id"] = i + 1
			f, err := w.Call(ctx, int64(i+1), line)
			if err != nil {
				return "closed " + http.StatusText(client.CloseCode(err))
			}
			if code = f.Code; code == "" {
				code = f.Op
			}
		}
		return code
	}
	bad := func(header string, c claims, key string) map[string]func() string {
		c["tidewire"] = everything
		token := jwt(header, c, key)
		return map[string]func() string{
			"http":                  func() string { return overHTTP("GET", "", "", bearer(token)) },
			"sse":                   func() string { return overSSE("", bearer(token)) },
			"websocket":             func() string { return overWS("", bearer(token)) },
			"websocket, by a hello": func() string { return overWS("", nil, claims{"op": "hello", "token": token}) },
		}
	}
	foreign := func() http.Header {
		h := bearer(g.root)
		h.Set("Origin", "https://evil.example")
		return h
	}
	long := strings.Repeat("x", 2<<20)
	for _, c := range []struct {
		name, want string
		over       map[string]func() string
	}{
		{"an expired token", "unauthorized", bad(hs256, claims{"exp": now.Add(-time.Second).Unix()}, accessKey)},
		{"a forged token", "unauthorized", bad(hs256, claims{}, "another key")},
		{"a token for another audience", "unauthorized", bad(hs256, claims{"aud": "others"}, accessKey)},
		{"a token of alg none", "unauthorized", bad(`{"alg":"none"}`, claims{}, "")},
		{"a token that is not yet valid", "unauthorized", bad(hs256, claims{"nbf": now.Add(time.Minute).Unix()}, accessKey)},
		{"a ticket used twice", "unauthorized", map[string]func() string{
			"http":      func() string { return overHTTP("GET", used(), "", http.Header{}) },
			"sse":       func() string { return overSSE(used(), http.Header{}) },
			"websocket": func() string { return overWS(used(), nil) },
		}},
		{"a foreign origin", "forbidden", map[string]func() string{
			"http":      func() string { return overHTTP("POST", "", "1", foreign()) },
			"sse":       func() string { return overSSE("", foreign()) },
			"websocket": func() string { return overWS("", foreign()) },
		}},
		{"a publish without the right", "forbidden", map[string]func() string{
			"http": func() string { return overHTTP("POST", "", "1", bearer(reader)) },
			"websocket": func() string {
				return overWS("", bearer(reader), claims{"op": "publish", "topic": "orders", "value": 1})
			},
		}},
		{"a subscribe without the right", "forbidden", map[string]func() string{
			"http":      func() string { return overHTTP("GET", "", "", bearer(writer)) },
			"sse":       func() string { return overSSE("", bearer(writer)) },
			"websocket": func() string { return overWS("", bearer(writer), claims{"op": "subscribe", "topic": "orders"}) },
		}},
		{"too much at once", "message-too-large", map[string]func() string{
			"http": func() string { return overHTTP("POST", "", long, bearer(writer)) },
		}},
		{"a body that would have to be unpacked", "unsupported-media-type", map[string]func() string{
			"http": func() string {
				h := bearer(writer)
				h.Set("Content-Encoding", "gzip")
				return overHTTP("POST", "", "\x1f\x8b", h)
			},
		}},
		{"the 17th subscription of 16", "limit", map[string]func() string{
			"websocket": func() string {
				var lines []claims
				for range 17 {
					lines = append(lines, claims{"op": "subscribe", "topic": "orders"})
				}
				if code := overWS("", bearer(reader), lines[:16]...); code != "subscribed" {
					return "the 16th: " + code
				}
				return overWS("", bearer(reader), lines...)
			},
		}},
	} {
		for transport, try := range c.over {
			if got := try(); got != c.want {
				t.Errorf("%s over %s: %s, want %s", c.name, transport, got, c.want)
			}
		}
	}

	// What the protocol below forbids closes the connection with a code.
	for name, c := range map[string]struct {
		frame []byte
		code  byte // of 10xx
	}{
		"a frame over the limit": {[]byte(textFrame(strings.Repeat("x", 8193))), 9},
		"a compressed frame":     {[]byte("\xc1\x84\x00\x00\x00\x00{}{}"), 2},
	} {
		head, code := rawFrame(t, g.Addr, writer, c.frame)
		if strings.Contains(strings.ToLower(head), "permessage-deflate") {
			t.Errorf("compression is taken up: %s", head)
		}
		if code != 1000+int(c.code) {
			t.Errorf("%s: closed with %d, want 10%02d", name, code, c.code)
		}
	}

	// One address has so many connections, streams of events among them.
	var streams []*client.SSE
	defer func() {
		for _, s := range streams {
			s.Close()
		}
	}()
	for len(streams) <= 41 {
		s, err := g.stream(ctx, "/topics/orders/events", reader)
		if err != nil {
			if code := refusal(t, err).Code; code != "limit" {
				t.Errorf("stream %d: %s, want limit", len(streams)+1, code)
			}
			break
		}
		streams = append(streams, s)
	}
	if n := len(streams); n < 35 || n > 40 { // those that were dropped above may not have left yet
		t.Errorf("%d streams from one address, of 40", n)
	}
	// What was refused was not kept.
	if page := g.api.Must(t, 200, "GET", "/topics/orders", "", "", "Authorization", "Bearer "+reader); !strings.Contains(page.Body, `"messages":[]`) {
		t.Errorf("%s", page.Body)
	}
}

// rawFrame upgrades by hand, with an offer of compression, sends a frame as it is,
// and gives the head of the answer and the code of the close.
func rawFrame(t *testing.T, addr, token string, frame []byte) (head string, code int) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	send(t, c, strings.TrimSuffix(upgrade, "\r\n")+"Authorization: Bearer "+token+"\r\nSec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n\r\n")
	r := bufio.NewReader(c)
	for !strings.HasSuffix(head, "\r\n\r\n") {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		head += line
	}
	if !strings.HasPrefix(head, "HTTP/1.1 101 ") {
		t.Fatal(head)
	}
	send(t, c, string(frame))
	for {
		var b [4]byte
		if _, err := io.ReadFull(r, b[:2]); err != nil {
			return head, -1
		}
		n := int(b[1])
		if n == 126 {
			if _, err := io.ReadFull(r, b[2:]); err != nil {
				return head, -1
			}
			n = int(b[2])<<8 | int(b[3])
		}
		payload := make([]byte, n)
		if _, err := io.ReadFull(r, payload); err != nil {
			return head, -1
		}
		if b[0]&0xf == 8 && n >= 2 {
			return head, int(payload[0])<<8 | int(payload[1])
		}
	}
}
