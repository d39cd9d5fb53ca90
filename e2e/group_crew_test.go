package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tidewire/e2e/client"
	"tidewire/e2e/harness"
)

// groupCrew is a consumer group whose members come and go, and the history of what they
// were given and what of it they were told is done.
type groupCrew struct {
	t            *testing.T
	topic, group string
	ordered      bool
	gateways     func() []*client.API
	ctx          context.Context
	cancel       context.CancelFunc
	work         time.Duration // on each message

	running sync.WaitGroup
	seat    atomic.Int64

	mu     sync.Mutex
	given  map[client.At][]delivery
	first  map[string]client.At // the latest first delivery of a key
	order  []string             // what went against it
	double []string             // acknowledged under two leases
	lives  map[string]*crewMember
	stale  int
	lost   int // lives that ended without a word, or were fenced
}

// delivery is one lease of a record.
type delivery struct {
	member string
	epoch  uint64
	count  int
	at     time.Time
	acked  bool
}

// crewMember is one member over HTTP.
type crewMember struct {
	name  string
	stop  context.CancelFunc
	leave atomic.Bool // says goodbye; else it just falls silent
	done  chan struct{}
}

func newGroupCrew(t *testing.T, topic, group, settings string, ordered bool, gateways func() []*client.API) *groupCrew {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	g := &groupCrew{
		t: t, topic: topic, group: group, ordered: ordered, gateways: gateways, ctx: ctx, cancel: cancel, work: 15 * time.Millisecond,
		given: map[client.At][]delivery{}, first: map[string]client.At{}, lives: map[string]*crewMember{},
	}
	if status, err := gateways()[0].RegisterGroup(ctx, topic, group, settings); err != nil || status != 201 {
		t.Fatalf("register %s: %d, %v", group, status, err)
	}
	t.Cleanup(func() {
		cancel()
		g.running.Wait()
	})
	return g
}

// add has one more member join.
func (g *groupCrew) add() *crewMember {
	ctx, stop := context.WithCancel(g.ctx)
	m := &crewMember{name: fmt.Sprintf("m%d", g.seat.Add(1)), stop: stop, done: make(chan struct{})}
	g.mu.Lock()
	g.lives[m.name] = m
	g.mu.Unlock()
	g.running.Go(func() {
		defer close(m.done)
		g.member(ctx, m)
	})
	return m
}

// end ends a member: with a word, or as one that is killed.
func (g *groupCrew) end(m *crewMember, leave bool) {
	m.leave.Store(leave)
	m.stop()
	<-m.done
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.lives, m.name)
	if !leave {
		g.lost++
	}
}

// anyone is a member that lives.
func (g *groupCrew) anyone() *crewMember {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, m := range g.lives {
		return m
	}
	return nil
}

// pick is a gateway, another one each time.
func (g *groupCrew) pick() *client.API {
	all := g.gateways()
	return all[rand.N(len(all))]
}

// passing says that a call failed for a reason that passes: a node that is away, or a
// partition without a leader.
func passingRefusal(err error) bool {
	var r *client.Refused
	return !errors.As(err, &r) || r.Status >= 500 || r.Status == 429
}

func isFenced(err error) bool {
	var r *client.Refused
	return errors.As(err, &r) && (r.Code == "fenced" || r.Code == "member-not-found")
}

// member joins, works until it is stopped, and joins again where it was fenced.
func (g *groupCrew) member(ctx context.Context, m *crewMember) {
	for ctx.Err() == nil {
		j, err := g.pick().JoinGroup(ctx, g.topic, g.group, m.name)
		if err == nil {
			err = g.live(ctx, m, j)
		}
		if err != nil && ctx.Err() == nil && !passingRefusal(err) && !isFenced(err) {
			g.t.Errorf("member %s: %v", m.name, err)
			return
		}
		if isFenced(err) {
			g.mu.Lock()
			g.lost++
			g.mu.Unlock()
		}
		pause(ctx, 100*time.Millisecond)
	}
	if !m.leave.Load() {
		return
	}
	bye, cancel := context.WithTimeout(g.ctx, 10*time.Second)
	defer cancel()
	for bye.Err() == nil {
		if err := g.pick().LeaveGroup(bye, g.topic, g.group, m.name); err == nil || !passingRefusal(err) {
			return
		}
		pause(bye, 100*time.Millisecond)
	}
}

// live takes messages and acknowledges them, for as long as the life lasts.
func (g *groupCrew) live(ctx context.Context, m *crewMember, j client.Joined) error {
	for ctx.Err() == nil {
		all, err := g.pick().TakeMessages(ctx, g.topic, g.group, j, 20, "500ms")
		if err != nil {
			var r *client.Refused
			if !passingRefusal(err) || !errors.As(err, &r) {
				return err // no answer: what was leased in it comes first to who joins again
			}
			pause(ctx, 50*time.Millisecond)
			continue
		}
		at := make([]client.At, 0, len(all))
		for i := range all {
			g.note(&all[i], m, j)
			pause(ctx, g.work)
			at = append(at, client.At{Partition: all[i].Partition, Offset: all[i].Offset})
		}
		if len(at) == 0 || ctx.Err() != nil {
			continue
		}
		if err := g.ack(ctx, m, j, at); err != nil {
			return err
		}
	}
	return nil
}

