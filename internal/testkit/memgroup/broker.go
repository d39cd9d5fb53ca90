package memgroup

import (
	"context"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
)

// Broker is a node's broker.
type Broker struct {
	*Cluster
	node ident.NodeID
}

// Broker finds a node's.
func (c *Cluster) Broker(node ident.NodeID) *Broker { return &Broker{c, node} }

// failsLocked counts a call and says why it fails.
func (b *Broker) failsLocked(call string) error {
	b.calls[call]++
	if f := b.fails[b.node]; f != nil {
		return f(call)
	}
	return nil
}

// findLocked finds a group on a partition that this broker leads.
func (b *Broker) findLocked(id ident.GroupID, p ident.Partition) (*kept, *part, error) {
	s := b.snapshotLocked()
	t := s.ByID[p.Topic]
	if t == nil {
		return nil, nil, fault.New(fault.LeaderUnavailable, "a topic of nobody")
	}
	at, ok := t.Partition(p.Index)
	if !ok || at.Leader != b.node {
		return nil, nil, fault.New(fault.LeaderUnavailable, "partition %d is not led here", p.Index)
	}
	g := b.groups[id]
	if g == nil {
		return nil, nil, fault.New(fault.GroupNotFound, "there is no such group")
	}
	return g, g.parts[p.Index], nil
}

// Take leases records, or waits for some.
func (b *Broker) Take(ctx context.Context, t rpc.Take) (rpc.Taken, error) {
	deadline := time.NewTimer(t.Wait)
	defer deadline.Stop()
	for {
		b.mu.Lock()
		out, next, err := b.takeLocked(ctx, t)
		changed := b.changed
		if err == nil && t.Limit > 0 {
			if err = b.after("taken"); err != nil {
				out = rpc.Taken{}
			}
		}
		b.mu.Unlock()
		if err != nil || t.Limit > 0 || out.More || t.Wait == 0 {
			return out, err
		}
		var logs <-chan struct{}
		for _, p := range t.Partitions { // the first that has an end: tests with more write to all
			if bounds, err := b.log.Bounds(ctx, p); err == nil && logs == nil {
				logs, _ = b.log.Wait(p, bounds.HW)
			}
		}
		again := time.NewTimer(min(next, 20*time.Millisecond))
		select {
		case <-changed:
		case <-logs:
		case <-again.C:
		case <-deadline.C:
			again.Stop()
			return out, nil
		case <-ctx.Done():
			again.Stop()
			return out, fault.New(fault.LeaderUnavailable, "given up: %w", ctx.Err())
		}
		again.Stop()
	}
}

// takeLocked takes what there is now. next is when to look again.
func (b *Broker) takeLocked(ctx context.Context, t rpc.Take) (out rpc.Taken, next time.Duration, err error) {
	call := "take"
	if t.Limit == 0 {
		call = "wait"
	}
	next = time.Hour
	if err := b.failsLocked(call); err != nil {
		return out, next, err
	}
	defer func() {
		if g := b.groups[t.Group]; g != nil {
			out.Held = g.inFlight(t.Member, t.Partitions)
		}
	}()
	left := t.Limit
	bytes := t.MaxBytes
	for i, ref := range t.Partitions {
		of := rpc.TakenOf{Partition: ref}
		g, p, err := b.findLocked(t.Group, ref)
		if err == nil {
			err = b.mayLocked(g, t.MemberLife, ref.Index, true)
		}
		if err != nil {
			of.Err = err
			out.Of = append(out.Of, of)
			continue
		}
		p.hears(t.Member, t.Hearing(i))
		bounds, _ := b.log.Bounds(ctx, ref)
		for o := max(p.floor, bounds.Start); o < bounds.HW && g.inFlight(t.Member, t.Partitions) < g.Settings.MaxInFlight; o++ {
			f := p.records[o]
			if f != nil && !f.free() {
				if f.state == rpc.InFlight || f.state == rpc.Received {
					next = min(next, max(time.Until(f.until), time.Millisecond))
				}
				continue
			}
			if left == 0 || bytes <= 0 && len(of.Leases) > 0 {
				out.More = true
				break
			}
			if f == nil {
				f = &fate{}
				p.records[o] = f
			}
			res, err := b.log.Read(ctx, rpc.Read{Partition: ref, Offset: o, MaxBytes: 1})
			if err != nil {
				if len(of.Leases) == 0 { // else the next call says it
					of.Err = err
				}
				break
			}
			f.state, f.member, f.epoch, f.until = rpc.InFlight, t.Member, t.Epoch, time.Now().Add(g.Settings.Lease)
			f.deliveries++
			f.by = t.Hearing(i)
			of.Leases = append(of.Leases, rpc.Lease{Offset: o, Delivery: f.deliveries, Left: g.Settings.Lease})
			of.Batches = append(of.Batches, res.Batches...)
			left--
			bytes -= len(res.Batches)
		}
		out.Of = append(out.Of, of)
	}
	return out, next, nil
}

