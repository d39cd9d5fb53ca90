package groups

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"tidewire/gateway/group"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
	"tidewire/internal/sleep"
)

const (
	// waitTime is how long a leader is asked to wait at once.
	waitTime = 5 * time.Second
	// gatherTime is how long who asks all leaders waits for the last ones of them.
	gatherTime = 20 * time.Millisecond
	// waitPause is how long a wait lasts at least that brought nothing.
	waitPause = 50 * time.Millisecond
	// takeTime bounds a take, which nothing else ends.
	takeTime = 5 * time.Second
	// fullPause is how long one who holds as much as he may waits before his leaders are
	// asked again, where he settles nothing here.
	fullPause = time.Second
)

// sink is where what is taken for a member goes. All of it is called by one goroutine.
type sink interface {
	// room is how many messages it takes now, and about how many bytes of them.
	room() (messages, bytes int)
	// woken gives when there may be more room than before; nil: never.
	woken() <-chan struct{}
	// assigned is told what the member has, whenever that may have changed.
	assigned(group.Assignment)
	// take gets what was leased of the room that was given, which may be nothing. It is to
	// go out, or to be given back, whatever comes. done: that was all that is wanted, but
	// for what is ready anyway.
	take(got Fetched) (done bool)
}

// puller takes records for one life of a member.
type puller struct {
	g     *Groups
	m     Membership
	watch *watch
	once  bool // leaders are asked for what they have now, once each
	aimed bool // at all
	// Who asks once waits for all of them before the first take: until gather, or until
	// all were heard. turned: it is over.
	gather <-chan time.Time
	turned bool

	poke    chan struct{} // the lookout may have something
	renew   chan struct{} // it has waited for long enough
	renewal *time.Timer   // gives that; nil: there was no lookout yet

	ctx     context.Context // of the waits
	waiting sync.WaitGroup
	answers chan answer
	leads   map[ident.NodeID]*lead
	ready   []*lead // that have something, in the order in which they said so
	orphans int     // partitions that nobody leads

	hand   *hand
	most   int              // that the member may hold, of all leaders together
	full   bool             // it holds so much, and somebody has more
	missed bool             // it settled something while it was not full: what leaders said may be from before
	news   <-chan struct{}  // of less
	recall <-chan time.Time // when leaders are asked whether it is less
}

// lead is what one node leads of the member's partitions.
type lead struct {
	node   ident.NodeID
	of     []ident.Partition
	index  uint64   // of the change that says so
	cancel func()   // ends the wait under way
	out    *outlook // is that wait; nil: a goroutine waits
	asked  bool     // and has nothing, as of the last answer
	err    error    // why it gave nothing, when it was asked last
	broken error    // what it has and cannot be read; nil: it has nothing of that kind
	misses int      // how often in a row it had something, and nothing by the time of the take
}

// answer is that of a wait.
type answer struct {
	*lead
	more bool
	err  error

	call  uint64 // the takes below it were over, as the leader was told
	taken rpc.Taken
}

// pull takes for a member until the sink has had what it wants, ctx or until ends (that
// is no error), or the life is over; with once until every leader has said that it has
// nothing now. Records that were leased have gone to the sink.
func (g *Groups) pull(ctx context.Context, m Membership, to sink, once bool, until <-chan time.Time) error {
	waits, end := context.WithCancel(ctx)
	p := &puller{
		g: g, m: m, once: once, watch: g.watches.begin(m.View), poke: make(chan struct{}, 1), renew: make(chan struct{}, 1), ctx: waits, answers: make(chan answer), leads: map[ident.NodeID]*lead{},
		hand: g.hands.begin(m.Life()), most: m.Group.Settings.MaxInFlight,
	}
	news, deaf := p.hand.listen()
	p.news = news
	defer func() {
		p.watch.end()
		deaf()
		p.comeIn()
		p.hand.end()
		end()
		p.waiting.Wait()
	}()
	for {
		p.drain()
		if done := p.gathered() && p.take(to); done || ctx.Err() != nil {
			return nil
		}
		if p.once && p.aimed && (p.full || p.nothing()) {
			return p.why()
		}
		select {
		case a := <-p.answers:
			p.answered(a)
		case <-p.poke:
			p.look()
		case <-p.renew:
			p.lookAgain()
		case <-p.gather:
			p.turned = true
		case <-p.watch.woken:
			if err := p.aim(to); err != nil {
				return err
			}
		case <-p.news:
			p.recount()
		case <-p.recall:
			p.recount()
		case <-to.woken():
		case <-until:
			return p.why()
		case <-ctx.Done():
			return nil
		}
	}
}

