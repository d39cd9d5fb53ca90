package e2e_test

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"tidewire/e2e/harness"
)

// maxJournalFiles bounds the journal of little data, however often its node dies.
const maxJournalFiles = 12

// TestKill kills a node again and again while 16 publishers write to it over
// WebSocket and HTTP and four readers follow, and wants everything acknowledged
// to be there, once where that was promised.
func TestKill(t *testing.T) {
	t.Parallel()
	kills := 5
	if harness.Soak() {
		kills = 50
	}
	r := random(t)
	node := harness.Start(t, harness.Options{})
	l := startLoad(t, node, "kills", time.Duration(kills)*20*time.Second+patience)
	for _, x := range []struct{ name, kind string }{{"ws-1", "ws"}, {"ws-2", "ws"}, {"sse-1", "sse"}, {"sse-2", "sse"}} {
		l.read(x.name, x.kind, node.Addr)
	}
	var starts []time.Duration
	for i := range kills {
		before := l.acked.Load()
		l.await(before, 100+r.Int64N(400))
		pause(t.Context(), time.Duration(r.Int64N(int64(200*time.Millisecond)))) // so that the kill comes at any moment
		node.Kill()
		if err := node.Run(); err != nil {
			t.Fatalf("start after kill %d: %v", i+1, err)
		}
		starts = append(starts, node.ReadyAfter().Round(time.Millisecond))
	}
	l.await(l.acked.Load(), 500)
	l.finish()
	// A node that dies early again and again must not gather what each life leaves.
	if files := harness.Files(t, filepath.Join(node.Dir(), "journal"), ".journal"); len(files) > maxJournalFiles {
		t.Errorf("%d journal files after %d kills, at most %d should be", len(files), kills, maxJournalFiles)
	}
	t.Logf("ready after %s", starts)
	slices.Sort(starts)
	t.Logf("kill -9: %d times; ready again after %s at best, %s in the middle, %s at worst, without a flag; %d acknowledged",
		kills, starts[0], starts[len(starts)/2], starts[len(starts)-1], l.acked.Load())
}
