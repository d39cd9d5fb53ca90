package session

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// Config tunes a machine. A zero field means its default.
type Config struct {
	Every time.Duration // how often Tick is called, at least; 100 ms
	Again time.Duration // a life that was named and is not over is named again after; 1 s
}

// Machine knows when each member was last heard, while its coordinator leads. One
// goroutine owns it.
type Machine struct {
	cfg     Config
	ticked  time.Time // the last Tick
	seen    uint64    // index of the latest snapshot it was shown
	tables  map[ident.TopicID]*cluster.GroupTable
	groups  map[ident.GroupID]*watched
	members int
	next    time.Time // before that no session can be over
}

// watched is a group, with when each of its members was last heard.
type watched struct {
	group *cluster.Group
	heard []time.Time
}

// New is a machine of a coordinator that leads from now on and has applied all that was
// committed.
func New(cfg Config, now time.Time, s *cluster.Snapshot) *Machine {
	cfg.Every = cmp.Or(cfg.Every, 100*time.Millisecond)
	cfg.Again = cmp.Or(cfg.Again, time.Second)
	m := &Machine{cfg: cfg, ticked: now, tables: map[ident.TopicID]*cluster.GroupTable{}, groups: map[ident.GroupID]*watched{}, next: now}
	m.observe(now, s)
	return m
}

// Members is how many it knows.
func (m *Machine) Members() int { return m.members }

// Touch takes signs of life that arrived at a time, and names those of lives that are
// over. A life that begins later than the snapshot says nothing about is not.
func (m *Machine) Touch(now, arrived time.Time, s *cluster.Snapshot, signs []cluster.SignOfLife) cluster.Lost {
	m.observe(now, s)
	var lost cluster.Lost
	for i := range signs {
		sign := &signs[i]
		if w := m.groups[sign.Group]; w != nil {
			k, ok := slices.BinarySearchFunc(w.group.Members, sign.Member, byID)
			if ok && w.group.Members[k].Epoch == sign.Epoch {
				if at := arrived.Add(-max(sign.Ago, 0)); at.After(w.heard[k]) {
					w.heard[k] = at
				}
				continue
			}
		}
		if uint64(sign.Epoch) <= m.seen {
			lost.Lives = append(lost.Lives, i)
		}
	}
	return lost
}

func byID(m cluster.Member, id string) int { return cmp.Compare(m.ID, id) }

// Tick lets time pass, and names the lives that are over. All signs of life that have
// come are told before.
func (m *Machine) Tick(now time.Time, s *cluster.Snapshot) []cluster.MemberLife {
	stalled := m.catchUp(now)
	m.observe(now, s)
	if stalled || now.Before(m.next) {
		return nil
	}
	var over []cluster.MemberLife
	m.next = now.Add(cluster.MaxSession)
	for id, w := range m.groups {
		for k := range w.heard {
			if !w.ends(k).After(now) {
				over = append(over, cluster.MemberLife{Group: id, Member: w.group.Members[k].ID, Epoch: w.group.Members[k].Epoch})
				w.heard[k] = now.Add(m.cfg.Again - w.group.Settings.Session)
			}
			m.due(w.ends(k))
		}
	}
	slices.SortFunc(over, func(a, b cluster.MemberLife) int {
		return cmp.Or(bytes.Compare(a.Group[:], b.Group[:]), cmp.Compare(a.Member, b.Member))
	})
	return over
}

// ends is when the session of a member is over, if nothing is heard of it.
func (w *watched) ends(k int) time.Time { return w.heard[k].Add(w.group.Settings.Session) }

// due notes that a session may end so early.
func (m *Machine) due(at time.Time) {
	if at.Before(m.next) {
		m.next = at
	}
}

// catchUp gives every session the time that this coordinator was late itself, and says
// whether it was.
func (m *Machine) catchUp(now time.Time) bool {
	late := now.Sub(m.ticked) - m.cfg.Every
	m.ticked = now
	if late <= m.cfg.Every {
		return false
	}
	for _, w := range m.groups {
		for k, at := range w.heard {
			if at = at.Add(late); at.After(now) {
				at = now
			}
			w.heard[k] = at
		}
	}
	return true
}

// observe takes in which members there are. It looks at groups that changed, no others.
func (m *Machine) observe(now time.Time, s *cluster.Snapshot) {
	if s.Index <= m.seen && m.seen > 0 {
		return
	}
	count := 0
	for topic, t := range s.Groups {
		count += t.Len()
		if m.tables[topic] == t {
			continue
		}
		m.tables[topic] = t
		for g := range t.Since(m.seen) {
			m.take(now, g)
		}
	}
	m.seen = s.Index
	if len(m.groups) == count {
		return
	}
	for id, w := range m.groups { // some went
		if g := s.Groups[w.group.Topic].Get(w.group.Name); g == nil || g.ID != id {
			m.members -= len(w.heard)
			delete(m.groups, id)
		}
	}
	for topic := range m.tables {
		if s.Groups[topic] == nil {
			delete(m.tables, topic)
		}
	}
}

// take keeps when the members of a changed group were heard; one in a new life was just now.
func (m *Machine) take(now time.Time, g *cluster.Group) {
	was := m.groups[g.ID]
	if was == nil {
		was = &watched{group: &cluster.Group{}}
	}
	w := &watched{group: g, heard: make([]time.Time, len(g.Members))}
	k := 0
	for i := range g.Members {
		for k < len(was.heard) && was.group.Members[k].ID < g.Members[i].ID {
			k++
		}
		w.heard[i] = now
		if k < len(was.heard) && was.group.Members[k].ID == g.Members[i].ID && was.group.Members[k].Epoch == g.Members[i].Epoch {
			w.heard[i] = was.heard[k]
		}
		m.due(w.ends(i))
	}
	m.members += len(w.heard) - len(was.heard)
	m.groups[g.ID] = w
}
