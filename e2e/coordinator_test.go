package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tidewire/e2e/client"
	"tidewire/e2e/harness"
	"tidewire/internal/testkit/check"
)

// storeDamage is one way to harm the coordinator's folder.
type storeDamage struct {
	name string
	do   func(t *testing.T, root string)
	// may says that the damage can also be harmless: then the node starts and
	// everything is there.
	may bool
}

// TestDamagedCoordinatorRefusesAndTouchesNothing harms the coordinator's store
// of a data folder in use. The node has to refuse, name the file and what to do,
// exit with 1 and leave every byte as it is; with the store put back it starts
// and everything is there.
func TestDamagedCoordinatorRefusesAndTouchesNothing(t *testing.T) {
	t.Parallel()
	rec := check.NewRecorder()
	n := harness.Start(t, harness.Options{})
	topics := coordinatorTopics(t, n, 8)
	older := t.TempDir()
	for i, topic := range topics {
		if i == len(topics)/2 {
			if err := n.Stop(); err != nil {
				t.Fatal(err)
			}
			harness.CopyDir(t, filepath.Join(n.Dir(), "raft"), older)
			if err := n.Run(); err != nil {
				t.Fatal(err)
			}
			topics = append(topics, coordinatorTopics(t, n, 3)...)
		}
		for _, w := range newWriters(n, rec, topic, 2, 4, 100) {
			w.mustPut(t)
			w.mustPut(t)
		}
	}
	if harness.Soak() {
		coordinatorSnapshot(t, n)
	}
	n.Kill() // the store, too, has to be whole after this

	whole := t.TempDir()
	harness.CopyDir(t, filepath.Join(n.Dir(), "raft"), whole)
	refused, right := 0, 0
	for _, d := range storeDamages(t, older, whole) {
		root := filepath.Join(n.Dir(), "raft")
		replaceDir(t, whole, root)
		d.do(t, root)
		before := harness.Sums(t, n.Dir())
		err := n.Run()
		if err == nil {
			if !d.may {
				t.Errorf("%s: the node started", d.name)
			}
			coordinatorHas(t, n, d.name, topics)
			n.Kill()
			replaceDir(t, root, whole) // its registration is part of it from now on
			right++
			continue
		}
		refused++
		if code := n.ExitCode(); code != 1 {
			t.Errorf("%s: exit code %d", d.name, code)
		}
		log := n.Log()
		if !strings.Contains(log, root) || !strings.Contains(strings.ToLower(log), "restore") {
			t.Errorf("%s: the log names no file below %s, or not what to do:\n%s", d.name, root, log)
		}
		if strings.Contains(log, "panic") || strings.Contains(log, "goroutine ") {
			t.Errorf("%s: a panic:\n%s", d.name, log)
		}
		if name := harness.SameSums(before, harness.Sums(t, n.Dir())); name != "" {
			t.Errorf("%s: refused, but %s has changed", d.name, name)
		}
		if t.Failed() {
			t.Fatalf("%s: see above", d.name)
		}
	}
	replaceDir(t, whole, filepath.Join(n.Dir(), "raft"))
	if err := n.Run(); err != nil {
		t.Fatalf("the store is whole again, and the node does not start: %v", err)
	}
	coordinatorHas(t, n, "restored", topics)
	records := keepLogs(t, n, rec, topics...)
	judge(t, rec)
	t.Logf("%d damages of the coordinator's store: %d refused, %d started with everything; %d records of %d topics there afterwards", refused+right, refused, right, records, len(topics))
	if refused < 8 {
		t.Errorf("only %d refusals: the damages do no harm", refused)
	}
}

func coordinatorTopics(t *testing.T, n *harness.Node, count int) []string {
	t.Helper()
	names := make([]string, count)
	for i := range names {
		names[i] = fmt.Sprintf("kept-%d-%d", n.Pid(), i)
		client.New(n.URL).CreateTopic(t, names[i], `"partitions":2`)
	}
	return names
}

func coordinatorHas(t *testing.T, n *harness.Node, after string, topics []string) {
	t.Helper()
	for _, topic := range topics {
		client.New(n.URL).Topic(t, topic) // or the test ends
	}
	t.Logf("%s: started with all %d topics", after, len(topics))
}

