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
	"tidewire/internal/testkit/redelivery"
)

// crewLease and crewSession are those of a crew's group.
const (
	crewLease   = 3 * time.Second
	crewSession = 2 * time.Second
)

// groupCrew is a consumer group whose members come and go, and the history of what they
// were given, what of it they were told is done, and what was done to them.
type groupCrew struct {
	t            *testing.T
	topic, group string
	ordered      bool
	gateways     []crewGateway
	ctx          context.Context
	cancel       context.CancelFunc
	work         time.Duration // on each message

	running sync.WaitGroup
	seat    atomic.Int64

	mu     sync.Mutex
	given  map[client.At][]*redelivery.Delivery
	faults []redelivery.Fault
	first  map[string]client.At // the latest first delivery of a key
	order  []string             // what went against it
	double []string             // acknowledged under two leases
	lives  map[string]*crewMember
	stale  int
	lost   int // lives that ended without a word, or were fenced
}

// crewGateway is a node by which members come, whether it runs or not.
type crewGateway struct {
	node string
	*client.API
}

// crewMember is one member over HTTP.
type crewMember struct {
	name  string
	stop  context.CancelFunc
	leave atomic.Bool // says goodbye; else it just falls silent
	done  chan struct{}

	// Of its own goroutine, until done.
	epoch uint64    // of its life; 0: it has none
	sign  time.Time // when it last had an answer that says that the life goes on
}

func (m *crewMember) life() redelivery.Life {
	return redelivery.Life{Member: m.name, Epoch: m.epoch}
}

func newGroupCrew(t *testing.T, c *harness.Cluster, topic, group, mode string) *groupCrew {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	g := &groupCrew{
		t: t, topic: topic, group: group, ordered: mode == "exclusive", ctx: ctx, cancel: cancel, work: 15 * time.Millisecond,
		given: map[client.At][]*redelivery.Delivery{}, first: map[string]client.At{}, lives: map[string]*crewMember{},
	}
	for _, m := range c.Gateways() {
		g.gateways = append(g.gateways, crewGateway{m.Name, client.New(m.URL)})
	}
	settings := fmt.Sprintf(`"mode":%q,"from":"earliest","lease":%q,"session":%q,"backoff":"100ms","max_deliveries":100`, mode, crewLease, crewSession)
	if status, err := g.pick().RegisterGroup(ctx, topic, group, settings); err != nil || status != 201 {
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
	began := time.Now()
	m.leave.Store(leave)
	m.stop()
	<-m.done
	f := redelivery.Fault{Kind: redelivery.MemberLeft, Life: m.life(), Span: redelivery.Span{From: began, To: time.Now()}}
	if !leave {
		f.Kind = redelivery.MemberKilled
	}
	g.fault(f)
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.lives, m.name)
	if !leave {
		g.lost++
	}
}

// fault notes what was done, or what happened.
func (g *groupCrew) fault(f redelivery.Fault) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.faults = append(g.faults, f)
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
func (g *groupCrew) pick() crewGateway { return g.gateways[rand.N(len(g.gateways))] }

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
			m.epoch, m.sign = j.Epoch, time.Now()
			err = g.live(ctx, m, j)
		}
		if err != nil && ctx.Err() == nil && !passingRefusal(err) && !isFenced(err) {
			g.t.Errorf("member %s: %v", m.name, err)
			return
		}
		if isFenced(err) {
			g.fault(redelivery.Fault{Kind: redelivery.SessionOver, Life: m.life(), Span: redelivery.Span{From: m.sign, To: time.Now()}})
			g.mu.Lock()
			g.lost++
			g.mu.Unlock()
			m.epoch = 0
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
		by, asked := g.pick(), time.Now()
		all, err := by.TakeMessages(ctx, g.topic, g.group, j, 20, "500ms")
		call := redelivery.Span{From: asked, To: time.Now()}
		if err != nil {
			var r *client.Refused
			if !errors.As(err, &r) {
				g.fault(redelivery.Fault{Kind: redelivery.AnswerLost, Life: m.life(), Node: by.node, Span: call})
				return err // what was leased in it comes first to who joins again
			}
			if !passingRefusal(err) {
				return err
			}
			pause(ctx, 50*time.Millisecond)
			continue
		}
		m.sign = call.To
		held := make([]*redelivery.Delivery, 0, len(all))
		for i := range all {
			held = append(held, g.note(&all[i], m, by.node, call))
			pause(ctx, g.work)
		}
		if len(held) == 0 || ctx.Err() != nil {
			continue
		}
		if err := g.ack(ctx, m, held); err != nil {
			return err
		}
	}
	return nil
}

