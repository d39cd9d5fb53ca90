package httpapi

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"time"

	"tidewire/gateway/group"
	"tidewire/gateway/topology"
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
	"tidewire/internal/wire"
)

// listGroups is GET /groups/{topic}/: the groups of a topic, but for how they stand,
// which takes their leaders.
func (a *API) listGroups(w http.ResponseWriter, r *http.Request) error {
	if err := noQuery(r); err != nil {
		return err
	}
	snapshot := topology.Latest(r.Context(), a.cfg.Topology)
	t, ok := snapshot.Topic(param(r, "topic"))
	if !ok {
		return topology.NotFound(param(r, "topic"))
	}
	all := slices.SortedFunc(snapshot.Groups[t.ID].All(), func(x, y *cluster.Group) int { return cmp.Compare(x.Name, y.Name) })
	share := a.cfg.Held.Share()
	defer share.Close()
	out := heldAnswer{ctx: r.Context(), share: share}
	err := out.add([]byte(`{"groups":[`))
	names := namesOf(snapshot)
	var one []byte
	for i, g := range all {
		if one = one[:0]; i > 0 {
			one = append(one, ',')
		}
		one = beginGroup(one, names, group.View{Index: snapshot.Index, Topic: t, Group: g}).Close()
		if err == nil {
			err = out.add(one)
		}
	}
	if err == nil {
		err = out.add([]byte("]}\n"))
	}
	if err != nil {
		return err
	}
	h := w.Header()
	h["Content-Type"], h["Cache-Control"] = typeJSON, noStore
	w.WriteHeader(http.StatusOK)
	_ = writePieces(w, out.pieces, share) // the client is gone: nobody to tell
	return nil
}

// recordStatus is GET /topics/{topic}/{partition}/{offset}/status.
func (a *API) recordStatus(w http.ResponseWriter, r *http.Request) error {
	if err := noQuery(r); err != nil {
		return err
	}
	i, err := wire.ParsePartition(param(r, "partition"))
	var o ident.Offset
	if err == nil {
		o, err = wire.ParseOffset("offset", param(r, "offset"))
	}
	if err != nil {
		return err
	}
	topic := param(r, "topic")
	all, err := a.cfg.Groups.Status(r.Context(), topic, i, o)
	if err != nil {
		return err
	}
	now := time.Now()
	list := []byte{'['}
	for k, s := range all {
		if k > 0 {
			list = append(list, ',')
		}
		l := wire.Begin(list).Str("group", s.Group).Str("status", string(s.State))
		if s.State == rpc.InFlight {
			l.Str("member", s.Member).Time("lease_until", now.Add(s.Left).UnixMilli())
		}
		if s.Delivery > 0 {
			l.Raw("delivery", strconv.AppendInt(nil, int64(s.Delivery), 10))
		}
		list = l.Close()
	}
	return sendJSON(w, http.StatusOK, wire.Begin(nil).Str("topic", topic).Int("partition", int64(i)).Int("offset", int64(o)).Raw("groups", append(list, ']')).Close())
}
