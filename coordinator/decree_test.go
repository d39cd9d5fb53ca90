package coordinator_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
)

// What a leading coordinator has decided is made by nobody else: one that was cut off and
// is not the leader any more would have lives declared over whose leases another granted.
func TestWhatALeaderDecidesEndsWithItsLead(t *testing.T) {
	n := newNet()
	all := n.three(t)
	if _, err := all[0].Register(t.Context(), nodeOf(ident.NodeID{1})); err != nil {
		t.Fatal(err)
	}
	create := func(name string) cluster.Change {
		return cluster.Change{Create: &cluster.Create{ID: ident.TopicID{name[0]}, Spec: topic(name, 1)}}
	}
	at := leading(t, all)
	if a, err := all[at].Decree(t.Context(), create("led")); err != nil || !a.Created {
		t.Fatalf("the leader makes nothing: %+v, %v", a, err)
	}
	if a, err := all[(at+1)%3].Decree(t.Context(), create("follows")); !fault.Is(err, fault.CoordinatorUnavailable) {
		t.Errorf("a follower has it made: %+v, %v", a, err)
	}

	id := ident.NodeID{byte(at + 1)}
	n.cut(id)
	late := make(chan error, 1)
	began := time.Now()
	go func() {
		_, err := all[at].Decree(context.Background(), create("held"))
		late <- err
	}()
	rest := slices.Delete(slices.Clone(all), at, at+1)
	next := leading(t, rest)
	n.mu.Lock()
	delete(n.off, id)
	n.mu.Unlock()
	if err := <-late; !fault.Is(err, fault.CoordinatorUnavailable) {
		t.Errorf("it was made after %s: %v", time.Since(began), err)
	}
	for name := range rest[next].Snapshot().Topics {
		if name != "led" {
			t.Errorf("topic %s was created", name)
		}
	}
}
