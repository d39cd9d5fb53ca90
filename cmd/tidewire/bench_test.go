package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

// benchLine is what a test looks at of a line of a benchmark.
type benchLine struct {
	Kind        string                      `json:"kind"`
	Bench       string                      `json:"bench"`
	Floor       string                      `json:"floor"`
	Load        map[string]any              `json:"load"`
	PerSecond   float64                     `json:"per_second"`
	Messages    int64                       `json:"messages"`
	Lost        int64                       `json:"lost"`
	Duplicates  int64                       `json:"duplicates"`
	Refused     int64                       `json:"refused"`
	Outstanding int64                       `json:"outstanding"`
	Best        bool                        `json:"best"`
	Latency     *struct{ P50, P99 float64 } `json:"latency_us"`
	Server      *struct {
		CPU float64 `json:"cpu_us"`
	} `json:"server"`
	Commits   float64 `json:"commits_per_second"`
	Entries   float64 `json:"raft_entries_per_second"`
	Groups    int     `json:"groups"`
	Processes []struct {
		PID int `json:"pid"`
	} `json:"processes"`
	Snapshots []struct {
		What       string `json:"what"`
		Files      int    `json:"files"`
		Goroutines int    `json:"goroutines"`
	} `json:"snapshots"`
}

func benchLines(t *testing.T, out string) (all []benchLine) {
	t.Helper()
	for line := range strings.Lines(out) {
		var l benchLine
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		all = append(all, l)
	}
	return all
}

func TestEveryBenchmarkRunsAgainstANode(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	listening, stop := startNode(t, filepath.Join(t.TempDir(), "data"))
	node := listening["http"]
	t.Run("forms", func(t *testing.T) { everyBenchmark(t, node) })
	if out, code := cli(t, node, "topic", "create", "mine", "--partitions", "2"); code != exitOK {
		t.Errorf("exit code %d: %s", code, out)
	}
	if out, code := cli(t, node, "bench", "fanout", "--topic", "mine", "--subscribers", "2", "--no-floors"); code != exitUsage {
		t.Errorf("a topic of two partitions: exit code %d: %s", code, out)
	}
	if out, code := cli(t, node, "bench", "publish", "--topic", "mine", "--runs", "1", "--duration", "100ms", "--warmup", "0s", "--no-floors"); code != exitOK {
		t.Errorf("a topic of two partitions: exit code %d: %s", code, out)
	}
	if topics, _ := cli(t, node, "topic", "list"); !strings.Contains(topics, `"mine"`) || strings.Contains(topics, "bench-") {
		t.Errorf("the topics are %s", topics)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// everyBenchmark runs them beside one another and returns when all have ended.
func everyBenchmark(t *testing.T, node string) {
	pid := strconv.Itoa(os.Getpid())
	for name, args := range map[string]string{
		"publish ws":        "publish --publishers 4 --keys 10 --partitions 2",
		"publish pipelined": "publish --publishers 1 --window 100",
		"publish http":      "publish --transport http --publishers 4",
		"publish ndjson":    "publish --transport ndjson --publishers 2 --batch 10",
		"publish rate":      "publish --publishers 2 --rate 200",
		"latency ws":        "latency --rate 200",
		"latency sse":       "latency --rate 200 --transport sse",
		"requests":          "requests --requesters 3 --window 2 --responders 2 --partitions 2",
		"requests keys":     "requests --requesters 2 --responders 2 --mode exclusive --keys 5",
		"fanout ws":         "fanout --subscribers 20 --in-flight 4",
		"fanout sse":        "fanout --subscribers 20 --transport sse",
		"fanout rate":       "fanout --subscribers 20 --rate 50",
		"fanout beside":     "fanout --subscribers 10 --rate 50 --stalled 1 --slow 2",
		"fanout keys":       "fanout --subscribers 20 --own-keys --in-flight 4 --partitions 3",
	} {
		args += " --runs 2 --duration 100ms --warmup 0s --no-floors --server-pid " + pid
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, code := cli(t, node, append([]string{"bench"}, strings.Fields(args)...)...)
			if code != exitOK {
				t.Fatalf("exit code %d: %s", code, out)
			}
			judgeRuns(t, name, out)
		})
	}
	for _, mode := range []string{"exclusive", "shared"} {
		t.Run("groups "+mode, func(t *testing.T) {
			t.Parallel()
			args := "groups --records 700 --members 3 --partitions 2 --runs 2 --in-flight 20 --batch 7 --no-floors --mode " + mode + " --server-pid " + pid
			out, code := cli(t, node, append([]string{"bench"}, strings.Fields(args)...)...)
			if code != exitOK {
				t.Fatalf("exit code %d: %s", code, out)
			}
			judgeRuns(t, "groups", out)
			for _, l := range benchLines(t, out) {
				if l.Messages != 700 || l.Latency == nil || l.Commits <= 0 || l.Entries < l.Commits {
					t.Errorf("%+v", l)
				}
			}
		})
	}
	t.Run("idle groups", func(t *testing.T) {
		t.Parallel()
		out, code := cli(t, node, "bench", "groups", "--idle-groups", "20", "--settle", "200ms", "--server-pid", pid)
		if l := benchLines(t, out); code != exitOK || len(l) != 1 || l[0].Kind != "idle-groups" || l[0].Groups != 20 || len(l[0].Processes) != 1 {
			t.Errorf("exit code %d: %s", code, out)
		}
	})
	for _, transport := range []string{"ws", "sse", "sse-h2c"} {
		for _, churn := range []string{"0", "2"} {
			t.Run("connections "+transport+" "+churn, func(t *testing.T) {
				t.Parallel()
				out, code := cli(t, node, "bench", "connections", "--connections", "30", "--settle", "20ms", "--transport", transport, "--churn", churn, "--server-pid", pid)
				if code != exitOK {
					t.Fatalf("exit code %d: %s", code, out)
				}
				if strings.Contains(out, `"idle_cores":null`) != (churn != "0") {
					t.Errorf("what is idle is not measured with --churn, and null: %s", out)
				}
				if l := benchLines(t, out); len(l) != 1 || len(l[0].Snapshots) != 3 || l[0].Snapshots[2].Goroutines < 1 {
					t.Errorf("got %s", out)
				}
			})
		}
	}
}