// note keeps a delivery.
func (g *groupCrew) note(msg *client.Leased, m *crewMember, gateway string, call redelivery.Span) *redelivery.Delivery {
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
	d := &redelivery.Delivery{
		Record: redelivery.Record(at), Life: m.life(), Number: msg.Delivery,
		Gateway: gateway, Call: call, Lease: time.Duration(msg.LeaseMS) * time.Millisecond,
	}
	g.given[at] = append(g.given[at], d)
	return d
}

// ack acknowledges until it is heard. What is stale comes again to somebody.
func (g *groupCrew) ack(ctx context.Context, m *crewMember, held []*redelivery.Delivery) error {
	s := client.Settlement{Member: m.name, Epoch: m.epoch}
	said := time.Now()
	g.mu.Lock()
	for _, d := range held {
		s.Ack = append(s.Ack, client.At(d.Record))
		d.Said = said
	}
	g.mu.Unlock()
	for ctx.Err() == nil {
		stale, err := g.pick().Settle(ctx, g.topic, g.group, s)
		if err == nil {
			m.sign = time.Now()
			g.done(held, stale)
			return nil
		}
		if !passingRefusal(err) {
			return err
		}
		pause(ctx, 50*time.Millisecond)
	}
	return nil
}

// done takes in what became of an acknowledgement.
func (g *groupCrew) done(held []*redelivery.Delivery, stale []client.StaleAt) {
	heard := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stale += len(stale)
	for _, d := range held {
		at := client.At(d.Record)
		d.Heard = heard
		if slices.ContainsFunc(stale, func(s client.StaleAt) bool { return s.At == at }) {
			continue
		}
		for _, other := range g.given[at] {
			if other.Taken {
				g.double = append(g.double, fmt.Sprintf("%+v: by %+v, and by %+v", at, other.Life, d.Life))
			}
		}
		d.Taken = true
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

// leaders watches who leads the partitions, as each node says, until ctx ends.
func (g *groupCrew) leaders(ctx context.Context, l *redelivery.Leaders) {
	for _, by := range g.gateways {
		g.running.Go(func() {
			for ctx.Err() == nil {
				asked := time.Now()
				info, err := by.TopicInfo(ctx, g.topic)
				call := redelivery.Span{From: asked, To: time.Now()}
				if err != nil {
					l.Lose(by.node)
				}
				for _, p := range info.Layout.Partitions {
					l.See(by.node, p.ID, p.LeaderEpoch, call)
				}
				pause(ctx, 100*time.Millisecond)
			}
		})
	}
}

// judge looks at the whole history once everything is done with.
func (g *groupCrew) judge(records map[int]int64, changes []redelivery.Fault) {
	g.t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	never := 0
	for partition, end := range records {
		for o := range end {
			if len(g.given[client.At{Partition: partition, Offset: o}]) > 0 {
				continue
			}
			if never++; never < 10 {
				g.t.Errorf("partition %d offset %d was never delivered", partition, o)
			}
		}
	}
	h := redelivery.History{Session: crewSession, Reach: 30 * time.Second, Faults: slices.Concat(g.faults, changes)}
	for _, all := range g.given {
		for _, d := range all {
			h.Deliveries = append(h.Deliveries, *d)
		}
	}
	r := h.Judge()
	g.t.Logf("%s: %d never delivered, %d stale acknowledgements, %d lives lost; %s", g.group, never, g.stale, g.lost, r.String())
	for _, what := range [][]string{g.double, g.order, r.Unexplained} {
		for _, text := range what[:min(len(what), 10)] {
			g.t.Error(text)
		}
	}
}
