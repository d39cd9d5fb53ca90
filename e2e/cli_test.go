package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"tidewire/e2e/client"
	"tidewire/e2e/harness"
)

// Exit codes of the command line.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitUnreachable = 3
	exitRefused     = 4
)

// tour runs commands against one node and judges their exit codes.
type tour struct {
	t    *testing.T
	node *harness.Node
}

// run runs a command and gives its standard output.
func (x tour) run(want int, stdin string, args ...string) string {
	x.t.Helper()
	var in io.Reader
	if stdin != "" {
		in = strings.NewReader(stdin)
	}
	stdout, stderr, code := x.node.CLI(within(x.t), in, args...)
	if code != want {
		x.t.Fatalf("tidewire %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), code, want, stdout, stderr)
	}
	if want != exitOK && stderr == "" && stdout == "" {
		x.t.Errorf("tidewire %s: fails without a word", strings.Join(args, " "))
	}
	return stdout
}

// says wants every text in an output.
func (x tour) says(output string, texts ...string) {
	x.t.Helper()
	for _, text := range texts {
		if !strings.Contains(output, text) {
			x.t.Errorf("%q does not say %q", output, text)
		}
	}
}

// TestCommandLine is the tour that the README gives, and the mistakes one
// makes on the way.
func TestCommandLine(t *testing.T) {
	t.Parallel()
	node := harness.Start(t, harness.Options{})
	x := tour{t, node}
	api := client.New(node.URL)

	x.says(x.run(exitOK, "", "version"), `"version":`, `"platform":`)
	x.run(exitOK, "", "healthcheck")
	x.says(x.run(exitOK, "", "nodes", "--output", "json"), `"state":"alive"`)

	// Topics.
	x.says(x.run(exitOK, "", "topic", "create", "orders", "--partitions", "4", "--retention-age", "24h"), `"name":"orders"`)
	x.run(exitOK, "", "topic", "create", "orders", "--partitions", "4") // the same again is no error
	x.run(exitRefused, "", "topic", "create", "orders", "--partitions", "5")
	x.run(exitUsage, "", "topic", "create", "or ders")
	x.run(exitUsage, "", "topic", "create")
	x.run(exitUsage, "", "topic", "create", "orders", "--partition", "4")
	x.run(exitUsage, "", "topic")
	x.run(exitUsage, "", "frobnicate")
	x.run(exitRefused, "", "topic", "describe", "none")
	x.says(x.run(exitOK, "", "topic", "list", "--output", "table"), "TOPIC", "orders")
	x.says(x.run(exitOK, "", "topic", "describe", "orders", "--output", "table"), "orders", "24h", "PARTITION")
	x.says(x.run(exitOK, "", "topic", "alter", "orders", "--retention-age", "48h", "--max-message-bytes", "64KiB"), `"max_message_bytes":65536`)

	// Publish from a file and from the standard input; read it back.
	file := filepath.Join(t.TempDir(), "orders.jsonl")
	var lines strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&lines, "{\"n\":%d,\"user\":\"user-%d\"}\n", i, i%7)
	}
	if err := os.WriteFile(file, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	x.says(x.run(exitOK, "", "publish", "orders", file, "--key-field", "user", "--output", "json"), `"sent":1000`, `"kept":1000`, `"refused":0`)
	x.says(x.run(exitOK, "hello\n{\"a\":1}\n", "publish", "orders", "--key", "ann", "--header", "source=shell", "--output", "json"), `"kept":2`)
	x.run(exitFailed, strings.Repeat("x", 70<<10)+"\nshort\n", "publish", "orders", "--key", "ann")
	x.run(exitRefused, "x\n", "publish", "none")
	x.run(exitUsage, "x\n", "publish", "orders", "--acks", "some")
	x.run(exitUsage, "", "publish", "orders", file+".missing")

	read := strings.Split(strings.TrimSpace(x.run(exitOK, "", "tail", "orders")), "\n")
	perUser := map[string]int{}
	for _, line := range read {
		m, err := client.ParseMessage([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		var value struct {
			N    int
			User string
		}
		if json.Unmarshal(m.Value, &value) != nil || value.User == "" {
			continue
		}
		if last, seen := perUser[value.User]; seen && last >= value.N {
			t.Errorf("%s: %d comes after %d", value.User, value.N, last)
		}
		perUser[value.User] = value.N
	}
	if len(read) != 1003 || len(perUser) != 7 {
		t.Errorf("tail prints %d records of %d users", len(read), len(perUser))
	}
	if ann := strings.TrimSpace(x.run(exitOK, "", "tail", "orders", "--key", "ann", "--output", "json")); strings.Count(ann, "\n") != 2 || !strings.Contains(ann, `"source":"shell"`) {
		t.Errorf("tail of one key prints %s", ann)
	}
	if few := x.run(exitOK, "", "tail", "orders", "-n", "5"); strings.Count(few, "\n") != 5 {
		t.Errorf("tail of 5 records prints %q", few)
	}
	x.run(exitRefused, "", "tail", "none")
	x.run(exitUsage, "", "tail", "orders", "--from", "yesterday")

	tailAcrossRestart(t, x, api)

	// Delete.
	x.run(exitOK, "", "topic", "create", "doomed")
	x.says(x.run(exitOK, "", "topic", "delete", "doomed", "--yes"), "doomed")
	x.run(exitRefused, "", "topic", "delete", "doomed", "--yes")

	// A stopped node is not reachable; its folder can be looked at.
	if err := node.Stop(); err != nil {
		t.Fatal(err)
	}
	x.run(exitUnreachable, "", "healthcheck")
	x.run(exitUnreachable, "", "topic", "list")
	x.run(exitOK, "", "log", "verify", "--data", node.Dir())
	x.run(exitFailed, "", "log", "verify", "--data", t.TempDir()+"/nothing")
	badSettings(t, x)
}

// tailAcrossRestart follows a topic through a kill and a stop of the node:
// nothing is left out, nothing printed twice.
func tailAcrossRestart(t *testing.T, x tour, api *client.API) {
	t.Helper()
	api.CreateTopic(t, "followed", `"partitions":2`)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, harness.Binary(t), "tail", "followed", "-f", "--from", "earliest")
	cmd.Env = append(os.Environ(), "TIDEWIRE_SERVER="+x.node.URL)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	seen := newLedger(false)
	expect := func(total int) {
		t.Helper()
		for seen.total < total {
			if !lines.Scan() {
				t.Fatalf("tail -f ended after %d of %d records: %v\n%s", seen.total, total, lines.Err(), stderr.String())
			}
			m, err := client.ParseMessage(lines.Bytes())
			if err == nil {
				err = seen.note(m)
			}
			if err != nil {
				t.Fatalf("tail -f: %v", err)
			}
		}
	}
	publish := func(n int) {
		t.Helper()
		var in strings.Builder
		for i := range n {
			fmt.Fprintf(&in, "{\"n\":%d}\n", i)
		}
		x.run(exitOK, in.String(), "publish", "followed")
	}
	publish(100)
	expect(100)
	for i, end := range []func(){x.node.Kill, func() {
		if err := x.node.Stop(); err != nil {
			t.Error(err)
		}
	}} {
		end()
		if err := x.node.Run(); err != nil {
			t.Fatal(err)
		}
		publish(100)
		expect(200 + 100*i)
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
		t.Errorf("tail -f prints after the end: %s", lines.Text())
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("tail -f, told to stop: %v\n%s", err, stderr.String())
	}
	t.Logf("tail -f: %d records through a kill and a stop, each once", seen.total)
}

// badSettings starts nodes that must not start, and say why.
func badSettings(t *testing.T, x tour) {
	t.Helper()
	dir := t.TempDir()
	config := filepath.Join(dir, "tidewire.yaml")
	if err := os.WriteFile(config, []byte("slow_consumer_timout: 3s\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args, env []string
		says      string
	}{
		{[]string{"--htp", "127.0.0.1:0"}, nil, "--http"},
		{[]string{"--http", "0.0.0.0:0"}, nil, "--insecure"},
		{[]string{"--http", "nonsense"}, nil, "http"},
		{[]string{"--config", config}, nil, "slow_consumer_timeout"},
		{nil, []string{"TIDEWIRE_DRAIN_TIMOUT=3s"}, "TIDEWIRE_DRAIN_TIMEOUT"},
		{[]string{"--drain-timeout", "soon"}, nil, "drain"},
		{[]string{"--join", "127.0.0.1"}, nil, "join"},
		{[]string{"--roles", "router"}, nil, "roles"},
		{[]string{"--auth-issuer", "me"}, nil, "auth"},
	} {
		args := append([]string{"serve", "--data", filepath.Join(dir, "data"), "--rpc", "127.0.0.1:0", "--raft", "127.0.0.1:0", "--gossip", "127.0.0.1:0"}, c.args...)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		cmd := exec.CommandContext(ctx, harness.Binary(t), args...)
		cmd.Env = append(os.Environ(), c.env...)
		out, err := cmd.CombinedOutput()
		cancel()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != exitUsage || !strings.Contains(string(out), c.says) {
			t.Errorf("serve %v %v: %v, want exit code 2 and %q\n%s", c.args, c.env, err, c.says, out)
		}
	}
	// The same folder serves one node at a time.
	if err := x.node.Run(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	second := exec.CommandContext(ctx, harness.Binary(t), "serve", "--data", x.node.Dir(), "--http", "127.0.0.1:0", "--rpc", "127.0.0.1:0", "--raft", "127.0.0.1:0", "--gossip", "127.0.0.1:0")
	out, err := second.CombinedOutput()
	if err == nil || ctx.Err() != nil || !strings.Contains(string(out), x.node.Dir()) {
		t.Errorf("a second node in the same folder: %v\n%s", err, out)
	}
	x.run(exitOK, "", "healthcheck")
}
