package httpapi

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"tidewire/gateway/deliver"
	"tidewire/gateway/group"
	"tidewire/gateway/groups"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/wire"
)

// Members is what a client does as a member of a group.
type Members interface {
	Join(ctx context.Context, topic, name, member string) (groups.Membership, error)
	Heartbeat(ctx context.Context, c groups.Caller, says bool, holds []ident.Index) (group.Assignment, error)
	Leave(ctx context.Context, c groups.Caller) error
	Messages(ctx context.Context, q groups.Fetch) (groups.Fetched, error)
	Settle(ctx context.Context, c groups.Caller, entries []wire.Entry) (group.Settled, error)
}

// joinGroup is POST /groups/{topic}/node.
func (a *API) joinGroup(w http.ResponseWriter, r *http.Request) error {
	body, err := a.groupBody(w, r)
	if err != nil {
		return err
	}
	q, err := wire.ParseMembership(body)
	if err != nil {
		return err
	}
	m, err := a.cfg.Groups.Join(r.Context(), param(r, "topic"), q.Group, q.Member)
	if err != nil {
		return err
	}
	session := m.Group.Settings.Session
	return sendJSON(w, http.StatusOK, wire.Begin(nil).Str("member", m.Member).Int("epoch", int64(m.Epoch)).
		Str("heartbeat", formatDuration(group.Heartbeat(session))).Str("session", formatDuration(session)).
		Raw("partitions", indexes(m.Assigned.Held)).Close())
}

// caller is who a call in a group's path speaks for.
func caller(r *http.Request, member string, epoch ident.MemberEpoch) groups.Caller {
	return groups.Caller{Topic: param(r, "topic"), Group: param(r, "group"), Member: member, Epoch: epoch}
}

// heartbeat is POST /groups/{topic}/{group}/nodes/{member}/heartbeat.
func (a *API) heartbeat(w http.ResponseWriter, r *http.Request) error {
	body, err := a.groupBody(w, r)
	if err != nil {
		return err
	}
	h, err := wire.ParseHeartbeat(body)
	if err != nil {
		return err
	}
	has, err := a.cfg.Groups.Heartbeat(r.Context(), caller(r, param(r, "member"), h.Epoch), h.Says, h.Held)
	if err != nil {
		return err
	}
	return sendJSON(w, http.StatusOK, wire.Begin(nil).Int("epoch", int64(h.Epoch)).
		Raw("partitions", indexes(has.Held)).Raw("revoke", indexes(has.Revoked)).Close())
}

// leaveGroup is DELETE /groups/{topic}/{group}/nodes/{member}.
func (a *API) leaveGroup(w http.ResponseWriter, r *http.Request) error {
	q, err := query(r, "epoch")
	if err != nil {
		return err
	}
	var epoch ident.MemberEpoch
	if q.has("epoch") {
		if epoch, err = q.epoch(); err != nil {
			return err
		}
	}
	if err := a.cfg.Groups.Leave(r.Context(), caller(r, param(r, "member"), epoch)); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// epoch is a member's.
func (p params) epoch() (ident.MemberEpoch, error) {
	s, _ := p.get("epoch")
	o, err := wire.ParseOffset("epoch", s)
	if err != nil || o == 0 {
		return 0, invalid("epoch", "is needed: the whole number that the join gave, not %q", clip(s))
	}
	return ident.MemberEpoch(o), nil
}

// settle is POST /groups/{topic}/{group}/ack.
func (a *API) settle(w http.ResponseWriter, r *http.Request) error {
	body, err := a.groupBody(w, r)
	if err != nil {
		return err
	}
	s, err := wire.ParseSettlement(body)
	if err != nil {
		return err
	}
	done, err := a.cfg.Groups.Settle(r.Context(), caller(r, s.Member, s.Epoch), s.Entries)
	if err != nil {
		return err
	}
	answer := group.AppendStale([]byte(`{"stale":`), done.Stale)
	if len(done.Extended) > 0 {
		answer = group.AppendExtended(append(answer, `,"extended":`...), done.Extended, time.Now())
	}
	return sendJSON(w, http.StatusOK, append(answer, '}'))
}

// groupMessages is GET /groups/{topic}/{group}/messages. It changes something, whatever
// its method says: a page of a foreign origin may not call it, nor embed it.
func (a *API) groupMessages(w http.ResponseWriter, r *http.Request) error {
	if err := a.ownRead(r); err != nil {
		return err
	}
	q, err := query(r, "member", "epoch", "limit", "wait", "max_bytes")
	if err != nil {
		return err
	}
	f, err := q.fetch(r)
	if err != nil {
		return err
	}
	f.Wait = whileGranted(r, f.Wait)
	share := a.cfg.Held.Share()
	defer share.Close()
	f.Reserve = func(ctx context.Context) error { return share.Need(ctx, int64(f.MaxBytes), heldPatience) }
	// A node that drains ends waits, which have leased nothing.
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(a.drain, cancel)()
	got, err := a.cfg.Groups.Messages(ctx, f)
	switch {
	case err != nil:
		return err
	case len(got.Lines) == 0 && a.drain.Err() != nil:
		return fault.New(fault.Draining, "the node is shutting down; ask another, or again in a moment")
	}
	if r.Context().Err() != nil || !sendLeased(w, got) {
		got.GiveBack() // the client is gone
	}
	return nil
}

func (p params) fetch(r *http.Request) (f groups.Fetch, err error) {
	member, _ := p.get("member")
	if wrong := ident.CheckMember(member); wrong != nil {
		return f, invalid("member", "is needed: the one that the join gave; %v", wrong)
	}
	epoch, err := p.epoch()
	if err != nil {
		return f, err
	}
	f.Caller = caller(r, member, epoch)
	if f.Limit, err = p.integer("limit", 1, cluster.MaxUnfinished, deliver.DefaultPollLimit); err != nil {
		return f, err
	}
	if f.MaxBytes, err = p.integer("max_bytes", 1, deliver.MaxPollBytes, deliver.DefaultPollBytes); err != nil {
		return f, err
	}
	if s, ok := p.get("wait"); ok {
		f.Wait, err = duration("wait", s, 0, deliver.MaxPollWait)
	}
	return f, err
}

// sendLeased writes messages, which are JSON already. False: not all of them.
func sendLeased(w http.ResponseWriter, got groups.Fetched) bool {
	const head, tail = `{"messages":[`, "]}\n"
	length := len(head) + len(tail) + got.Bytes + max(len(got.Lines)-1, 0)
	h := w.Header()
	h["Content-Type"], h["Cache-Control"] = typeJSON, noStore
	h.Set("Content-Length", strconv.Itoa(length))
	w.WriteHeader(http.StatusOK)
	b := append(make([]byte, 0, min(length, heldPiece)), head...)
	for i, line := range got.Lines {
		if i > 0 {
			b = append(b, ',')
		}
		if len(b)+len(line) > heldPiece && len(b) > 0 {
			if _, err := w.Write(b); err != nil {
				return false
			}
			b = b[:0]
		}
		b = append(b, line...)
		got.Lines[i] = nil
	}
	_, err := w.Write(append(b, tail...))
	return err == nil
}
