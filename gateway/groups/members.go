package groups

import (
	"context"
	"slices"

	"github.com/google/uuid"

	"tidewire/gateway/group"
	"tidewire/gateway/topology"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
)

// Membership is one life of a member as its join began it.
type Membership struct {
	group.View
	Member   string
	Epoch    ident.MemberEpoch
	Assigned group.Assignment
}

// Life names it.
func (m *Membership) Life() cluster.MemberLife { return m.LifeOf(m.Member, m.Epoch) }

// Join begins a life of a member; one without a name gets one. The life before is over,
// but what it owned stays the member's.
func (g *Groups) Join(ctx context.Context, topic, name, member string) (Membership, error) {
	v, err := g.Find(ctx, topic, name)
	if err != nil {
		return Membership{}, err
	}
	if member == "" {
		member = uuid.NewString()
	}
	a, err := g.decided(ctx, topic, name, cluster.Change{MemberJoin: &cluster.MemberJoin{Group: v.Group.ID, Member: member, Node: g.cfg.Self}})
	if err != nil {
		return Membership{}, err
	}
	v.Group, v.Index = a.Group, max(v.Index, a.Index)
	return Membership{View: v, Member: member, Epoch: a.Member, Assigned: v.Assigned(member)}, nil
}

// Heartbeat says that a member lives and, where says is set, what it holds: what it has to
// give up and holds no more goes to the next owner. The answer is what it has.
func (g *Groups) Heartbeat(ctx context.Context, c Caller, says bool, holds []ident.Index) (group.Assignment, error) {
	v, err := g.live(ctx, c)
	if err != nil {
		return group.Assignment{}, err
	}
	asked, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	if err := g.cfg.Pulse.Ask(asked, v.LifeOf(c.Member, c.Epoch)); err != nil {
		return group.Assignment{}, err
	}
	if given := v.Given(c.Member, holds); says && len(given) > 0 {
		for part := range slices.Chunk(given, cluster.MaxRelease) {
			if _, err := g.cfg.Propose(asked, cluster.Change{Release: &cluster.Release{Of: part}}); err != nil {
				return group.Assignment{}, err
			}
		}
		if v, err = g.live(ctx, c); err != nil {
			return group.Assignment{}, err
		}
	}
	return v.Assigned(c.Member), nil
}

// Leave ends a life of a member, whatever life that is where the epoch is 0. What it had
// goes to others at once.
func (g *Groups) Leave(ctx context.Context, c Caller) error {
	if c.Epoch != 0 {
		v, err := g.live(ctx, c)
		if err != nil {
			return err
		}
		return g.leave(ctx, v.LifeOf(c.Member, c.Epoch))
	}
	var life cluster.MemberLife
	err := topology.Find(ctx, g.cfg.Topology, func(s *cluster.Snapshot) error {
		v, err := group.Find(s, c.Topic, c.Group)
		if err != nil {
			return err
		}
		m, ok := v.Group.Member(c.Member)
		if !ok {
			return fault.New(fault.MemberNotFound, "group %q has no member %q", v.Group.Name, c.Member).With("member", c.Member)
		}
		life = v.LifeOf(c.Member, m.Epoch)
		return nil
	})
	if err != nil {
		return err
	}
	return g.leave(ctx, life)
}

func (g *Groups) leave(ctx context.Context, life cluster.MemberLife) error {
	_, err := g.cfg.Propose(ctx, cluster.Change{MemberLeave: &cluster.MemberLeave{MemberLife: life}})
	return err
}

// End ends the life of a membership.
func (g *Groups) End(ctx context.Context, m Membership) error { return g.leave(ctx, m.Life()) }

// Hear notes that a member gave a sign of life.
func (g *Groups) Hear(m Membership) { g.cfg.Pulse.Hear(m.Life()) }
