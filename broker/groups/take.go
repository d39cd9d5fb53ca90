package groups

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"tidewire/broker/lease"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
)

// loadLimit is how long a call waits at least for a progress that is being read.
const loadLimit = 2 * time.Second

// Take leases records to a member, or waits until something could be leased.
func (g *Groups) Take(ctx context.Context, t rpc.Take) (rpc.Taken, error) {
	if err := g.reached(ctx, t.Index); err != nil {
		return rpc.Taken{}, err
	}
	c := g.taking(t, make(chan struct{}, 1))
	c.await(ctx)
	c.join()
	defer c.quit()
	timer := time.NewTimer(t.Wait)
	defer timer.Stop()
	for {
		if ctx.Err() != nil {
			return rpc.Taken{}, fault.New(fault.LeaderUnavailable, "the caller went away: %w", context.Cause(ctx))
		}
		if c.try(ctx) {
			if ctx.Err() != nil {
				c.giveBack()
				continue
			}
			return c.answer(), nil
		}
		c.listen()
		select {
		case <-c.poke:
		case <-timer.C:
			return c.answer(), nil
		case <-ctx.Done():
		}
	}
}

// taking begins a Take.
func (g *Groups) taking(t rpc.Take, poke chan struct{}) *taking {
	c := &taking{g: g, first: int(g.turn.Add(1)), Take: t, taker: taker{by: t.MemberLife, poke: poke}}
	c.of = make([]rpc.TakenOf, len(t.Partitions))
	c.units = make([]*unit, len(t.Partitions))
	for i, ref := range t.Partitions {
		c.of[i].Partition = ref
		c.units[i], c.of[i].Err = g.unit(ref, t.MemberLife)
	}
	return c
}

func (c *taking) join() {
	for _, u := range c.units {
		if u != nil {
			u.join(&c.taker)
		}
	}
}

func (c *taking) quit() {
	for _, u := range c.units {
		if u != nil {
			u.quit(&c.taker)
		}
	}
}

// unit finds where a member's group is at work.
func (g *Groups) unit(ref ident.Partition, by cluster.MemberLife) (*unit, error) {
	p, err := g.post(ref)
	if err != nil {
		return nil, err
	}
	if u := p.unit(by.Group); u != nil {
		return u, nil
	}
	return nil, fault.New(fault.Fenced, "this life of member %q is over: its group has no members, or is not there; join again", by.Member)
}

// taking is a Take under way.
type taking struct {
	taker
	rpc.Take
	g       *Groups
	units   []*unit // nil: none
	of      []rpc.TakenOf
	first   int  // where the next round begins: each partition has its turn
	leases  int  // given
	bytes   int  // of their records, about
	batches int  // bytes of all batches
	more    bool // there is something that did not fit
	could   bool // something could be leased
	held    bool // something is ready, and the member holds as many as it may
}

// await waits for units whose progress is being read.
func (c *taking) await(ctx context.Context) {
	by := time.Now().Add(max(c.Wait, loadLimit))
	for _, u := range c.units {
		if u != nil {
			u.ready(ctx, by) // if it is not, it says so
		}
	}
}

// giveBack takes back what was leased to a caller who went away meanwhile.
func (c *taking) giveBack() {
	for i, u := range c.units {
		if u != nil && len(c.of[i].Leases) > 0 {
			u.undo(c.by, c.of[i].Leases)
		}
	}
}

// listen has the units tell what came while the taker passed for one that has enough.
func (c *taking) listen() {
	if c.held {
		return
	}
	for _, u := range c.units {
		if u != nil {
			_ = u.with(func(*lease.Machine, time.Time) {}) // one that is over has told
		}
	}
}

// answer is what there is to say. Who leases nothing is told by More that he could.
func (c *taking) answer() rpc.Taken {
	return rpc.Taken{Of: c.of, More: c.more || c.could, Held: c.g.held(c.Group, c.units, c.Member)}
}

// try goes through all partitions. True: there is something to answer.
func (c *taking) try(ctx context.Context) bool {
	failed := false
	c.more, c.could, c.held = false, false, false
	c.full.Store(true) // what ends in the meantime is told
	for k := range c.units {
		i := (c.first + k) % len(c.units)
		u := c.units[i]
		if u == nil {
			failed = true
			continue
		}
		err := c.g.leased()
		if err == nil {
			err = u.take(ctx, c, i)
		}
		c.of[i].Err = err
		failed = failed || err != nil && !errors.Is(err, errLoading)
	}
	c.first++
	c.full.Store(c.held)
	return failed || c.leases > 0 || c.Limit == 0 && c.could
}

