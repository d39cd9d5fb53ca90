package liveness

import (
	"bytes"
	"slices"
	"time"

	"tidewire/internal/cluster"
)

// Tick lets time pass.
func (m *Machine) Tick(now time.Time, s *cluster.Snapshot) Actions {
	if !m.leads {
		return Actions{}
	}
	stalled := m.catchUp(now)
	m.Observe(now, s)
	if stalled {
		return Actions{} // what had queued up meanwhile comes before any verdict
	}
	var out Actions
	var dying []*watched
	for _, w := range m.sorted() {
		switch m.judge(w, now) {
		case toProbe:
			out.Probe = append(out.Probe, w.life)
		case isOver:
			dying = append(dying, w)
		}
	}
	if 2*len(dying) > len(m.nodes) && !m.certain(now, dying) {
		if m.doubted.IsZero() || now.Sub(m.doubted) > m.cfg.Lease {
			m.doubted, out.Prove = now, true
		}
		for _, w := range dying {
			if w.asked.Before(m.doubted) && w.probing.IsZero() {
				w.ask(now)
				out.Probe = append(out.Probe, w.life)
			}
		}
		return out
	}
	m.doubted = time.Time{}
	for _, w := range dying {
		w.expired = now
		out.Expire = append(out.Expire, w.life)
	}
	return out
}

// catchUp gives every lease the time that this coordinator was late itself, and says
// whether it was.
func (m *Machine) catchUp(now time.Time) bool {
	late := now.Sub(m.ticked) - m.cfg.Every
	m.ticked = now
	if late <= m.cfg.Every {
		return false
	}
	for _, w := range m.nodes {
		most := now.Add(m.cfg.Lease) // what a renewal of this moment would give
		if w.coming {
			most = now.Add(m.cfg.Coming)
		}
		w.until = latest(w.until, earliest(w.until.Add(late), most))
		w.renewed = earliest(w.renewed.Add(late), now)
		if !w.probing.IsZero() {
			w.probing = earliest(w.probing.Add(late), now)
		}
	}
	return true
}

type verdict uint8

const (
	isFine verdict = iota
	toProbe
	isOver
)

// judge says what to do about one life.
func (m *Machine) judge(w *watched, now time.Time) verdict {
	if !w.expired.IsZero() {
		if now.Sub(w.expired) < m.cfg.Lease {
			return isFine // its end is under way
		}
		w.expired = time.Time{} // and did not come
	}
	if !w.probing.IsZero() && now.Sub(w.probing) >= m.cfg.ProbeWait {
		w.probing, w.suspected = time.Time{}, false
		w.hush()
	}
	lapsed := !w.until.After(now)
	switch {
	case w.refused, w.coming && lapsed, lapsed && w.silent, now.Sub(w.renewed) >= m.cfg.Mute && !w.coming:
		return isOver
	case !w.probing.IsZero():
		return isFine
	case w.suspected, lapsed, w.silent && now.Sub(w.asked) >= m.cfg.ProbeWait:
		w.ask(now)
		return toProbe
	}
	return isFine
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func (w *watched) ask(now time.Time) { w.probing, w.asked = now, now }

// certain says that leadership was proved since the doubt began and not long ago, and
// that all of these were probed since.
func (m *Machine) certain(now time.Time, dying []*watched) bool {
	if m.doubted.IsZero() || m.proved.Before(m.doubted) || now.Sub(m.proved) > m.cfg.Lease {
		return false
	}
	return !slices.ContainsFunc(dying, func(w *watched) bool { return w.asked.Before(m.doubted) || !w.probing.IsZero() })
}

func (m *Machine) sorted() []*watched {
	all := make([]*watched, 0, len(m.nodes))
	for _, w := range m.nodes {
		all = append(all, w)
	}
	slices.SortFunc(all, func(a, b *watched) int { return bytes.Compare(a.life.Node[:], b.life.Node[:]) })
	return all
}
