package httpapi

import (
	"context"
	"net/http"
	"net/url"

	"tidewire/gateway/group"
	"tidewire/gateway/groups"
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
	"tidewire/internal/wire"
)

// Groups serves consumer groups, wherever their coordinator and leaders are;
// *groups.Groups does. Its errors are faults for the client.
type Groups interface {
	Find(ctx context.Context, topic, name string) (group.View, error)
	Register(ctx context.Context, topic, name string, s wire.GroupSettings) (v group.View, created bool, err error)
	Alter(ctx context.Context, topic, name string, patch cluster.GroupPatch) (group.View, error)
	Delete(ctx context.Context, topic, name string) error
	Move(ctx context.Context, topic, name string, m wire.GroupMove) ([]groups.Move, error)
	// Standings are by partition; of those whose leaders do not answer in time there are none.
	Standings(ctx context.Context, v group.View) map[ident.Index]rpc.GroupStanding
	Status(ctx context.Context, topic string, i ident.Index, o ident.Offset) ([]groups.Status, error)
	Members
}

// registerGroup is POST /groups/{topic}/register.
func (a *API) registerGroup(w http.ResponseWriter, r *http.Request) error {
	body, err := a.groupBody(w, r)
	if err != nil {
		return err
	}
	q, err := wire.ParseRegistration(body)
	if err == nil {
		err = groupName(q.Group)
	}
	if err != nil {
		return err
	}
	v, created, err := a.cfg.Groups.Register(r.Context(), param(r, "topic"), q.Group, q.GroupSettings)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
		w.Header().Set("Location", "/groups/"+url.PathEscape(v.Topic.Name)+"/"+url.PathEscape(v.Group.Name))
	}
	return a.sendGroup(w, r, status, v)
}

// groupBody is the body of a call of groups, which takes no parameters.
func (a *API) groupBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if err := noQuery(r); err != nil {
		return nil, err
	}
	return a.controlBody(w, r)
}

// groupName says why no group can have a name.
func groupName(name string) error { return named("group", ident.CheckGroupName(name)) }

// describeGroup is GET /groups/{topic}/{group}.
func (a *API) describeGroup(w http.ResponseWriter, r *http.Request) error {
	if err := noQuery(r); err != nil {
		return err
	}
	v, err := a.cfg.Groups.Find(r.Context(), param(r, "topic"), param(r, "group"))
	if err != nil {
		return err
	}
	return a.sendGroup(w, r, http.StatusOK, v)
}

// alterGroup is PATCH /groups/{topic}/{group}.
func (a *API) alterGroup(w http.ResponseWriter, r *http.Request) error {
	body, err := a.groupBody(w, r)
	if err != nil {
		return err
	}
	patch, err := wire.ParseGroupPatch(body)
	if err != nil {
		return err
	}
	v, err := a.cfg.Groups.Alter(r.Context(), param(r, "topic"), param(r, "group"), patch)
	if err != nil {
		return err
	}
	return a.sendGroup(w, r, http.StatusOK, v)
}

// deleteGroup is DELETE /groups/{topic}/{group}.
func (a *API) deleteGroup(w http.ResponseWriter, r *http.Request) error {
	err := noQuery(r)
	if err == nil {
		err = a.cfg.Groups.Delete(r.Context(), param(r, "topic"), param(r, "group"))
	}
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

// moveGroup is PUT /groups/{topic}/{group}/offsets.
func (a *API) moveGroup(w http.ResponseWriter, r *http.Request) error {
	body, err := a.groupBody(w, r)
	if err != nil {
		return err
	}
	m, err := wire.ParseGroupMove(body)
	if err != nil {
		return err
	}
	name := param(r, "group")
	moves, err := a.cfg.Groups.Move(r.Context(), param(r, "topic"), name, m)
	if err != nil {
		return err
	}
	list := []byte{'['}
	for i, p := range moves {
		if i > 0 {
			list = append(list, ',')
		}
		l := wire.Begin(list).Int("partition", int64(p.Partition))
		if p.From == nil {
			l.Raw("from", null)
		} else {
			l.Int("from", int64(*p.From))
		}
		list = l.Int("to", int64(p.To)).Close()
	}
	return sendJSON(w, http.StatusOK, wire.Begin(nil).Str("group", name).Bool("dry_run", m.DryRun).Raw("partitions", append(list, ']')).Close())
}

// sendGroup answers with a group, its members, and how it stands.
func (a *API) sendGroup(w http.ResponseWriter, r *http.Request, status int, v group.View) error {
	stand := a.cfg.Groups.Standings(r.Context(), v)
	l := beginGroup(nil, namesOf(a.cfg.Topology.Snapshot()), v)
	return sendJSON(w, status, l.Raw("partitions", standings(v, stand)).Close())
}

// beginGroup writes a group but for how it stands.
func beginGroup(b []byte, names names, v group.View) *wire.Line {
	s := &v.Group.Settings
	members := []byte{'['}
	for i := range v.Group.Members {
		if i > 0 {
			members = append(members, ',')
		}
		m := &v.Group.Members[i]
		has := v.Assigned(m.ID)
		members = wire.Begin(members).Str("member", m.ID).Str("node", names.of(m.Node)).Time("since", m.Since.UnixMilli()).
			Raw("partitions", indexes(has.All())).Close()
	}
	return wire.Begin(b).
		Str("group", v.Group.Name).
		Str("topic", v.Topic.Name).
		Str("mode", string(s.Mode)).
		Str("lease", formatDuration(s.Lease)).
		Str("session", formatDuration(s.Session)).
		Int("max_deliveries", int64(s.MaxDeliveries)).
		Str("backoff", formatDuration(s.Backoff)).
		Str("dead_letter", s.DeadLetter).
		Int("max_in_flight", int64(s.MaxInFlight)).
		Time("created", v.Group.Created.UnixMilli()).
		Raw("members", append(members, ']'))
}

func standings(v group.View, stand map[ident.Index]rpc.GroupStanding) []byte {
	list := []byte{'['}
	for k := range v.Topic.Partitions {
		i := v.Topic.Partitions[k].Index
		if k > 0 {
			list = append(list, ',')
		}
		l := wire.Begin(list).Int("partition", int64(i))
		if o := v.Group.Owner(i); o == nil || o.Member == "" {
			l.Raw("member", null)
		} else {
			l.Str("member", o.Member)
		}
		s, known := stand[i]
		for _, n := range []struct {
			name  string
			value int64
		}{{"committed", int64(s.Committed)}, {"in_flight", int64(s.InFlight)}, {"end", int64(s.End)}, {"lag", s.Lag}, {"redelivered", s.Redelivered}, {"dead", s.Dead}, {"expired", s.Expired}} {
			if known {
				l.Int(n.name, n.value)
			} else {
				l.Raw(n.name, null) // nobody leads it at the moment, or its leader does not answer
			}
		}
		if s.Oldest.IsZero() {
			l.Raw("oldest_unacked", null)
		} else {
			l.Time("oldest_unacked", s.Oldest.UnixMilli())
		}
		list = l.Bool("paused", s.Paused).Close()
	}
	return append(list, ']')
}