// judgeRuns looks at the output of a benchmark of two runs, or of two pairs.
func judgeRuns(t *testing.T, name, out string) {
	t.Helper()
	runs, best := 0, 0
	for _, l := range benchLines(t, out) {
		switch l.Kind {
		case "run":
			runs++
			if l.Best {
				best++
			}
			if l.Server == nil || l.Lost+l.Duplicates+l.Refused != 0 || len(l.Load) == 0 || l.Bench != strings.Fields(name)[0] {
				t.Errorf("%+v", l)
			}
		case "summary":
			if l.Outstanding != 0 {
				t.Errorf("%d outstanding", l.Outstanding)
			}
		}
	}
	if want := 2 * (1 + strings.Count(name, "fanout keys") + strings.Count(name, "beside")); runs != want || best != want/2 {
		t.Errorf("%d runs, %d of them the best: %s", runs, best, out)
	}
}

// TestARestartLosesNothing restarts a server under a few subscribers, in each way.
func TestARestartLosesNothing(t *testing.T) {
	t.Setenv("GORACE", "atexit_sleep_ms=0")
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	const subscribers = 30
	dir := t.TempDir()
	var all sync.WaitGroup // not subtests: those that run at once may not set variables
	for _, args := range []string{"--transport ws", "--transport sse", "--transport ws --kill", "--transport sse --kill"} {
		all.Go(func() {
			line := append([]string{"bench", "restart", "--spawn", "--dir", dir, "--subscribers", strconv.Itoa(subscribers), "--rate", "50", "--flow", "300ms"}, strings.Fields(args)...)
			out, code := cli(t, "", line...)
			var f restartFigures
			if err := json.Unmarshal([]byte(out), &f); code != exitOK || err != nil {
				t.Errorf("%s: exit code %d, %v: %s", args, code, err, out)
				return
			}
			in := 0
			for _, n := range f.Buckets {
				in += n
			}
			if f.Back != subscribers || in != subscribers || f.Published == 0 || f.Lost+f.Duplicates+f.Gaps+f.Outstanding != 0 || f.Down < f.Stop {
				t.Errorf("%s: %+v", args, f)
			}
			if told := map[bool]int64{false: subscribers}[f.Kill]; f.Told != told || f.Kill != strings.Contains(args, "kill") {
				t.Errorf("%s: %d were told when to come back, want %d", args, f.Told, told)
			}
		})
	}
	all.Wait()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestABenchmarkOfAServerOfItsOwnLeavesNothing(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	// Under the race detector every process sleeps a second at its end.
	t.Setenv("GORACE", "atexit_sleep_ms=0")
	dir := t.TempDir()
	out, code := cli(t, "", "bench", "publish", "--spawn", "--dir", dir, "--publishers", "2", "--runs", "1", "--duration", "100ms", "--warmup", "0s")
	if code != exitOK {
		t.Fatalf("exit code %d: %s", code, out)
	}
	kinds := map[string]int{}
	for _, l := range benchLines(t, out) {
		kinds[l.Kind]++
		if l.Kind != "summary" && l.PerSecond <= 0 {
			t.Errorf("nothing happened: %+v", l)
		}
	}
	if kinds["floor"] != 3 || kinds["run"] != 1 || kinds["summary"] != 1 {
		t.Errorf("the output has %v: %s", kinds, out)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	fanout, code := cli(t, "", "bench", "fanout", "--spawn", "--dir", dir, "--subscribers", "5", "--in-flight", "4", "--runs", "1", "--duration", "100ms", "--warmup", "0s")
	if code != exitOK || !strings.Contains(fanout, `"floor":"bare websocket fan-out"`) || !strings.Contains(fanout, `"rate_ratio":`) {
		t.Errorf("exit code %d: %s", code, fanout)
	}
	table, code := cli(t, "", "bench", "fanout", "--spawn", "--dir", dir, "--subscribers", "5", "--runs", "1", "--duration", "100ms", "--warmup", "0s", "--no-floors", "--output", "table")
	if code != exitOK || !strings.Contains(table, "SERVER µs") || !strings.Contains(table, "0 lost") || strings.Contains(table, "REFUSED") {
		t.Errorf("exit code %d:\n%s", code, table)
	}
}
