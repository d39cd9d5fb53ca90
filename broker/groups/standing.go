package groups

import (
	"context"
	"slices"
	"time"

	"tidewire/broker/lease"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
)

// Standings says how groups stand on partitions that this node leads.
func (g *Groups) Standings(ctx context.Context, s rpc.StandingsOf) ([]rpc.GroupStanding, error) {
	if n := len(s.Groups) * len(s.Partitions); n > rpc.MaxStandings {
		return nil, fault.New(fault.Invalid, "standings of %d groups and partitions at once; %d are allowed", n, rpc.MaxStandings)
	}
	if err := g.reached(ctx, s.Index); err != nil {
		return nil, err
	}
	var out []rpc.GroupStanding
	for _, ref := range s.Partitions {
		p, err := g.post(ref)
		if err != nil {
			continue // somebody else leads it
		}
		err = p.each(ctx, g.named(ref.Topic, s.Groups), func(m *lease.Machine, now time.Time) {
			of := m.Standing(now)
			of.Partition = ref
			out = append(out, of)
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// RecordStatus says what became of a record in each group of its topic.
func (g *Groups) RecordStatus(ctx context.Context, s rpc.RecordStatusOf) ([]rpc.RecordStatus, error) {
	if err := g.reached(ctx, s.Index); err != nil {
		return nil, err
	}
	p, err := g.post(s.Partition)
	if err != nil {
		return nil, err
	}
	b, err := p.bounds()
	if err != nil {
		return nil, err
	}
	if s.Offset < 0 || s.Offset >= b.HW {
		return nil, fault.New(fault.OffsetNotFound, "partition %d ends at offset %d; there is no record at %d yet", s.Partition.Index, b.HW, s.Offset).
			With("earliest", b.Start).With("end", b.HW)
	}
	var out []rpc.RecordStatus
	err = p.each(ctx, slices.Collect(g.known().Groups[s.Partition.Topic].All()), func(m *lease.Machine, now time.Time) {
		out = append(out, m.Status(now, s.Offset))
	})
	return out, err
}

// each asks the machines of groups on this partition. Of groups that are not at work it
// makes them for the moment, from the progress that the coordinator holds.
func (p *post) each(ctx context.Context, groups []*cluster.Group, ask func(m *lease.Machine, now time.Time)) error {
	if err := p.g.leased(); err != nil {
		return err
	}
	b, err := p.bounds()
	if err != nil {
		return err
	}
	var idle []*cluster.Group
	for _, group := range groups {
		u := p.unit(group.ID)
		if u == nil || u.with(func(m *lease.Machine, now time.Time) {
			m.Moved(now, b.Start, b.HW)
			ask(m, now)
		}) != nil {
			idle = append(idle, group)
		}
	}
	for some := range slices.Chunk(idle, cluster.MaxProgress) {
		if err := p.eachIdle(ctx, some, ask); err != nil {
			return err
		}
	}
	return nil
}

func (p *post) eachIdle(ctx context.Context, some []*cluster.Group, ask func(m *lease.Machine, now time.Time)) error {
	ids := make([]ident.GroupID, len(some))
	for i, group := range some {
		ids[i] = group.ID
	}
	all, err := p.progress(ctx, ids)
	if err != nil {
		return err
	}
	b, err := p.bounds()
	if err != nil {
		return err
	}
	now := time.Now()
	for _, group := range some {
		of, ok := all[group.ID]
		if !ok {
			continue // deleted meanwhile
		}
		g := *group
		g.Reset = of.Reset // as of the progress, which may be newer
		m := lease.Begin(now, p.config(), &g, of, b.Start, b.HW)
		ask(m, now)
		if len(m.Letters()) > 0 { // left behind by a former leader
			p.attend(group)
		}
	}
	return nil
}
