package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"tidewire/internal/run"
)

// startNode serves in this process on ports that the system picks, until stop is
// called. It returns the addresses of the listeners by name, once the node is ready.
func startNode(t *testing.T, data string, args ...string) (listening map[string]string, stop func() error) {
	t.Helper()
	said, stop := beginNode(t, data, args...)
	listening = map[string]string{}
	for line, ok := said(); ok; line, ok = said() {
		if strings.HasPrefix(line, "ready in ") {
			return listening, stop
		}
		what, address, ok := strings.Cut(strings.TrimPrefix(line, "listening "), "=")
		if !ok {
			t.Errorf("a line that no script can read: %q", line)
		}
		listening[what] = address
	}
	t.Fatalf("the node ended before it was ready: %v", stop())
	return nil, nil
}

// beginNode serves likewise, and waits for nothing. said gives the next line of its
// standard output; false: it has ended.
func beginNode(t *testing.T, data string, args ...string) (said func() (line string, ok bool), stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	var logs bytes.Buffer // read only after the node has stopped
	cmd := newServe(process{in: os.Stdin, out: in, err: &logs, journalBytes: 1 << 20})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(append([]string{"--data", data, "--http=127.0.0.1:0", "--rpc=127.0.0.1:0", "--raft=127.0.0.1:0", "--gossip=127.0.0.1:0", "--name=box"}, args...))
	ended := make(chan error, 1)
	go func() {
		err := cmd.ExecuteContext(ctx)
		in.CloseWithError(errors.Join(io.EOF, err))
		ended <- err
	}()
	stop = func() error {
		cancel()
		go func() { _, _ = io.Copy(io.Discard, out) }()
		err := <-ended
		if err != nil || t.Failed() {
			t.Logf("the node logged:\n%s", logs.String())
		}
		return err
	}
	lines := bufio.NewScanner(out)
	return func() (string, bool) { ok := lines.Scan(); return lines.Text(), ok }, stop
}

// cli runs a command against a node and returns its output and exit code.
func cli(t *testing.T, server string, args ...string) (string, int) {
	t.Helper()
	var out, errs bytes.Buffer
	code := execute(args, process{in: os.Stdin, out: &out, err: &errs, environ: []string{"TIDEWIRE_SERVER=http://" + server}})
	if errs.Len() > 0 {
		t.Logf("%v: %s", args, errs.String())
	}
	return out.String(), code
}