// hears takes in which answers came. What was leased in one that was lost is free.
func (p *part) hears(member string, h rpc.Hearing) {
	for _, f := range p.records {
		switch {
		case f.state != rpc.InFlight || f.member != member || f.by.Taker == 0 || f.by.Taker != h.Taker:
		case f.by.Call <= h.Heard:
			f.by = rpc.Hearing{}
		case f.by.Call < h.Call:
			f.state, f.until, f.by = rpc.Received, time.Time{}, rpc.Hearing{}
			f.deliveries--
		}
	}
}

// Unheard is how many records are leased in answers of which it is not known that they came.
func (c *Cluster) Unheard() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, g := range c.groups {
		for _, p := range g.parts {
			for _, f := range p.records {
				if f.state == rpc.InFlight && f.by.Taker != 0 {
					n++
				}
			}
		}
	}
	return n
}

// free says that a record may be leased.
func (f *fate) free() bool {
	return (f.state == rpc.Received || f.state == rpc.InFlight || f.state == "") && !time.Now().Before(f.until)
}

// inFlight is how many records of some partitions a member holds.
func (g *kept) inFlight(member string, of []ident.Partition) (n int) {
	for _, ref := range of {
		if g.parts[ref.Index] == nil {
			continue
		}
		for _, f := range g.parts[ref.Index].records {
			if f.state == rpc.InFlight && f.member == member && time.Now().Before(f.until) {
				n++
			}
		}
	}
	return n
}

// mayLocked says why a member may not work on a partition.
func (b *Broker) mayLocked(g *kept, life cluster.MemberLife, i ident.Index, anew bool) error {
	if !b.livesLocked(life) {
		return fault.New(fault.Fenced, "that life of %q is over", life.Member)
	}
	if o := g.Owner(i); o != nil && (o.Member != life.Member || anew && o.Next != "") {
		return fault.New(fault.Fenced, "partition %d is not %q's", i, life.Member)
	}
	return nil
}

// Settle takes in what a member has done.
func (b *Broker) Settle(ctx context.Context, s rpc.Settle) (out rpc.Settled, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.failsLocked("settle"); err != nil {
		return out, err
	}
	for _, of := range s.Of {
		done := rpc.SettledOf{Partition: of.Partition}
		g, p, err := b.findLocked(s.Group, of.Partition)
		if err == nil {
			err = b.mayLocked(g, s.MemberLife, of.Partition.Index, false)
		}
		if err != nil {
			done.Err = err
			out.Of = append(out.Of, done)
			continue
		}
		p.hears(s.Member, rpc.Hearing{Taker: s.Taker, Call: s.Call, Heard: of.Heard})
		b.settleLocked(g, p, s, &of, &done)
		if o := g.Owner(of.Partition.Index); o != nil && o.Next != "" && !g.leased(of.Partition.Index) {
			b.handLocked(g, o)
			b.publishLocked()
		}
		out.Of = append(out.Of, done)
	}
	b.wakeLocked()
	return out, b.after("settled")
}

// after fails a call that has been carried out.
func (b *Broker) after(call string) error {
	if f := b.fails[b.node]; f != nil {
		return f(call)
	}
	return nil
}

