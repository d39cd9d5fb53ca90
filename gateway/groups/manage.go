package groups

import (
	"cmp"
	"context"
	"slices"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"tidewire/gateway/group"
	"tidewire/gateway/topology"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
	"tidewire/internal/wire"
)

// looks is how many partitions are looked at at once.
const looks = 16

// Register makes a group, with the positions at which it begins, or finds the one of that
// name with all that is given.
func (g *Groups) Register(ctx context.Context, topic, name string, s wire.GroupSettings) (v group.View, created bool, err error) {
	t, err := topology.Topic(ctx, g.cfg.Topology, topic)
	if err != nil {
		return v, false, err
	}
	from := s.From
	if from == "" {
		from = "earliest"
	}
	starts, err := g.places(ctx, t, group.All(t), from)
	if err != nil {
		return v, false, err
	}
	a, err := g.decided(ctx, topic, name, cluster.Change{GroupRegister: &cluster.GroupRegister{
		ID: ident.GroupID(uuid.New()), Topic: t.ID, Name: name, Patch: s.Patch, Starts: starts,
	}})
	return group.View{Index: a.Index, Topic: t, Group: a.Group}, a.Created, err
}

// Alter changes settings of a group.
func (g *Groups) Alter(ctx context.Context, topic, name string, patch cluster.GroupPatch) (group.View, error) {
	v, err := g.Find(ctx, topic, name)
	if err != nil {
		return v, err
	}
	a, err := g.decided(ctx, topic, name, cluster.Change{GroupAlter: &cluster.GroupAlter{Group: v.Group.ID, Patch: patch}})
	v.Group = a.Group
	return v, err
}

// Delete forgets a group.
func (g *Groups) Delete(ctx context.Context, topic, name string) error {
	v, err := g.Find(ctx, topic, name)
	if err == nil {
		_, err = g.cfg.Propose(ctx, cluster.Change{GroupDelete: &cluster.GroupDelete{Group: v.Group.ID}})
	}
	return err
}

// Move is where a group goes on a partition.
type Move struct {
	Partition ident.Index
	From      *ident.Offset // nil: not known at the moment
	To        ident.Offset
}

// Move moves a group to other offsets, or says where it would.
func (g *Groups) Move(ctx context.Context, topic, name string, m wire.GroupMove) ([]Move, error) {
	v, err := g.Find(ctx, topic, name)
	if err != nil {
		return nil, err
	}
	var to []cluster.Position
	if m.From != "" {
		to, err = g.places(ctx, v.Topic, group.All(v.Topic), m.From)
	} else {
		to, err = g.checked(ctx, v.Topic, m.Offsets)
	}
	if err != nil {
		return nil, err
	}
	stand := g.Standings(ctx, v)
	moves := make([]Move, len(to))
	for i, p := range to {
		moves[i] = Move{Partition: p.Partition, To: p.Offset}
		if s, ok := stand[p.Partition]; ok {
			moves[i].From = &s.Committed
		}
	}
	if !m.DryRun {
		_, err = g.cfg.Propose(ctx, cluster.Change{GroupReset: &cluster.GroupReset{Group: v.Group.ID, Starts: to, Force: m.Force}})
	}
	return moves, err
}

// places finds where partitions are to be read from.
func (g *Groups) places(ctx context.Context, t *cluster.Topic, of []ident.Index, from string) ([]cluster.Position, error) {
	return g.positions(ctx, t, of, func(ctx context.Context, ref ident.Partition, b rpc.Bounds) (ident.Offset, error) {
		switch from {
		case "earliest":
			return b.Start, nil
		case "latest":
			return b.HW, nil
		}
		ms, err := wire.ParseTime("from", from)
		if err != nil {
			return 0, err
		}
		return g.cfg.Places.OffsetAt(ctx, ref, ms)
	})
}