// take leases what there is for the member here.
func (u *unit) take(ctx context.Context, c *taking, i int) error {
	heard := c.Hearing(i)
	limit, err := u.allowed(c, heard)
	if err != nil {
		return err
	}
	var held shelf
	if limit > 0 {
		if err := u.fill(ctx, limit, c.chunk(), &held); err != nil {
			return err
		}
	}
	var leases []rpc.Lease
	var failed error
	err = u.with(func(m *lease.Machine, now time.Time) {
		switch {
		case ctx.Err() != nil: // who is gone takes nothing with him
		case c.Limit == 0:
			c.could = c.could || limit > 0 && m.Ready(now, c.by)
		case limit > 0:
			limit = min(limit, c.fits(u.recordBytes.Load()))
			leases, failed = m.Take(now, c.by, limit, heard)
		}
		if m.Ready(now, c.by) {
			c.more = c.more || c.Limit > 0
			c.held = c.held || limit == 0
		}
	})
	if err = cmp.Or(err, failed); err != nil || len(leases) == 0 {
		return err
	}
	given, err := u.deliver(ctx, c, leases, &held, &c.of[i])
	if given < len(leases) {
		c.more = true
		u.undo(c.by, leases[given:])
	}
	u.post.g.metrics.given(leases[:given])
	if given > 0 {
		err = nil // the next call says it
	}
	return err
}

// allowed is how many records the member may be given here, of what the Take asks for.
func (u *unit) allowed(c *taking, heard rpc.Hearing) (limit int, err error) {
	b, err := u.post.bounds()
	if err != nil {
		return 0, err
	}
	var most int
	failed := u.with(func(m *lease.Machine, now time.Time) {
		m.Moved(now, b.Start, b.HW)
		_, err = m.Take(now, c.by, 0, heard)
		most = u.group.Settings.MaxInFlight
	})
	if err = cmp.Or(failed, err); err != nil {
		return 0, err
	}
	if c.bytes > 0 && c.bytes >= c.MaxBytes {
		return 0, nil
	}
	most -= u.post.g.held(u.id, c.units, c.by.Member)
	return max(0, min(most, max(1, c.Limit)-c.leases)), nil
}

// held is how many records a member holds at some units.
func (g *Groups) held(group ident.GroupID, units []*unit, member string) (n int) {
	for _, u := range units {
		if u != nil && u.id == group {
			u.mu.Lock()
			if u.m != nil {
				n += u.m.Held(member)
			}
			u.mu.Unlock()
		}
	}
	return n
}

// undo takes back leases that are not given after all.
func (u *unit) undo(by cluster.MemberLife, leases []rpc.Lease) {
	offsets := make([]ident.Offset, len(leases))
	for i, l := range leases {
		offsets[i] = l.Offset
	}
	_ = u.with(func(m *lease.Machine, _ time.Time) { m.Undo(by, offsets) }) // one that is over holds nothing
}

// deliver puts the batches of leased records into the answer. It says how many of them
// went in: the others come another time.
func (u *unit) deliver(ctx context.Context, c *taking, leases []rpc.Lease, held *shelf, of *rpc.TakenOf) (given int, err error) {
	var used []place
	for _, l := range leases {
		at, ok := held.find(l.Offset)
		if !ok {
			if err = held.read(ctx, u.post, l.Offset, c.chunk()); err != nil {
				break
			}
			if at, ok = held.find(l.Offset); !ok {
				err = fault.New(fault.Internal, "the log does not hold the record at offset %d, which was there", l.Offset)
				break
			}
		}
		fresh := !slices.ContainsFunc(used, func(p place) bool { return p.base == at.base })
		if fresh && c.batches > 0 && c.batches+at.bytes() > c.most() || c.bytes > 0 && c.bytes >= c.MaxBytes {
			break
		}
		if fresh {
			used = append(used, at)
			c.batches += at.bytes()
		}
		c.bytes += at.recordBytes
		given++
	}
	batches, failed := held.together(used, leases[:given])
	if failed != nil {
		return 0, failed
	}
	c.leases += given
	of.Batches, of.Leases = batches, leases[:given]
	return given, err
}

// fits is how many records of a size go into the answer, about; one always does.
func (c *taking) fits(recordBytes int64) int {
	return max(1, int(int64(c.MaxBytes-c.bytes)/max(1, recordBytes)))
}

// chunk is how much is read at once.
func (c *taking) chunk() int { return min(max(c.MaxBytes-c.bytes, minChunk), maxChunk) }

// most is how many bytes of batches there may be: a few records of many large batches would
// make an answer that is not worth its way.
func (c *taking) most() int { return min(max(4*c.MaxBytes, maxChunk), rpc.MaxSendBytes) }