// gathered says whether it is time to take. Who asks once hears all leaders first, and
// begins with any of those that have something: else the nearest one would be emptied
// before another has its turn, by each call anew.
func (p *puller) gathered() bool {
	switch {
	case !p.once || p.turned && p.gather == nil:
		return true
	case !p.aimed:
		return false
	case p.gather == nil:
		p.gather = time.After(gatherTime)
	}
	if !p.turned && !p.heardAll() {
		return false
	}
	p.turned, p.gather = true, nil
	rand.Shuffle(len(p.ready), func(i, j int) { p.ready[i], p.ready[j] = p.ready[j], p.ready[i] })
	return true
}

// heardAll says that every leader has something, or has nothing.
func (p *puller) heardAll() bool {
	for _, l := range p.leads {
		if !l.asked && !slices.Contains(p.ready, l) {
			return false
		}
	}
	return true
}

// drain takes in the answers that are there.
func (p *puller) drain() {
	for {
		select {
		case a := <-p.answers:
			p.answered(a)
		default:
			return
		}
	}
}

// aim looks at the newest snapshot: it waits at the leaders of what the member has now.
func (p *puller) aim(to sink) error {
	v, err := group.Of(p.g.cfg.Topology.Snapshot(), p.m.View)
	if err == nil && v.Index < uint64(p.m.Epoch) {
		return nil // the snapshot has yet to reach the join
	}
	if err == nil {
		_, err = v.Life(p.m.Member, p.m.Epoch)
	}
	if err != nil {
		return err
	}
	p.aimed = true
	has := v.Assigned(p.m.Member)
	to.assigned(has)
	of := group.Leaders(v.Topic, has.Held)
	p.orphans = len(of[ident.NodeID{}])
	delete(of, ident.NodeID{}) // a leader comes with another snapshot
	p.most = v.Group.Settings.MaxInFlight
	p.hand.aim(of)
	for node, l := range p.leads {
		if refs := of[node]; !slices.Equal(refs, l.of) {
			p.leave(l)
		}
	}
	for node, refs := range of {
		if p.leads[node] == nil {
			l := &lead{node: node, of: refs, index: max(v.Topic.Modified, v.Group.Modified)}
			p.leads[node] = l
			p.wait(l, false)
		}
	}
	return nil
}

func (p *puller) leave(l *lead) {
	delete(p.leads, l.node)
	l.cancel()
	p.ready = slices.DeleteFunc(p.ready, func(o *lead) bool { return o == l })
}

// wait asks a leader to say when it has something, or, to look, at once what it has.
func (p *puller) wait(l *lead, look bool) {
	if !look && p.lookOut(l) {
		return
	}
	ctx, cancel := context.WithCancel(p.ctx)
	l.cancel = cancel
	limit, pause := waitTime, min(time.Duration(l.misses*l.misses)*time.Millisecond, waitPause)
	if l.err != nil {
		pause = waitPause
	}
	leave := func() {}
	switch {
	case look:
		limit, pause = 0, 0
	case p.once:
		limit = 0
	case l.node != p.g.cfg.Self:
		if leave = p.g.crowd.enter(l.node); leave == nil {
			limit, pause, leave = 0, crowdPause, func() {}
		}
	}
	p.waiting.Go(func() {
		defer leave()
		p.g.metrics.waits.Inc()
		defer p.g.metrics.waits.Dec()
		if pause > 0 && !sleep.For(ctx, pause) {
			return
		}
		began := time.Now()
		a := answer{lead: l}
		b, err := p.g.broker(l.node, l.of)
		if err == nil {
			q := p.asks(l, limit)
			a.call = q.Call
			a.taken, err = b.Take(ctx, q)
			if a.more = a.taken.More; err == nil && !a.more {
				err = refused(a.taken.Of)
			}
		}
		a.err = err
		if rest := waitPause - time.Since(began); !look && !p.once && !a.more && rest > 0 && !sleep.For(ctx, rest) {
			return
		}
		select {
		case p.answers <- a:
		case <-ctx.Done():
		}
	})
}

// asks is the Take of a wait.
func (p *puller) asks(l *lead, wait time.Duration) rpc.Take {
	q := rpc.Take{MemberLife: p.m.Life(), Index: l.index, Partitions: l.of, Wait: wait, Taker: p.g.hands.taker}
	q.Call, q.Heard = p.hand.call(l.node, l.of)
	return q
}

// refused is why none of some partitions gave anything; nil: some might have.
func refused(of []rpc.TakenOf) error {
	for i := range of {
		if of[i].Err == nil {
			return nil
		}
	}
	if len(of) == 0 {
		return nil
	}
	return of[0].Err
}

func (p *puller) answered(a answer) {
	if p.leads[a.node] != a.lead {
		return // of a former aim
	}
	if a.err == nil {
		p.hand.says(a.node, a.call, a.taken)
	}
	if b := broken(a.taken.Of); b != nil || !a.more {
		a.broken = b
	}
	if a.more {
		p.isReady(a.lead)
		return
	}
	if a.lead.err = a.err; p.once {
		a.asked = true
		return
	}
	p.again(a.lead)
}