// checked are offsets that a client names, if they are of records that there are.
func (g *Groups) checked(ctx context.Context, t *cluster.Topic, offsets map[ident.Index]ident.Offset) ([]cluster.Position, error) {
	var of []ident.Index
	for i := range offsets {
		if _, err := topology.Partition(t, i); err != nil {
			return nil, err
		}
		of = append(of, i)
	}
	slices.Sort(of)
	return g.positions(ctx, t, of, func(_ context.Context, ref ident.Partition, b rpc.Bounds) (ident.Offset, error) {
		switch o := offsets[ref.Index]; {
		case o < b.Start:
			return 0, fault.New(fault.OffsetExpired, "offset %d of partition %d is gone; the earliest is %d", o, ref.Index, b.Start).With("partition", ref.Index).With("earliest", b.Start)
		case o > b.HW:
			return 0, fault.New(fault.OffsetNotFound, "offset %d of partition %d is not there yet; its end is %d", o, ref.Index, b.HW).With("partition", ref.Index).With("end", b.HW)
		default:
			return o, nil
		}
	})
}

// positions finds one on each of some partitions, in the bounds of its log, and follows
// leaders that move.
func (g *Groups) positions(ctx context.Context, t *cluster.Topic, of []ident.Index, find func(context.Context, ident.Partition, rpc.Bounds) (ident.Offset, error)) ([]cluster.Position, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	out := make([]cluster.Position, len(of))
	var finding errgroup.Group
	finding.SetLimit(looks)
	for k, i := range of {
		finding.Go(func() error {
			for pause := leastPause; ; pause = min(2*pause, mostPause) {
				index := g.cfg.Topology.Snapshot().Index
				b, err := g.cfg.Places.Bounds(ctx, t.Ref(i))
				var o ident.Offset
				if err == nil {
					o, err = find(ctx, t.Ref(i), b)
				}
				if err == nil {
					out[k] = cluster.Position{Partition: i, Offset: o, Epoch: b.Epoch}
					return nil
				}
				if !passing(err) || !g.await(ctx, index, pause) {
					return err
				}
			}
		})
	}
	return out, finding.Wait()
}

// Standings are how a group stands, by partition. What no leader says in time is left out.
func (g *Groups) Standings(ctx context.Context, v group.View) map[ident.Index]rpc.GroupStanding {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	out := map[ident.Index]rpc.GroupStanding{}
	answers := make(chan []rpc.GroupStanding, len(v.Topic.Partitions)) // room for every leader
	g.askOnce(ctx, g.cfg.Topology.Snapshot(), v.Topic, group.All(v.Topic), func(ctx context.Context, b leader, index uint64, of []ident.Partition) map[ident.Index]error {
		a, err := b.Standings(ctx, rpc.StandingsOf{Index: index, Groups: []ident.GroupID{v.Group.ID}, Partitions: of})
		if err == nil {
			answers <- a
		}
		return nil
	})
	close(answers)
	for a := range answers {
		for _, s := range a {
			if s.Group == v.Group.ID {
				out[s.Partition.Index] = s
			}
		}
	}
	return out
}

// Status is what became of a record in each group of its topic, by the group's name.
type Status struct {
	Group string
	rpc.RecordStatus
}

// Status asks the leader what became of a record.
func (g *Groups) Status(ctx context.Context, topic string, i ident.Index, o ident.Offset) ([]Status, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	t, ok := topology.Latest(ctx, g.cfg.Topology).Topic(topic)
	if !ok {
		return nil, topology.NotFound(topic)
	}
	if _, err := topology.Partition(t, i); err != nil {
		return nil, err
	}
	var found []rpc.RecordStatus
	failed := g.each(ctx, t, []ident.Index{i}, func(ctx context.Context, b leader, index uint64, of []ident.Partition) map[ident.Index]error {
		a, err := b.RecordStatus(ctx, rpc.RecordStatusOf{Index: index, Partition: of[0], Offset: o})
		found = a
		return map[ident.Index]error{i: err}
	})
	if err := failed[i]; err != nil {
		return nil, err
	}
	names := map[ident.GroupID]string{}
	for of := range g.cfg.Topology.Snapshot().Groups[t.ID].All() {
		names[of.ID] = of.Name
	}
	var out []Status
	for _, s := range found {
		if name, ok := names[s.Group]; ok { // else it was deleted meanwhile
			out = append(out, Status{name, s})
		}
	}
	slices.SortFunc(out, func(a, b Status) int { return cmp.Compare(a.Group, b.Group) })
	return out, nil
}