// note keeps a delivery.
func (g *groupCrew) note(msg *client.Leased, m *crewMember, j client.Joined) {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := client.At{Partition: msg.Partition, Offset: msg.Offset}
	if len(g.given[at]) == 0 && g.ordered {
		key := msg.KeyText()
		if last, ok := g.first[key]; ok && key != "" && last.Partition == at.Partition && last.Offset > at.Offset {
			g.order = append(g.order, fmt.Sprintf("partition %d: offset %d after %d, both of key %q", at.Partition, at.Offset, last.Offset, key))
		}
		g.first[key] = at
	}
	g.given[at] = append(g.given[at], delivery{member: m.name, epoch: j.Epoch, count: msg.Delivery, at: time.Now()})
}

// ack acknowledges until it is heard. What is stale comes again to somebody.
func (g *groupCrew) ack(ctx context.Context, m *crewMember, j client.Joined, at []client.At) error {
	for ctx.Err() == nil {
		stale, err := g.pick().Settle(ctx, g.topic, g.group, client.Settlement{Member: j.Member, Epoch: j.Epoch, Ack: at})
		if err == nil {
			g.done(m, j, at, stale)
			return nil
		}
		if !passingRefusal(err) {
			return err
		}
		pause(ctx, 50*time.Millisecond)
	}
	return nil
}

func (g *groupCrew) done(m *crewMember, j client.Joined, all []client.At, stale []client.StaleAt) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stale += len(stale)
	for _, at := range all {
		if slices.ContainsFunc(stale, func(s client.StaleAt) bool { return s.At == at }) {
			continue
		}
		leases := g.given[at]
		for i := range leases {
			if leases[i].acked {
				g.double = append(g.double, fmt.Sprintf("%+v: by %s in epoch %d, and by %s in epoch %d", at, leases[i].member, leases[i].epoch, m.name, j.Epoch))
			}
		}
		for i := len(leases) - 1; i >= 0; i-- { // the latest that this life was given
			if leases[i].member == m.name && leases[i].epoch == j.Epoch {
				leases[i].acked = true
				break
			}
		}
	}
}

// finished is how many records the group is done with, as it says itself: what was
// acknowledged by one who was killed before he heard of it is among them.
func (g *groupCrew) finished() (n int64) {
	info, err := g.pick().Group(g.ctx, g.topic, g.group)
	if err != nil {
		return 0
	}
	for _, p := range info.Partitions {
		if p.End != nil && p.Lag != nil {
			n += *p.End - *p.Lag
		}
	}
	return n
}

// floors watches that no committed offset goes back, until ctx ends.
func (g *groupCrew) floors(ctx context.Context) {
	latest := map[int]int64{}
	for ctx.Err() == nil {
		info, err := g.pick().Group(ctx, g.topic, g.group)
		if err == nil {
			for _, p := range info.Partitions {
				if p.Committed == nil {
					continue
				}
				if *p.Committed < latest[p.Partition] {
					g.t.Errorf("partition %d: committed %d after %d", p.Partition, *p.Committed, latest[p.Partition])
				}
				latest[p.Partition] = *p.Committed
			}
		}
		pause(ctx, 200*time.Millisecond)
	}
}

// committed waits until the group is done with everything.
func (g *groupCrew) committed(bound time.Duration) {
	g.t.Helper()
	harness.Await(g.t, bound, "everything is done with", func() bool {
		if g.t.Failed() {
			return true
		}
		info, err := g.pick().Group(g.ctx, g.topic, g.group)
		return err == nil && len(info.Partitions) > 0 && !slices.ContainsFunc(info.Partitions, func(p client.GroupPartition) bool {
			return p.Committed == nil || p.End == nil || *p.Committed != *p.End
		})
	})
}

// judge looks at the whole history once everything is done with.
func (g *groupCrew) judge(records map[int]int64) {
	g.t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	never, again, most := 0, 0, 0
	for partition, end := range records {
		for o := range end {
			n := len(g.given[client.At{Partition: partition, Offset: o}])
			switch {
			case n == 0:
				if never++; never < 10 {
					g.t.Errorf("partition %d offset %d was never delivered", partition, o)
				}
			case n > 1:
				again += n - 1
				most = max(most, n)
			}
		}
	}
	g.t.Logf("%s: %d never delivered, %d delivered again (at most %d times each), %d stale acknowledgements, %d lives lost", g.group, never, again, most, g.stale, g.lost)
	for _, what := range [][]string{g.double, g.order} {
		for _, text := range what[:min(len(what), 10)] {
			g.t.Error(text)
		}
	}
	if again > 0 && g.lost == 0 && g.stale == 0 {
		g.t.Log("there were redeliveries although no member was lost")
	}
}