// nothing says that every leader was asked and has nothing.
func (p *puller) nothing() bool {
	for _, l := range p.leads {
		if !l.asked {
			return false
		}
	}
	return true
}

// again waits at a leader once more.
func (p *puller) again(l *lead) {
	l.cancel()
	p.wait(l, false)
}

func (p *puller) isReady(l *lead) {
	l.err = nil
	l.cancel()
	p.ready = append(p.ready, l)
}

// take takes from the leaders that have something, as much as there is room for.
func (p *puller) take(to sink) (done bool) {
	for len(p.ready) > 0 {
		messages, bytes := to.room()
		if messages <= 0 || bytes <= 0 || p.ctx.Err() != nil { // who has left takes nothing more
			return done
		}
		l := p.ready[0]
		var got Fetched
		var more bool
		var err error
		p.full = false
		if !p.hand.inTurn(p.ctx, func() {
			_, held := p.hand.at(l.node)
			if p.full = held >= p.most; p.full {
				return
			}
			messages = min(messages, p.most-held)
			got, more, err = p.lease(l, messages, bytes)
		}) {
			return done
		}
		if p.full {
			if p.missed {
				p.recount()
			} else if p.recall == nil {
				p.recall = time.After(fullPause)
			}
			return done
		}
		p.ready = p.ready[1:]
		done = to.take(got) || done
		if l.misses++; len(got.Lines) > 0 {
			l.misses = 0
		}
		switch l.err = err; {
		case err == nil && more && len(got.Lines) > 0:
			p.isReady(l)
		case done: // it is asked no more, so that it does not hear yet that this came
		case p.once && l.broken != nil:
			l.asked = true // it would give the same
		default:
			p.again(l)
		}
		p.drain()
	}
	return done
}

// recount asks the leaders of what the member holds, where it holds as much as it may.
func (p *puller) recount() {
	p.recall = nil
	if p.missed = !p.full; p.missed {
		return
	}
	p.full = false
	for _, l := range p.leads {
		if here, _ := p.hand.at(l.node); here > 0 {
			p.ready = slices.DeleteFunc(p.ready, func(o *lead) bool { return o == l })
			l.cancel()
			p.wait(l, true)
		}
	}
}

// lease takes from one leader. It is not given up with the caller: what was leased would
// be in nobody's hands for a while. Where no answer comes, or one that cannot be read, the
// next call says so. more: there is something that did not fit.
func (p *puller) lease(l *lead, messages, bytes int) (got Fetched, more bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), takeTime)
	defer cancel()
	b, err := p.g.broker(l.node, l.of)
	if err != nil {
		return got, false, err
	}
	q := rpc.Take{MemberLife: p.m.Life(), Index: l.index, Partitions: l.of, Limit: messages, MaxBytes: bytes}
	p.hand.beginTake(l.node, &q)
	taken, err := b.Take(ctx, q)
	got, taken.Of, l.broken = p.read(taken.Of)
	p.hand.endTake(l.node, q.Call, taken, err)
	if len(got.Lines) > 0 {
		got.from = []origin{{p.hand, l.node, q.Call}}
	}
	return got, taken.More, cmp.Or(err, l.broken)
}

// read makes messages of what was taken. Partitions of which it cannot are left out of what
// came.
func (p *puller) read(of []rpc.TakenOf) (got Fetched, came []rpc.TakenOf, unreadable error) {
	now := time.Now()
	for i := range of {
		lines, err := group.Lines(p.m.Topic.Name, &of[i], now)
		if err != nil {
			unreadable = fault.New(fault.Internal, "records that were leased of partition %d: %w", of[i].Partition.Index, err)
			p.g.metrics.unreadable.Add(float64(len(of[i].Leases)))
			continue
		}
		got.add(lines)
		came = append(came, of[i])
	}
	p.g.metrics.messages.Add(float64(len(got.Lines)))
	return got, came, cmp.Or(unreadable, broken(of))
}

// broken is why a leader cannot read what it would lease of one of some partitions: somebody
// has to hear of it.
func broken(of []rpc.TakenOf) error {
	for i := range of {
		if stays(of[i].Err) {
			return of[i].Err
		}
	}
	return nil
}

// why is the reason for which nothing came: that there is something that cannot be read, or
// that no leader could give anything. nil: there was nothing.
func (p *puller) why() error {
	var err error
	if len(p.leads) == 0 && p.orphans > 0 {
		return fault.New(fault.LeaderUnavailable, "none of the member's partitions has a leader at the moment")
	}
	for _, l := range p.leads {
		if l.broken != nil {
			return l.broken
		}
	}
	for _, l := range p.leads {
		if l.err == nil || !passing(l.err) {
			return nil
		}
		err = l.err
	}
	if err != nil {
		return fault.New(fault.LeaderUnavailable, "no leader of the member's partitions could be asked: %w", err)
	}
	return nil
}
