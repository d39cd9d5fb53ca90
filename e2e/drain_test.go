package e2e_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"tidewire/e2e/client"
	"tidewire/e2e/harness"
)

// TestDrain ends a node with SIGTERM while it is written to and read from in
// every way: clients are told in order, the process ends well and in time, and
// all goes on after the restart without a gap.
func TestDrain(t *testing.T) {
	t.Parallel()
	rounds := 2
	if harness.Soak() {
		rounds = 10
	}
	const timeout = 10 * time.Second
	node := harness.Start(t, harness.Options{Args: []string{"--drain-timeout", timeout.String()}})
	l := startLoad(t, node, "drains", time.Duration(rounds)*30*time.Second+patience)
	for _, x := range []struct{ name, kind string }{{"ws-1", "ws"}, {"ws-2", "ws"}, {"sse-1", "sse"}, {"sse-2", "sse"}} {
		l.read(x.name, x.kind, node.Addr)
	}
	client.New(node.URL).CreateTopic(t, "silent", "")
	for round := range rounds {
		l.await(l.acked.Load(), 500)
		idle := newIdleClients(t, node)
		begin := time.Now()
		if err := node.Stop(); err != nil {
			t.Fatalf("SIGTERM: %v", err)
		}
		took := time.Since(begin)
		if code := node.ExitCode(); code != 0 || took > timeout {
			t.Errorf("SIGTERM ended with %d after %s, want 0 within %s", code, took, timeout)
		}
		idle.wait.Wait()
		t.Logf("drain %d: exit 0 after %s; a poll that waited got %s", round+1, took.Round(time.Millisecond), idle.poll)
		if err := node.Run(); err != nil {
			t.Fatal(err)
		}
	}
	l.await(l.acked.Load(), 500)
	l.finish()
	for _, x := range l.readers {
		// A reader that was between two connections when the node stopped hears nothing.
		if x.closings == 0 {
			t.Errorf("reader %s was never told that the node closes", x.name)
		}
		if x.cursors > 0 && x.codes[1012] == 0 { // a WebSocket
			t.Errorf("reader %s saw close codes %v, want 1012", x.name, x.codes)
		}
		for _, wait := range x.retryAfter {
			if d, err := time.ParseDuration(wait); err != nil || d <= 0 {
				t.Errorf("reader %s: closing with retry_after %q", x.name, wait)
			}
		}
	}
}

// idleClients are connected when the drain begins and have nothing under way:
// what they see of it is the same every time.
type idleClients struct {
	wait sync.WaitGroup
	poll string
}

func newIdleClients(t *testing.T, node *harness.Node) *idleClients {
	t.Helper()
	c := &idleClients{}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(func() {
		cancel()
		c.wait.Wait()
	})
	api := client.New(node.URL)
	place, err := postText(t, api, "silent", "moved", 201).Place()
	if err != nil {
		t.Fatal(err)
	}

	// A WebSocket whose subscription has moved: cursor, closing, 1012, in this order.
	w, err := client.DialWS(ctx, node.Addr, "")
	if err != nil {
		t.Fatal(err)
	}
	sub, err := w.Call(ctx, 1, map[string]any{"op": "subscribe", "id": 1, "topic": "silent", "from": "earliest"})
	if err != nil || sub.Op != "subscribed" {
		t.Fatalf("subscribe: %v %s", err, sub.Raw)
	}
	for {
		x, err := w.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if x.Op == "message" && x.Message.Offset == *place.Offset {
			break
		}
	}
	// An event stream that has seen everything, and a poll that waits.
	s, err := client.OpenSSE(ctx, node.URL+"/topics/silent/events?from=earliest", "")
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, m, err := s.NextMessage(); err != nil {
			t.Fatal(err)
		} else if m.Offset == *place.Offset {
			break
		}
	}
	polling := make(chan struct{})
	c.wait.Go(func() {
		close(polling)
		p, err := client.New(node.URL).Poll(ctx, "silent", "offset", strconv.FormatInt(*place.Offset+1, 10), "wait", "30s")
		switch {
		case err != nil:
			c.poll = "an end of the connection: " + err.Error()
			t.Errorf("a poll that waits gets %v, want an answer", err)
		case p.Status == 200 && len(p.Messages) == 0 && p.Cursor != "":
			c.poll = "an empty page with a cursor"
		case p.Status == 503 && p.Problem.Code == "draining":
			c.poll = "503 draining"
		default:
			c.poll = p.Body
			t.Errorf("a poll that waits gets %d %s", p.Status, p.Body)
		}
	})
	<-polling
	c.wait.Go(func() {
		defer w.Drop()
		var ops []string
		for {
			x, err := w.Next(ctx)
			if err != nil {
				if code := client.CloseCode(err); code != 1012 {
					t.Errorf("an idle WebSocket ends with %d (%v) after %v, want 1012", code, err, ops)
				}
				break
			}
			ops = append(ops, x.Op)
			if x.Op == "closing" {
				if d, err := time.ParseDuration(x.RetryIn); err != nil || d <= 0 || x.Reason == "" {
					t.Errorf("an idle WebSocket is told %s", x.Raw)
				}
			}
		}
		if n := len(ops); n < 2 || ops[n-1] != "closing" || ops[n-2] != "cursor" {
			t.Errorf("an idle WebSocket sees %v before 1012, want cursor and closing", ops)
		}
	})
	c.wait.Go(func() {
		defer s.Close()
		closing := false
		for {
			e, err := s.Next()
			if err != nil {
				break
			}
			if e.Name != "closing" {
				t.Errorf("an idle event stream sees %q %s", e.Name, e.Data)
			}
			closing = true
		}
		if !closing || s.LastID == "" {
			t.Errorf("an idle event stream ends without closing (%t) or without an id (%q)", closing, s.LastID)
		}
	})
	return c
}

// postText keeps one text record, or gets another status.
func postText(t testing.TB, api *client.API, topic, value string, status int, headers ...string) *client.Answer {
	t.Helper()
	ans := api.Must(t, status, "POST", "/topics/"+topic, "text/plain", value, headers...)
	return &ans
}
