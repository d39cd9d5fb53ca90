package gateway

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"tidewire/gateway/router"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/testkit/memlog"
)

// purging is a coordinator and the leaders of a topic of two partitions, with five and
// three records.
type purging struct {
	*decider
	call  control
	shown atomic.Pointer[cluster.Topic] // as the coordinator has it
	asked []string                      // of the coordinator
	late  int                           // proposals that come after a change of leaders
	acts  time.Duration                 // after which leaders act on what was decided
}

func newPurging() *purging {
	d := &decider{Broker: memlog.New()}
	p := &purging{decider: d}
	d.topic = d.Topic("orders", 2)
	p.shown.Store(d.topic)
	d.Append(d.topic.Ref(0), "a", "b", "c", "d", "e")
	d.Append(d.topic.Ref(1), "a", "b", "c")
	r := router.New(router.Config{Self: ident.NodeID{9}, Topology: p, Peer: func(ident.NodeID) (router.Peer, error) { return leading{Broker: d.Broker}, nil }})
	p.call = control{Coordinator: p, router: r, age: fresh, propose: p.propose}
	return p
}

// Snapshot has the topic as the coordinator has it.
func (p *purging) Snapshot() *cluster.Snapshot {
	t := p.shown.Load()
	return &cluster.Snapshot{Topics: map[string]*cluster.Topic{"orders": t}, ByID: map[ident.TopicID]*cluster.Topic{t.ID: t}}
}

func (p *purging) Next(context.Context, uint64) (*cluster.Snapshot, error) { return p.Snapshot(), nil }

func (p *purging) change(change func(*cluster.Topic)) {
	t := *p.shown.Load()
	t.Partitions = slices.Clone(t.Partitions)
	change(&t)
	p.shown.Store(&t)
}

func (p *purging) propose(_ context.Context, c cluster.Change) (a cluster.Answer, err error) {
	for _, of := range c.Purge.Of {
		p.asked = append(p.asked, fmt.Sprintf("%d below %d in epoch %d", of.Partition.Index, of.Before, of.Epoch))
		now := &p.shown.Load().Partitions[of.Partition.Index]
		if p.late > 0 {
			p.late--
			p.Elect(of.Partition, memlog.All)
			p.change(func(t *cluster.Topic) { t.Partitions[of.Partition.Index].LeaderEpoch++ })
		}
		taken := p.shown.Load().Partitions[of.Partition.Index].LeaderEpoch == of.Epoch
		if taken {
			at := max(now.Purged, of.Before)
			p.change(func(t *cluster.Topic) { t.Partitions[of.Partition.Index].Purged = at })
			time.AfterFunc(p.acts, func() { p.Retain(of.Partition, at) })
		}
		a.Taken = append(a.Taken, taken)
	}
	return a, nil
}

// begins writes down where partitions begin.
func begins(all []cluster.Position) string {
	var out []string
	for _, p := range all {
		out = append(out, fmt.Sprintf("%d:%d", p.Partition, p.Offset))
	}
	return strings.Join(out, " ")
}

func TestPurges(t *testing.T) {
	type offsets = map[ident.Index]ident.Offset
	for name, c := range map[string]struct {
		before offsets
		set    func(*purging)
		asked  []string
		begins string
		fails  fault.Kind
		after  time.Duration
	}{
		"what is there now": {asked: []string{"0 below 5 in epoch 1", "1 below 3 in epoch 1"}, begins: "0:5 1:3"},
		"some of it":        {before: offsets{1: 2}, asked: []string{"1 below 2 in epoch 1"}, begins: "1:2"},
		"no partition":      {before: offsets{2: 0}, fails: fault.PartitionNotFound},
		// Nothing is decided where anything cannot be.
		"above the end": {before: offsets{0: 4, 1: 4}, fails: fault.Invalid},
		"what is gone": {
			before: offsets{0: 2, 1: 1}, asked: []string{"1 below 1 in epoch 1"}, begins: "0:4 1:1",
			set: func(p *purging) {
				p.change(func(t *cluster.Topic) { t.Partitions[0].Purged = 4 })
				p.Retain(p.topic.Ref(0), 4)
			},
		},
		// A log's own start is not enough: another log may begin before it.
		"what retention took": {
			before: offsets{0: 2}, asked: []string{"0 below 2 in epoch 1"}, begins: "0:3",
			set: func(p *purging) { p.Retain(p.topic.Ref(0), 3) },
		},
		"a leader that moves": {
			before: offsets{0: 2, 1: 1}, set: func(p *purging) { p.late = 1 }, begins: "0:2 1:1", after: firstLook,
			asked: []string{"0 below 2 in epoch 1", "1 below 1 in epoch 1", "0 below 2 in epoch 2"},
		},
		"no leader for a moment": {
			before: offsets{0: 2}, asked: []string{"0 below 2 in epoch 1"}, begins: "0:2", after: 300 * time.Millisecond,
			set: func(p *purging) {
				p.Serve(p.topic.Ref(0), false)
				time.AfterFunc(300*time.Millisecond, func() { p.Serve(p.topic.Ref(0), true) })
			},
		},
		"no leader": {before: offsets{0: 2}, fails: fault.LeaderUnavailable, after: decideTime, set: func(p *purging) { p.Serve(p.topic.Ref(0), false) }},
		"a topic that goes": {
			before: offsets{0: 2}, fails: fault.TopicNotFound, after: time.Second,
			set: func(p *purging) {
				p.Serve(p.topic.Ref(0), false)
				gone := *p.shown.Load()
				gone.ID = ident.TopicID{7}
				time.AfterFunc(time.Second, func() { p.shown.Store(&gone) })
			},
		},
		"leaders that are late": {
			before: offsets{0: 2}, asked: []string{"0 below 2 in epoch 1"}, begins: "0:2", after: 400 * time.Millisecond,
			set: func(p *purging) { p.acts = 400 * time.Millisecond },
		},
		"leaders that are very late": {
			before: offsets{0: 2}, asked: []string{"0 below 2 in epoch 1"}, begins: "0:2", after: settleTime,
			set: func(p *purging) { p.acts = time.Hour },
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPurging()
				topic := p.topic
				if c.set != nil {
					c.set(p)
				}
				began := time.Now()
				got, err := p.call.PurgeTopic(t.Context(), topic, c.before)
				if took := time.Since(began); took < c.after || took > c.after+2*lastLook {
					t.Errorf("answered after %s", took)
				}
				switch {
				case c.begins == "" && !fault.Is(err, c.fails):
					t.Error(err)
				case c.begins != "" && (err != nil || begins(got) != c.begins):
					t.Error(got, err)
				}
				if !slices.Equal(p.asked, c.asked) {
					t.Errorf("the coordinator was asked %q", p.asked)
				}
				time.Sleep(2 * time.Hour) // all timers have fired
			})
		})
	}
}
