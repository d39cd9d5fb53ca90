package state

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
)

// The names of a group's settings, as the API has them.
const (
	fieldMode       = "mode"
	fieldLease      = "lease"
	fieldSession    = "session"
	fieldDeliveries = "max_deliveries"
	fieldBackoff    = "backoff"
	fieldDeadLetter = "dead_letter"
	fieldInFlight   = "max_in_flight"
)

// checkGroupPatch checks each given setting by itself.
func checkGroupPatch(p *cluster.GroupPatch) *cluster.Refusal {
	if v := p.Mode; v != nil && *v != cluster.Exclusive && *v != cluster.Shared {
		return outside(fieldMode, fmt.Sprintf("%q", clip(string(*v))), fmt.Sprintf("%q or %q", cluster.Exclusive, cluster.Shared))
	}
	if v := p.Lease; v != nil && (*v < cluster.MinLease || *v > cluster.MaxLease) {
		return outside(fieldLease, short(*v), fmt.Sprintf("%s to %s", short(cluster.MinLease), short(cluster.MaxLease)))
	}
	if v := p.Session; v != nil && (*v < cluster.MinSession || *v > cluster.MaxSession) {
		return outside(fieldSession, short(*v), fmt.Sprintf("%s to %s", short(cluster.MinSession), short(cluster.MaxSession)))
	}
	if v := p.MaxDeliveries; v != nil && (*v < 1 || *v > cluster.MaxMaxDeliveries) {
		return outside(fieldDeliveries, *v, upTo(cluster.MaxMaxDeliveries))
	}
	if v := p.Backoff; v != nil && (*v < 0 || *v > cluster.MaxBackoff) {
		return outside(fieldBackoff, short(*v), fmt.Sprintf("0 (none) to %s", short(cluster.MaxBackoff)))
	}
	if v := p.MaxInFlight; v != nil && (*v < 1 || *v > cluster.MaxUnfinished) {
		return outside(fieldInFlight, *v, upTo(cluster.MaxUnfinished))
	}
	return nil
}

// checkDeadLetter checks where the dead records of a group of a topic are to go.
func checkDeadLetter(t *cluster.Topic, name string) *cluster.Refusal {
	wrong := func(kind fault.Kind, detail string) *cluster.Refusal {
		r := refuse(kind, fieldDeadLetter+": "+detail)
		r.Field = fieldDeadLetter
		return r
	}
	if name == t.Name {
		return wrong(fault.Invalid, "a group's dead records cannot go to the topic that they come from: it would get them again")
	}
	if err := ident.CheckTopicName(name); err != nil {
		if errors.Is(err, ident.ErrReserved) {
			return wrong(fault.ReservedName, err.Error())
		}
		return wrong(fault.Invalid, err.Error()+"; give one of your own if the default does not do")
	}
	return nil
}

// groupDefaults fills in what a new group was not given. The dead records of one of the
// cluster's own topics go to one that is not: those are not for anybody to make.
func groupDefaults(t *cluster.Topic, name string, p *cluster.GroupPatch) cluster.GroupSettings {
	return groupPatched(cluster.GroupSettings{
		Mode:          cluster.Exclusive,
		Lease:         cluster.DefaultLease,
		Session:       cluster.DefaultSession,
		MaxDeliveries: cluster.DefaultMaxDeliveries,
		Backoff:       cluster.DefaultBackoff,
		DeadLetter:    cmp.Or(strings.TrimLeft(t.Name, "_"), "dead") + "." + name + ".dlq",
		MaxInFlight:   cluster.DefaultMaxInFlight,
	}, p)
}

// groupPatched puts the given settings over those there are.
func groupPatched(s cluster.GroupSettings, p *cluster.GroupPatch) cluster.GroupSettings {
	set(&s.Mode, p.Mode)
	set(&s.Lease, p.Lease)
	set(&s.Session, p.Session)
	set(&s.MaxDeliveries, p.MaxDeliveries)
	set(&s.Backoff, p.Backoff)
	set(&s.DeadLetter, p.DeadLetter)
	set(&s.MaxInFlight, p.MaxInFlight)
	return s
}

// groupDifferences compares the settings that were given with those of a group that
// exists; the rest is not looked at.
func groupDifferences(g *cluster.Group, p *cluster.GroupPatch) (names, texts []string) {
	s := g.Settings
	compare := func(name string, same bool, given, is any) {
		if !same {
			names = append(names, name)
			texts = append(texts, fmt.Sprintf("%s is %v, not %v", name, is, given))
		}
	}
	if v := p.Mode; v != nil {
		compare(fieldMode, *v == s.Mode, *v, s.Mode)
	}
	if v := p.Lease; v != nil {
		compare(fieldLease, *v == s.Lease, short(*v), short(s.Lease))
	}
	if v := p.Session; v != nil {
		compare(fieldSession, *v == s.Session, short(*v), short(s.Session))
	}
	if v := p.MaxDeliveries; v != nil {
		compare(fieldDeliveries, *v == s.MaxDeliveries, *v, s.MaxDeliveries)
	}
	if v := p.Backoff; v != nil {
		compare(fieldBackoff, *v == s.Backoff, short(*v), short(s.Backoff))
	}
	if v := p.DeadLetter; v != nil {
		compare(fieldDeadLetter, *v == s.DeadLetter, clip(*v), s.DeadLetter)
	}
	if v := p.MaxInFlight; v != nil {
		compare(fieldInFlight, *v == s.MaxInFlight, *v, s.MaxInFlight)
	}
	return names, texts
}
