package gateway

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"tidewire/internal/cluster"
	"tidewire/internal/feed"
	"tidewire/internal/ident"
	"tidewire/internal/testkit/activity"
)

// heard gives snapshots of one node whose state changes.
type heard struct{ *feed.Feed }

func (h heard) set(state cluster.NodeState) {
	h.Publish(&cluster.Snapshot{Index: h.Snapshot().Index + 1, Nodes: map[ident.NodeID]*cluster.Node{{1}: {ID: ident.NodeID{1}, State: state}}})
}

func TestClientsAreSentAwayWhileTheNodeIsDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		begun, ended := 0, 0
		counts := func() (int, int) {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return begun, ended
		}
		send := func(ctx context.Context) {
			mu.Lock()
			begun++
			mu.Unlock()
			<-ctx.Done() // it takes a while to tell them all
			mu.Lock()
			ended++
			mu.Unlock()
		}
		h := heard{feed.New()}
		h.set(cluster.Alive)
		d := &departure{self: ident.NodeID{1}, next: h.Next, wake: make(chan struct{}, 1), send: []func(context.Context){send, send}}
		activity.Start(t, d.run)
		activity.Start(t, d.follow)
		expect := func(what string, b, e int) {
			t.Helper()
			if gotB, gotE := counts(); gotB != b || gotE != e {
				t.Errorf("%s: %d begun, %d ended", what, gotB, gotE)
			}
		}
		expect("alive", 0, 0)
		h.set(cluster.DrainingState)
		expect("drained", 2, 0)
		h.set(cluster.DrainingState)
		d.set(true)
		expect("drained all the same", 2, 0)
		h.set(cluster.Alive)
		expect("cancelled", 2, 2)
		d.set(true) // by call of another node
		expect("drained again", 4, 2)
		d.set(false)
		expect("and cancelled", 4, 4)
	})
}
