package e2e_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"tidewire/e2e/harness"
)

// benchProcess is a benchmark of a server of its own.
type benchProcess struct {
	cmd *exec.Cmd
	dir string
	err bytes.Buffer
}

// startBench runs a benchmark until its server has got records.
func startBench(t *testing.T, args ...string) *benchProcess {
	t.Helper()
	b := &benchProcess{dir: t.TempDir()}
	b.cmd = exec.Command(harness.Binary(t), append([]string{"bench"}, append(args, "--spawn", "--dir", b.dir, "--duration", "1h", "--no-floors")...)...)
	b.cmd.Stderr = &b.err
	if err := b.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.cmd.Process.Kill() }) // where the test has failed before its end
	harness.Await(t, patience, "records at the benchmark's server", func() bool {
		partitions, err := filepath.Glob(filepath.Join(b.dir, "tidewire-bench-*", "data", "topics", "*", "*"))
		return err == nil && len(partitions) > 0
	})
	return b
}

// servers counts the processes that were started on a folder.
func (b *benchProcess) servers(t *testing.T) (n int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		line, _ := os.ReadFile(path) // it may have ended meanwhile
		if strings.HasPrefix(string(line), "tidewire\x00serve\x00") && strings.Contains(string(line), b.dir) {
			n++
		}
	}
	return n
}

// TestBenchInterrupted: Ctrl-C ends the benchmark and takes everything back.
func TestBenchInterrupted(t *testing.T) {
	t.Parallel()
	b := startBench(t, "fanout", "--subscribers", "50")
	if n := b.servers(t); n != 1 {
		t.Errorf("%d servers run, want 1", n)
	}
	if err := b.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := b.cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitFailed || !strings.Contains(b.err.String(), "interrupted") {
		t.Errorf("ended with %v: %s", err, b.err.String())
	}
	if left, err := os.ReadDir(b.dir); err != nil || len(left) > 0 || b.servers(t) > 0 {
		t.Errorf("left: %v, %v, %d servers", left, err, b.servers(t))
	}
}

// TestBenchKilled: a benchmark that could not clean up has left no server.
func TestBenchKilled(t *testing.T) {
	t.Parallel()
	b := startBench(t, "publish", "--publishers", "2")
	if err := b.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = b.cmd.Wait() // killed
	harness.Await(t, patience, "the end of its server", func() bool { return b.servers(t) == 0 })
}

// TestBenchFigures: a benchmark of a real node tells rates, floors and costs.
func TestBenchFigures(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd := exec.Command(harness.Binary(t), "bench", "fanout", "--spawn", "--dir", dir, "--subscribers", "100", "--in-flight", "8", "--runs", "2", "--duration", "300ms", "--warmup", "100ms")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s%s", err, out, errs.String())
	}
	kinds := map[string]int{}
	for line := range strings.Lines(string(out)) {
		var l struct {
			Kind   string  `json:"kind"`
			Rate   float64 `json:"per_second"`
			Lost   int64   `json:"lost"`
			Server *struct {
				CPU float64 `json:"cpu_us"`
			} `json:"server"`
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		kinds[l.Kind]++
		if l.Kind == "run" && (l.Rate <= 0 || l.Lost != 0 || l.Server == nil || l.Server.CPU <= 0) {
			t.Errorf("a run: %s", line)
		}
	}
	if kinds["floor"] < 3 || kinds["run"] != 2 || kinds["summary"] != 1 {
		t.Errorf("the output has %v: %s", kinds, out)
	}
}
