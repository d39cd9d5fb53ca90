package membership

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"tidewire/internal/ident"
	"tidewire/internal/sleep"
)

const (
	// aloneEvery is how often others are looked for while there is nobody, lostEvery
	// while some that were known are missing. seedEvery is how often seeds are joined
	// anyhow: the other side of a long split knows nothing of this one any more.
	aloneEvery = time.Second
	lostEvery  = 5 * time.Second
	seedEvery  = 30 * time.Second
	// twinsFor is how long two may live under one name until it is said: one that comes
	// in another's place meets its memory for a while.
	twinsFor = 30 * time.Second
	// maxPeers bounds the addresses that are remembered.
	maxPeers = 256
	// settledFor is how long a decision to found must stand.
	settledFor = 300 * time.Millisecond
)

// Run gossips until ctx ends, then tells the others that this node leaves.
func (m *Membership) Run(ctx context.Context) error {
	var kept []string
	if m.cfg.Peers != nil {
		kept = m.cfg.Peers.Load()
	}
	var seeded, told time.Time
	twins, strangers := map[string]time.Time{}, map[ident.ClusterID]bool{}
	for {
		now := time.Now()
		alone := len(m.View().Nodes) <= 1
		want := some(missing(m.View(), kept))
		if alone || now.Sub(seeded) >= seedEvery {
			seeded = now
			want = append(want, m.cfg.Seeds...)
		}
		m.join(ctx, want)
		kept = m.remember(kept)
		if now.Sub(told) >= lostEvery {
			told = now
			m.tellTwins(twins, now)
			m.tellStrangers(strangers)
		}
		pause := lostEvery
		if alone {
			pause = aloneEvery
		}
		if !sleep.For(ctx, pause-rand.N(pause/4)) {
			return m.Close()
		}
	}
}

// join exchanges the whole state with nodes at addresses.
func (m *Membership) join(ctx context.Context, addresses []string) {
	self := m.Addr()
	for _, a := range addresses {
		if a == self || ctx.Err() != nil {
			continue
		}
		m.mu.Lock()
		list := m.list
		m.mu.Unlock()
		if list == nil {
			return
		}
		if _, err := list.Join([]string{a}); err != nil {
			m.cfg.Logger.Debug("nobody was joined", "address", a, "err", err)
		}
	}
}

// some picks a few at random: each may take exchangeLimit to say nothing.
func some(addresses []string) []string {
	rand.Shuffle(len(addresses), func(i, j int) { addresses[i], addresses[j] = addresses[j], addresses[i] })
	return addresses[:min(len(addresses), 4)]
}

// missing are the addresses of old at which nobody is now.
func missing(v *View, kept []string) []string {
	return slices.DeleteFunc(slices.Clone(kept), func(a string) bool {
		return slices.ContainsFunc(v.Nodes, func(n Node) bool { return n.Addresses.Gossip == a })
	})
}

// remember keeps the addresses of the nodes that are there, and of those of old as
// long as there is room.
func (m *Membership) remember(kept []string) []string {
	self, v := m.Self(), m.View()
	var now []string
	for _, n := range v.Nodes {
		if n.ID != self.ID {
			now = append(now, n.Addresses.Gossip)
		}
	}
	all := append(slices.Clone(now), missing(v, kept)...)
	all = all[:min(len(all), maxPeers)]
	slices.Sort(all)
	all = slices.Compact(all)
	if slices.Equal(all, kept) || m.cfg.Peers == nil {
		return all
	}
	if err := m.cfg.Peers.Save(all); err != nil {
		m.cfg.Logger.Warn("the addresses of other nodes are not kept", "err", err)
		return kept
	}
	return all
}

// tellTwins warns of nodes that stay twice.
func (m *Membership) tellTwins(since map[string]time.Time, now time.Time) {
	twins := m.view.twins()
	for t := range since {
		if !slices.Contains(twins, t) {
			delete(since, t)
		}
	}
	for _, t := range twins {
		if _, known := since[t]; !known {
			since[t] = now
		} else if now.Sub(since[t]) >= twinsFor {
			m.cfg.Logger.Error("two nodes cannot be told apart: stop one of them", "nodes", t)
			since[t] = now
		}
	}
}

// tellStrangers says once of each other cluster that its nodes were met: whoever started
// a node on a folder of that one, or with addresses of this one, sees it serve.
func (m *Membership) tellStrangers(told map[ident.ClusterID]bool) {
	for id, address := range m.view.metStrangers() {
		if !told[id] {
			told[id] = true
			m.cfg.Logger.Warn("a node of another cluster was met: neither joins the other. With an empty data folder it would join the cluster that it finds",
				"its_cluster", id.String(), "cluster", m.Self().Cluster.String(), "address", address)
		}
	}
}

// Settle waits until it is decided whether this node founds a cluster or joins one.
// It tells the others what it waits for, and whom it sees.
func (m *Membership) Settle(ctx context.Context, expect int) (Decision, error) {
	if err := m.Update(func(n *Node) { n.Empty, n.Expect = true, expect }); err != nil {
		return Decision{}, err
	}
	why := ""
	var standing time.Time // since when the decision is to found; zero: it is not
	exchanged := time.Now()
	for {
		v := m.View()
		me, seen := candidates(m.Self(), v)
		if sees := Sees(me, seen, expect); sees != me.Sees {
			if err := m.Update(func(n *Node) { n.Sees = sees }); err != nil {
				m.cfg.Logger.Info("the others are not told whom this node sees", "err", err)
			}
			standing = time.Time{}
			continue
		}
		d := Founder(me, seen, expect)
		if d.Why != why {
			why = d.Why
			m.cfg.Logger.Info("whether this node founds a cluster", "decision", d.Do.String(), "why", d.Why)
		}
		switch now := time.Now(); {
		case d.Do == Join, d.Do == Found && expect == 1:
			return d, nil
		case d.Do == Wait:
			standing = time.Time{}
		case standing.IsZero():
			standing = now
		case now.Sub(standing) >= settledFor:
			return d, nil
		}
		if d.Do == Wait && time.Since(exchanged) >= aloneEvery {
			// News go out by datagrams a few times, and then with an exchange that is far off:
			// who waits for some that were lost asks for them.
			m.join(ctx, addressesOf(v))
			exchanged = time.Now()
		}
		limited, cancel := context.WithTimeout(ctx, settledFor)
		_, err := m.Next(limited, v.Version)
		cancel()
		if err != nil && ctx.Err() != nil {
			return Decision{}, context.Cause(ctx)
		} else if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return Decision{}, err
		}
	}
}

func addressesOf(v *View) (all []string) {
	for _, n := range v.Nodes {
		all = append(all, n.Addresses.Gossip)
	}
	return some(all)
}

// Decision is what Settle makes of what is known at this moment.
func (m *Membership) Decision(expect int) Decision {
	me, seen := candidates(m.Self(), m.View())
	return Founder(me, seen, expect)
}

// candidates are the coordinators of a view, and this node.
func candidates(self Node, v *View) (me Candidate, seen []Candidate) {
	as := func(n *Node) Candidate {
		return Candidate{ID: n.ID, Empty: n.Empty && n.Cluster == (ident.ClusterID{}), Expect: n.Expect, Cluster: n.Cluster, Sees: n.Sees}
	}
	for i := range v.Nodes {
		if n := &v.Nodes[i]; n.Coordinator() && n.ID != self.ID {
			seen = append(seen, as(n))
		}
	}
	return as(&self), seen
}
