package main

import (
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// A node that waits for others says so, from the moment when its address is taken.
func TestANodeThatStartsSaysForWhomItWaits(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	said, stop := beginNode(t, filepath.Join(t.TempDir(), "data"), "--bootstrap-expect=3", "--join=127.0.0.1:1")
	line, _ := said()
	server, ok := strings.CutPrefix(line, "listening http=")
	if !ok {
		t.Fatalf("the first line is %q: %v", line, stop())
	}
	client := &http.Client{Timeout: time.Second} // less than anybody waits for
	defer client.CloseIdleConnections()
	get := func(path string) (int, http.Header, string) {
		t.Helper()
		resp, err := client.Get("http://" + server + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, resp.Header, string(b)
	}
	type problem struct {
		Code, Detail string
		Reasons      []string
	}
	ready := func() (p problem) {
		t.Helper()
		status, header, body := get("/readyz")
		if err := json.Unmarshal([]byte(body), &p); err != nil || status != 503 || p.Code != "draining" || len(p.Reasons) != 1 ||
			p.Reasons[0] != p.Detail || !strings.HasPrefix(p.Detail, "the node is starting: ") || header.Get("Retry-After") != "1" {
			t.Fatalf("/readyz is %d %v: %s, %v", status, header, body, err)
		}
		return p
	}
	ready() // whatever it is doing
	for line, ok := said(); !strings.HasPrefix(line, "listening gossip="); line, ok = said() {
		if !ok {
			t.Fatalf("it ended: %v", stop())
		}
	}
	const waits = "it waits to found a cluster with others: 1 of 3 coordinators are there, and sees no other coordinator"
	for deadline := time.Now().Add(20 * time.Second); !strings.Contains(ready().Detail, waits); {
		if time.Now().After(deadline) {
			t.Fatalf("it says %q", ready().Detail)
		}
	}
	if status, _, body := get("/healthz"); status != 200 || !strings.Contains(body, "alive") {
		t.Errorf("/healthz is %d: %s", status, body)
	}
	for _, path := range []string{"/", "/topics/", "/ws", "/metrics", "/no/such/place"} {
		if status, header, body := get(path); status != 503 || !strings.Contains(body, waits) || header.Get("Retry-After") != "1" {
			t.Errorf("%s is %d %v: %s", path, status, header, body)
		}
	}
	if out, code := cli(t, server, "healthcheck"); code != exitFailed || !strings.Contains(out, waits) {
		t.Errorf("healthcheck: exit code %d: %s", code, out)
	}
	if out, code := cli(t, server, "topic", "list"); code != exitRefused {
		t.Errorf("topic list: exit code %d: %s", code, out)
	}
	if err := stop(); err != nil {
		t.Errorf("the stop of a node that has not started: %v", err)
	}
}

// Of two that found a cluster of three each names the other.
func TestANodeThatStartsNamesWhomItSees(t *testing.T) {
	begin := func(name string, args ...string) (http, gossip string, stop func() error) {
		said, stop := beginNode(t, filepath.Join(t.TempDir(), name), slices.Concat([]string{"--bootstrap-expect=3", "--name=" + name}, args)...)
		for line, ok := said(); ok; line, ok = said() {
			if address, ok := strings.CutPrefix(line, "listening http="); ok {
				http = address
			}
			if address, ok := strings.CutPrefix(line, "listening gossip="); ok {
				return http, address, stop
			}
		}
		t.Fatalf("%s ended: %v", name, stop())
		return "", "", nil
	}
	_, gossip, stop := begin("one", "--join=127.0.0.1:1")
	server, _, stopTwo := begin("two", "--join="+gossip)
	const waits = "2 of 3 coordinators are there, and sees one at "
	for deadline := time.Now().Add(20 * time.Second); ; {
		out, code := cli(t, server, "healthcheck")
		if code == exitFailed && strings.Contains(out, waits+gossip) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("healthcheck: exit code %d: %s", code, out)
		}
	}
	for _, stop := range []func() error{stop, stopTwo} {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
}
