package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// TestEveryBenchmarkShowsItsToken runs each way of calling a node against one that
// takes nobody without a token, and that closes what shows none.
func TestEveryBenchmarkShowsItsToken(t *testing.T) {
	t.Setenv("GORACE", "atexit_sleep_ms=0")
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	dir := t.TempDir()
	key := filepath.Join(dir, "key")
	if err := os.WriteFile(key, []byte(strings.Repeat("k", 40)), 0o600); err != nil {
		t.Fatal(err)
	}
	token, code := cli(t, "", "token", "--auth-key-file", key, "--sub", "me", "--admin", "--output", "table")
	if token = strings.TrimSpace(token); code != exitOK || token == "" {
		t.Fatalf("exit code %d: %s", code, token)
	}
	listening, stop := startNode(t, filepath.Join(dir, "data"), "--auth-key-file", key)
	for _, args := range []string{
		"publish --publishers 2", "publish --transport http", "publish --transport ndjson --batch 3",
		"latency --rate 200", "fanout --subscribers 3 --transport sse",
	} {
		line := append(strings.Fields("bench "+args+" --runs 1 --duration 100ms --warmup 0s --no-floors"), "--token", token)
		if out, code := cli(t, listening["http"], line...); code != exitOK {
			t.Errorf("%s: exit code %d: %s", args, code, out)
		}
		if out, code := cli(t, listening["http"], line[:len(line)-2]...); code != exitRefused {
			t.Errorf("%s without a token: exit code %d: %s", args, code, out)
		}
	}
	for _, transport := range []string{"ws", "sse", "sse-h2c"} {
		out, code := cli(t, listening["http"], "bench", "connections", "--connections", "3", "--settle", "0s", "--transport", transport, "--server-pid", strconv.Itoa(os.Getpid()), "--token", token)
		if l := benchLines(t, out); code != exitOK || len(l) != 1 || l[0].Snapshots[0].Goroutines < 1 {
			t.Errorf("%s: exit code %d: %s", transport, code, out)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	for _, args := range []string{"--transport ws", "--transport sse"} {
		line := append(strings.Fields("bench restart --spawn --subscribers 3 --rate 50 --flow 200ms "+args), "--dir", dir, "--spawn-arg", "--auth-key-file="+key, "--token", token)
		if out, code := cli(t, "", line...); code != exitOK {
			t.Errorf("restart %s: exit code %d: %s", args, code, out)
		}
	}
}