// diskUsed is what the only node says of its disk.
func diskUsed(t *testing.T, server string) int64 {
	t.Helper()
	resp, err := http.Get("http://" + server + "/nodes/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var answer struct {
		Nodes []struct{ Disk struct{ Used int64 } }
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || len(answer.Nodes) != 1 {
		t.Fatalf("%+v %v", answer, err)
	}
	return answer.Nodes[0].Disk.Used
}

func TestANodeKeepsRecordsAcrossAnOrderlyRestart(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	data := filepath.Join(t.TempDir(), "data")
	file := filepath.Join(t.TempDir(), "lines")
	if err := os.WriteFile(file, []byte("{\"k\":\"a\",\"n\":1}\n{\"k\":\"b\",\"n\":2}\n{\"k\":\"a\",\"n\":3}\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	listening, stop := startNode(t, data)
	for _, what := range []string{"http", "rpc", "raft", "gossip"} {
		if a := listening[what]; !strings.HasPrefix(a, "127.0.0.1:") || strings.HasSuffix(a, ":0") {
			t.Errorf("%s listens on %q", what, a)
		}
	}
	server := listening["http"]
	for _, args := range [][]string{{"healthcheck"}, {"topic", "create", "t", "--partitions", "3"}, {"publish", "t", file, "--key-field", "k"}} {
		if out, code := cli(t, server, args...); code != exitOK {
			t.Errorf("%v: exit code %d: %s", args, code, out)
		}
	}
	before := sorted(cli(t, server, "tail", "t"))
	if strings.Count(before, "\n") != 3 {
		t.Errorf("tail printed %q", before)
	}
	nodes, _ := cli(t, server, "nodes")
	for what, address := range listening {
		if !strings.Contains(nodes, `"`+what+`":"`+address+`"`) {
			t.Errorf("the node's description lacks %s %s: %s", what, address, nodes)
		}
	}
	if used := diskUsed(t, server); used < 1<<20 {
		t.Errorf("a node whose journal has files of %d bytes says that it uses %d", 1<<20, used)
	}
	if err := stop(); err != nil {
		t.Fatalf("an orderly stop failed: %v", err)
	}
	if _, code := cli(t, server, "healthcheck"); code != exitUnreachable {
		t.Errorf("a stopped node answers: exit code %d", code)
	}

	listening, stop = startNode(t, data)
	if after := sorted(cli(t, listening["http"], "tail", "t")); after != before {
		t.Errorf("after a restart:\n%sbefore:\n%s", after, before)
	}
	if again, _ := cli(t, listening["http"], "nodes"); !sameID(again, nodes) {
		t.Errorf("the node is another after a restart: %s, was %s", again, nodes)
	}
	if out, code := cli(t, "", "log", "verify", "--data", data); code != exitOK || !strings.Contains(out, "a node is running") || !strings.Contains(out, `"state":"in-use"`) {
		t.Errorf("beside a running node: exit code %d, %s", code, out)
	}
	if err := stop(); err != nil {
		t.Fatalf("an orderly stop failed: %v", err)
	}
	verifyFinds(t, data)
}

// verifyFinds holds that log verify passes a good folder and names what is
// wrong with a bad one.
func verifyFinds(t *testing.T, data string) {
	t.Helper()
	out, code := cli(t, "", "log", "verify", "--data", data)
	if code != exitOK || !strings.Contains(out, `"faults":0`) || !strings.Contains(out, `"records":3`) || !strings.Contains(out, `"state":"right"`) {
		t.Errorf("a good folder: exit code %d, %s", code, out)
	}
	segments, err := filepath.Glob(filepath.Join(data, "topics", "*", "*", "*.log"))
	if err != nil || len(segments) == 0 {
		t.Fatalf("no segment in %s: %v", data, err)
	}
	good, err := os.ReadFile(segments[0])
	if err != nil {
		t.Fatal(err)
	}
	bad := bytes.Clone(good)
	bad[len(bad)-1] ^= 1
	if err := os.WriteFile(segments[0], bad, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, code := cli(t, "", "log", "verify", "--data", data); code != exitFailed || !strings.Contains(out, segments[0]) || !strings.Contains(out, `"damage":true,"topic":"t","topic_id":"`) {
		t.Errorf("a flipped bit: exit code %d, %s", code, out)
	}
	if out, code := cli(t, "", "log", "verify", "--data", data, "--output", "table"); code != exitFailed || !strings.Contains(out, "DAMAGE: "+segments[0]+", byte ") ||
		!strings.Contains(out, "(partition t/") || !strings.Contains(out, "\nt/") || !strings.Contains(out, "; 1 fault\n") {
		t.Errorf("a flipped bit: exit code %d, %s", code, out)
	}
	if err := os.WriteFile(segments[0], good, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(data, "raft"), filepath.Join(data, "away")); err != nil {
		t.Fatal(err)
	}
	if out, code := cli(t, "", "log", "verify", "--data", data); code != exitFailed || !strings.Contains(out, "the folder is missing, but this node has acted on entry") {
		t.Errorf("without the coordinator's store: exit code %d, %s", code, out)
	}
	if _, code := cli(t, "", "log", "verify", "--data", filepath.Join(data, "nothing")); code != exitFailed {
		t.Errorf("no folder: exit code %d", code)
	}
}

// sorted puts lines in an order: between partitions there is none.
func sorted(out string, _ int) string {
	lines := strings.SplitAfter(out, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "")
}

func sameID(a, b string) bool {
	id := func(s string) string { _, rest, _ := strings.Cut(s, `"id":"`); return rest[:36] }
	return id(a) == id(b)
}

func TestAFolderInUseOrAPortInUseEndsTheStart(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	listening, stop := startNode(t, data)
	end := func(want string, args ...string) {
		t.Helper()
		var errs bytes.Buffer
		code := execute(args, process{in: os.Stdin, out: io.Discard, err: &errs, journalBytes: 1 << 20})
		if code != exitFailed || !strings.Contains(errs.String(), "tidewire: "+want) {
			t.Errorf("%s: exit code %d, %s", want, code, errs.String())
		}
	}
	end("coordinator's store: ", "serve", "--data", data, "--http=127.0.0.1:0")
	for step, flag := range map[string]string{"http listener": "http", "coordinator": "raft", "gossip": "gossip", "rpc": "rpc"} {
		args := []string{"serve", "--data", filepath.Join(t.TempDir(), "other"), "--http=127.0.0.1:0", "--rpc=127.0.0.1:0", "--raft=127.0.0.1:0", "--gossip=127.0.0.1:0"}
		end(fmt.Sprintf("%s: %s is taken: is another node running? Stop it, or give this one another address with --%s", step, listening[flag], flag),
			append(args, "--"+flag, listening[flag])...)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestADamagedCoordinatorStoreLeavesTheFolderAsItIs(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	listening, stop := startNode(t, data)
	if out, code := cli(t, listening["http"], "topic", "create", "t"); code != exitOK {
		t.Fatal(out)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	store := filepath.Join(data, "raft", "raft.db")
	if err := os.Truncate(store, 5000); err != nil {
		t.Fatal(err)
	}
	before := image(t, data)
	var errs bytes.Buffer
	args := []string{"serve", "--data", data, "--http=127.0.0.1:0", "--rpc=127.0.0.1:0", "--raft=127.0.0.1:0", "--gossip=127.0.0.1:0"}
	if code := execute(args, process{in: os.Stdin, out: io.Discard, err: &errs, journalBytes: 1 << 20}); code != exitFailed || !strings.Contains(errs.String(), store) || !strings.Contains(errs.String(), "log verify --data "+data) {
		t.Errorf("exit code %d, %s", code, errs.String())
	}
	if after := image(t, data); !maps.Equal(before, after) {
		t.Error("the refused start changed the folder")
	}
}

// image is a folder's files, each with its content and its time.
func image(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		files[path] = info.ModTime().String() + string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestAFailedDiskMakesTheNextStartWait(t *testing.T) {
	data := t.TempDir()
	n := &node{log: slog.New(slog.DiscardHandler)}
	b := run.Backoff{Dir: data, Logger: n.log}
	marker := filepath.Join(data, "last-storage-failure")

	failed := errors.Join(&run.StepError{Step: "broker", Err: errors.New("lost its log")}, &run.StepError{Step: "storage", Err: &diskFailure{errors.New("fsync: EIO")}})
	if err := n.settle(b, failed); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(marker)
	if err != nil || !strings.Contains(string(text), "fsync: EIO") {
		t.Errorf("marker %q, %v", text, err)
	}
	if err := n.settle(b, &run.StepError{Step: "gossip", Err: errors.New("port taken")}); err != nil {
		t.Fatal(err)
	}
	if same, err := os.ReadFile(marker); err != nil || string(same) != string(text) {
		t.Errorf("a failure that is not the disk's changed the marker: %q, %v", same, err)
	}
	if err := n.settle(b, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(marker); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an orderly stop leaves the marker: %v", err)
	}
}

// What was written and not synced is gone with a disk that failed as with the machine: the
// coordinator hears of another boot, and of a further one with each failure.
func TestAFailedDiskIsAnotherBoot(t *testing.T) {
	b := run.Backoff{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)}
	if bootID("") == "" {
		t.Fatal("this machine's life has no name")
	}
	boots := []string{bootID(b.Mark())}
	if boots[0] != bootID("") {
		t.Errorf("without a failure it is %q, not %q", boots[0], bootID(""))
	}
	for n := range 2 {
		if err := b.Failed(errors.New("fsync: EIO")); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(time.Duration(n) * time.Minute) // failures are further apart than a clock can tell
		if err := os.Chtimes(filepath.Join(b.Dir, "last-storage-failure"), at, at); err != nil {
			t.Fatal(err)
		}
		boots = append(boots, bootID(b.Mark()))
		if again := bootID(b.Mark()); again != boots[n+1] {
			t.Errorf("%q, and then %q", boots[n+1], again)
		}
	}
	if boots[0] == boots[1] || boots[1] == boots[2] || boots[0] == boots[2] {
		t.Errorf("failures cannot be told apart: %q", boots)
	}
}