func (b *Broker) settleLocked(g *kept, p *part, s rpc.Settle, of *rpc.SettleOf, done *rpc.SettledOf) {
	each := func(o ident.Offset, f func(*fate)) {
		at := p.records[o]
		if at == nil || at.state != rpc.InFlight || at.member != s.Member || at.epoch != s.Epoch || !time.Now().Before(at.until) {
			if at == nil || at.state != rpc.Processed {
				done.Stale = append(done.Stale, rpc.Stale{Offset: o, Err: fault.New(fault.Fenced, "offset %d is not leased to %q", o, s.Member)})
			}
			return
		}
		f(at)
	}
	processed := func(f *fate) { f.state = rpc.Processed }
	for _, o := range of.Ack {
		each(o, processed)
	}
	for o := p.floor; o <= of.Through; o++ {
		if f := p.records[o]; f != nil && f.state == rpc.InFlight && f.member == s.Member && f.epoch == s.Epoch {
			f.state = rpc.Processed
		}
	}
	for _, n := range of.Nack {
		each(n.Offset, func(f *fate) {
			if f.deliveries >= g.Settings.MaxDeliveries {
				f.state = rpc.DeadState
				return
			}
			delay := n.Delay
			if delay < 0 {
				delay = g.Settings.Backoff
			}
			f.state, f.until = rpc.Received, time.Now().Add(delay)
		})
	}
	for _, o := range of.Extend {
		each(o, func(f *fate) {
			f.until = time.Now().Add(g.Settings.Lease)
			done.Extended = append(done.Extended, rpc.Extended{Offset: o, Left: g.Settings.Lease})
		})
	}
	for _, r := range of.Reject {
		each(r.Offset, func(f *fate) { f.state = rpc.DeadState })
	}
	for f := p.records[p.floor]; f != nil && (f.state == rpc.Processed || f.state == rpc.DeadState); f = p.records[p.floor] {
		p.floor++
	}
}

// Standings says how groups stand.
func (b *Broker) Standings(ctx context.Context, s rpc.StandingsOf) (out []rpc.GroupStanding, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.failsLocked("standings"); err != nil {
		return nil, err
	}
	for _, id := range s.Groups {
		for _, ref := range s.Partitions {
			_, p, err := b.findLocked(id, ref)
			if err != nil {
				continue
			}
			bounds, _ := b.log.Bounds(ctx, ref)
			st := rpc.GroupStanding{Group: id, Partition: ref, Committed: p.floor, End: bounds.HW, Lag: int64(bounds.HW - p.floor)}
			for o, f := range p.records {
				switch {
				case f.state == rpc.DeadState:
					st.Dead++
				case f.state == rpc.InFlight && time.Now().Before(f.until):
					st.InFlight++
					st.Oldest = time.UnixMilli(1000 + int64(o))
				}
				if f.deliveries > 1 {
					st.Redelivered += int64(f.deliveries - 1)
				}
				if o >= p.floor && (f.state == rpc.DeadState || f.state == rpc.Processed) {
					st.Lag--
				}
			}
			out = append(out, st)
		}
	}
	return out, nil
}

// RecordStatus says what became of a record.
func (b *Broker) RecordStatus(ctx context.Context, s rpc.RecordStatusOf) (out []rpc.RecordStatus, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.failsLocked("status"); err != nil {
		return nil, err
	}
	bounds, err := b.log.Bounds(ctx, s.Partition)
	if err != nil {
		return nil, err
	}
	if s.Offset >= bounds.HW {
		return nil, fault.New(fault.OffsetNotFound, "offset %d is not there yet", s.Offset)
	}
	for id := range b.groups {
		_, p, err := b.findLocked(id, s.Partition)
		if err != nil {
			continue
		}
		st := rpc.RecordStatus{Group: id, State: rpc.Received}
		f := p.records[s.Offset]
		switch {
		case s.Offset < p.start:
			st.State = rpc.Skipped
		case f == nil:
		case f.state == rpc.InFlight && time.Now().Before(f.until):
			st.State, st.Member, st.Left, st.Delivery = rpc.InFlight, f.member, time.Until(f.until), f.deliveries
		case f.state == rpc.InFlight:
			st.Delivery = f.deliveries
		default:
			st.State, st.Delivery = f.state, f.deliveries
		}
		out = append(out, st)
	}
	return out, nil
}