// coordinatorSnapshot makes changes until the coordinator has compacted its log.
func coordinatorSnapshot(t *testing.T, n *harness.Node) {
	t.Helper()
	api := client.New(n.URL)
	api.CreateTopic(t, "changing", "")
	for i := range 2100 {
		api.Must(t, 200, "PATCH", "/topics/changing", "application/json", fmt.Sprintf(`{"retention":{"bytes":%d}}`, 1<<30+i))
	}
	harness.Await(t, 3*time.Minute, "the coordinator makes a snapshot", func() bool {
		return len(snapshotFiles(t, filepath.Join(n.Dir(), "raft"))) > 0
	})
}

// snapshotFiles are those of finished snapshots.
func snapshotFiles(t *testing.T, root string) []string {
	t.Helper()
	dir := filepath.Join(root, "snapshots")
	files := append(harness.Files(t, dir, ".bin"), harness.Files(t, dir, ".json")...)
	return slices.DeleteFunc(files, func(f string) bool { return strings.HasSuffix(filepath.Dir(f), ".tmp") })
}

func storeDamages(t *testing.T, older, whole string) []storeDamage {
	t.Helper()
	remove := func(names ...string) func(*testing.T, string) {
		return func(t *testing.T, root string) {
			for _, name := range names {
				if err := os.RemoveAll(filepath.Join(root, name)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	edit := func(name string, change func([]byte) []byte) func(*testing.T, string) {
		return func(t *testing.T, root string) {
			path := filepath.Join(root, name)
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, change(data), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	random := rand.New(rand.NewPCG(20, 26))
	garbage := func(b []byte) []byte {
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		return b
	}
	cut := func(part float64) func([]byte) []byte {
		return func(b []byte) []byte { return b[:int(float64(len(b))*part)] }
	}
	all := []storeDamage{
		{"raft.db deleted", remove("raft.db"), false},
		{"raft.db and snapshots deleted", remove("raft.db", "snapshots"), false},
		{"the whole folder deleted", remove("."), false},
		{"everything in the folder deleted", func(t *testing.T, root string) {
			replaceDir(t, t.TempDir(), root)
		}, false},
		{"the snapshot folder deleted", remove("snapshots"), false},
		{"raft.db of 0 bytes", edit("raft.db", cut(0)), false},
		{"raft.db cut in half", edit("raft.db", cut(0.5)), true}, // the pages in use may all be in the first half
		{"raft.db cut to a quarter", edit("raft.db", cut(0.25)), true},
		{"raft.db all garbage", edit("raft.db", garbage), false},
		{"raft.db all zeros", edit("raft.db", func(b []byte) []byte { clear(b); return b }), false},
		{"an older raft.db", func(t *testing.T, root string) {
			data, err := os.ReadFile(filepath.Join(older, "raft.db"))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(root, "raft.db"), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"the whole folder of an earlier time", func(t *testing.T, root string) { replaceDir(t, older, root) }, false},
		{"mark deleted", remove("mark"), true},
		{"mark all garbage", edit("mark", garbage), true},
	}
	blocks := 8
	if harness.Soak() {
		blocks = 100
	}
	info, err := os.Stat(filepath.Join(whole, "raft.db"))
	if err != nil {
		t.Fatal(err)
	}
	for range blocks {
		page := random.Int64N(info.Size() / 4096)
		all = append(all, storeDamage{fmt.Sprintf("page %d of raft.db garbage", page), edit("raft.db", func(b []byte) []byte {
			garbage(b[page*4096 : min((page+1)*4096, int64(len(b)))])
			return b
		}), true})
	}
	for _, file := range snapshotFiles(t, whole) {
		rel, err := filepath.Rel(whole, file)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all,
			storeDamage{rel + " deleted", remove(rel), false},
			storeDamage{rel + " cut", edit(rel, cut(0.9)), false},
			storeDamage{rel + " garbage", edit(rel, garbage), false})
	}
	return all
}

// replaceDir makes a folder a copy of another.
func replaceDir(t *testing.T, from, to string) {
	t.Helper()
	if err := os.RemoveAll(to); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		t.Fatal(err)
	}
	harness.CopyDir(t, from, to)
}
