package coordinator

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"tidewire/coordinator/state"
	"tidewire/internal/cluster"
	"tidewire/internal/feed"
	"tidewire/internal/ident"
	"tidewire/internal/testkit/activity"
)

// A commit publishes nothing, however many there are; their index alone comes out now and
// then. Any other change is there at once, commits and all.
func TestCommitsComeOutAsAnIndexNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := feed.New()
		m := newMachine(f)
		activity.Start(t, m.run)
		index := uint64(0)
		do := func(c cluster.Change) {
			t.Helper()
			index++
			b, err := state.Encode(&state.Command{Request: state.RequestID{byte(index >> 8), byte(index)}, Change: c})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := m.Apply(index, b); err != nil {
				t.Fatal(err)
			}
		}
		commit := cluster.Change{Commit: &cluster.Commit{}}
		node := cluster.Change{Register: &cluster.Register{Node: cluster.Node{ID: ident.NodeID{1}, Name: "a", Roles: []string{"broker"}}}}
		do(node)
		m.publish()
		published := 0
		for seen := f.Snapshot().Index; index < 200; {
			time.Sleep(10 * time.Millisecond)
			do(commit)
			synctest.Wait()
			if now := f.Snapshot().Index; now != seen {
				published, seen = published+1, now
			}
		}
		if published < 3 || published > 5 { // two seconds
			t.Errorf("200 commits were published %d times", published)
		}
		time.Sleep(indexEvery)
		synctest.Wait()
		if now := f.Snapshot().Index; now != index {
			t.Errorf("index %d is on the feed long after %d", now, index)
		}
		do(commit)
		synctest.Wait()
		do(node) // a change waits as long as it does without commits
		time.Sleep(settle)
		synctest.Wait()
		if now := f.Snapshot().Index; now != index {
			t.Errorf("index %d is on the feed after a change of %d", now, index)
		}
		// Who waits for an index hears of it with the entry, published or not.
		got, after := make(chan error, 1), index+2
		go func() {
			_, err := m.progress(t.Context(), cluster.ProgressOf{After: after})
			got <- err
		}()
		do(commit)
		synctest.Wait()
		if len(got) > 0 {
			t.Fatal("answered from an older state")
		}
		do(commit)
		synctest.Wait()
		if len(got) == 0 || <-got != nil {
			t.Fatal("not answered")
		}
		if i, err := m.shown(t.Context(), index); err != nil || i != index-2 {
			t.Errorf("commits alone have moved what is shown to %d: %v", i, err)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := m.progress(short, cluster.ProgressOf{After: index + 1}); err == nil {
			t.Fatal("answered from an older state")
		}
	})
}
