package main

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"time"

	"tidewire/cmd/tidewire/internal/client"
	"tidewire/internal/fault"
)

// fakeGroup is a group of a fake topic with one member at a time, which owns all of it.
// A message that is given back comes again at once, and is dead after its third delivery.
type fakeGroup struct {
	name, topic string
	settings    map[string]any
	member      string
	epoch       uint64
	leased      map[client.Place]bool
	done, dead  map[client.Place]bool
	deliveries  map[client.Place]int
}

const fakeDeliveries = 3

// serveGroups answers what is said of groups.
func (f *fake) serveGroups(mux *http.ServeMux) {
	mux.HandleFunc("POST /groups/{topic}/register", f.with(f.register))
	mux.HandleFunc("POST /groups/{topic}/node", f.with(f.join))
	mux.HandleFunc("GET /groups/{topic}/{$}", f.with(func(w http.ResponseWriter, _ *http.Request, t *fakeTopic) {
		all := []any{}
		for _, g := range f.groups {
			if g.topic == t.name {
				all = append(all, g.describe(t))
			}
		}
		answer(w, 200, map[string]any{"groups": all})
	}))
	one := func(pattern string, do func(http.ResponseWriter, *http.Request, *fakeTopic, *fakeGroup)) {
		mux.HandleFunc(pattern, f.with(func(w http.ResponseWriter, r *http.Request, t *fakeTopic) {
			g := f.groups[t.name+"/"+r.PathValue("group")]
			if g == nil {
				refuse(w, fault.GroupNotFound, "there is no group "+r.PathValue("group"))
				return
			}
			do(w, r, t, g)
		}))
	}
	one("GET /groups/{topic}/{group}", func(w http.ResponseWriter, _ *http.Request, t *fakeTopic, g *fakeGroup) {
		answer(w, 200, g.describe(t))
	})
	one("DELETE /groups/{topic}/{group}", func(w http.ResponseWriter, _ *http.Request, t *fakeTopic, g *fakeGroup) {
		delete(f.groups, t.name+"/"+g.name)
		w.WriteHeader(http.StatusNoContent)
	})
	one("PUT /groups/{topic}/{group}/offsets", f.move)
	one("POST /groups/{topic}/{group}/nodes/{member}/heartbeat", func(w http.ResponseWriter, r *http.Request, t *fakeTopic, g *fakeGroup) {
		answer(w, 200, map[string]any{"epoch": g.epoch, "partitions": t.numbers(), "revoke": []int{}})
	})
	one("DELETE /groups/{topic}/{group}/nodes/{member}", func(w http.ResponseWriter, _ *http.Request, _ *fakeTopic, g *fakeGroup) {
		g.member = ""
		clear(g.leased)
		w.WriteHeader(http.StatusNoContent)
	})
	one("GET /groups/{topic}/{group}/messages", f.take)
	one("POST /groups/{topic}/{group}/ack", f.settle)
}

func (t *fakeTopic) numbers() []int {
	all := []int{}
	for i := range t.logs {
		all = append(all, i)
	}
	return all
}

func (f *fake) register(w http.ResponseWriter, r *http.Request, t *fakeTopic) {
	var s map[string]any
	if err := json.NewDecoder(r.Body).Decode(&s); err != nil {
		refuse(w, fault.Invalid, err.Error())
		return
	}
	name, _ := s["group"].(string)
	if g := f.groups[t.name+"/"+name]; g != nil {
		for k, v := range s {
			if k != "group" && k != "from" && g.settings[k] != v {
				refuse(w, fault.GroupExists, "group "+name+" has another "+k)
				return
			}
		}
		answer(w, 200, g.describe(t))
		return
	}
	g := &fakeGroup{
		name: name, topic: t.name, settings: s,
		leased: map[client.Place]bool{}, done: map[client.Place]bool{}, dead: map[client.Place]bool{}, deliveries: map[client.Place]int{},
	}
	f.groups[t.name+"/"+name] = g
	answer(w, 201, g.describe(t))
}

func (g *fakeGroup) describe(t *fakeTopic) map[string]any {
	members, parts := []any{}, []any{}
	if g.member != "" {
		members = append(members, map[string]any{"member": g.member, "node": "box", "since": "2026-01-31T15:04:05Z", "partitions": t.numbers()})
	}
	for i, log := range t.logs {
		done := 0
		for p := range g.done {
			if p.Partition == uint32(i) {
				done++
			}
		}
		part := map[string]any{
			"partition": i, "member": g.member, "committed": done, "in_flight": len(g.leased), "end": len(log), "lag": len(log) - done,
			"oldest_unacked": nil, "redelivered": 0, "dead": len(g.dead), "expired": 0,
		}
		if t.name == "lost" { // nobody leads it
			for _, k := range []string{"committed", "in_flight", "end", "lag", "redelivered", "dead", "expired"} {
				part[k] = nil
			}
		}
		parts = append(parts, part)
	}
	d := map[string]any{
		"group": g.name, "mode": "exclusive", "lease": "30s", "session": "10s", "max_deliveries": fakeDeliveries, "backoff": "1s", "dead_letter": t.name + "." + g.name + ".dlq",
		"max_in_flight": 256, "members": members, "partitions": parts,
	}
	for k, v := range g.settings {
		if _, known := d[k]; known {
			d[k] = v
		}
	}
	return d
}

func (f *fake) join(w http.ResponseWriter, r *http.Request, t *fakeTopic) {
	var asked struct{ Group, Member string }
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		refuse(w, fault.Invalid, err.Error())
		return
	}
	g := f.groups[t.name+"/"+asked.Group]
	if g == nil {
		refuse(w, fault.GroupNotFound, "there is no group "+asked.Group)
		return
	}
	g.member = asked.Member
	if g.member == "" {
		g.member = "named-by-the-server"
	}
	g.epoch++
	clear(g.leased)
	f.joins <- t.name + "/" + g.name
	answer(w, 200, map[string]any{"member": g.member, "epoch": g.epoch, "heartbeat": "1s", "session": "3s", "partitions": t.numbers()})
}

func (f *fake) take(w http.ResponseWriter, r *http.Request, t *fakeTopic, g *fakeGroup) {
	switch f.takesLocked("take") {
	case "fenced":
		refuse(w, fault.Fenced, "another life of the member began")
		return
	case "break":
		panic(http.ErrAbortHandler)
	}
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	wait, _ := time.ParseDuration(r.URL.Query().Get("wait"))
	all := g.lease(t, limit, f.now())
	if len(all) == 0 {
		changed := f.changed
		f.mu.Unlock()
		select {
		case <-changed:
		case <-time.After(wait):
		case <-r.Context().Done():
		}
		f.mu.Lock()
		all = g.lease(t, limit, f.now())
	}
	answer(w, 200, map[string]any{"messages": all})
}

// lease gives messages that nobody has to the member.
func (g *fakeGroup) lease(t *fakeTopic, limit int, now time.Time) []any {
	all := []any{}
	for i, log := range t.logs {
		for o, m := range log {
			p := client.Place{Partition: uint32(i), Offset: int64(o)}
			if len(all) == limit || g.leased[p] || g.done[p] || g.dead[p] {
				continue
			}
			g.leased[p] = true
			g.deliveries[p]++
			var fields map[string]json.RawMessage
			_ = json.Unmarshal([]byte(m), &fields) // the fake wrote it
			until, _ := now.Add(30 * time.Second).UTC().MarshalJSON()
			fields["lease_until"] = until
			fields["lease_ms"], fields["delivery"] = json.RawMessage("30000"), json.RawMessage(strconv.Itoa(g.deliveries[p]))
			all = append(all, fields)
		}
	}
	return all
}

func (f *fake) settle(w http.ResponseWriter, r *http.Request, _ *fakeTopic, g *fakeGroup) {
	var s client.Settlement
	if err := json.NewDecoder(r.Body).Decode(&s); err != nil {
		refuse(w, fault.Invalid, err.Error())
		return
	}
	if s.Member != g.member || s.Epoch != g.epoch {
		refuse(w, fault.Fenced, "another life of the member began")
		return
	}
	stale := []any{}
	end := func(p client.Place, into map[client.Place]bool) {
		if !g.leased[p] {
			stale = append(stale, map[string]any{"partition": p.Partition, "offset": p.Offset, "reason": "fenced"})
			return
		}
		delete(g.leased, p)
		if into != nil {
			into[p] = true
		}
	}
	for _, p := range s.Ack {
		end(p, g.done)
	}
	for _, p := range s.Nack {
		if g.deliveries[p] >= fakeDeliveries {
			end(p, g.dead)
		} else {
			end(p, nil)
		}
	}
	for _, p := range s.Reject {
		end(p.Place, g.dead)
	}
	answer(w, 200, map[string]any{"stale": stale})
}

func (f *fake) move(w http.ResponseWriter, r *http.Request, t *fakeTopic, g *fakeGroup) {
	var m client.Move
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
		refuse(w, fault.Invalid, err.Error())
		return
	}
	if g.member != "" && !m.Force {
		refuse(w, fault.GroupHasMembers, "group "+g.name+" has members: stop them, or force it")
		return
	}
	moved := []any{}
	for i := range t.logs {
		to, named := m.Offsets[uint32(i)]
		if m.Offsets != nil && !named {
			continue
		}
		from := 0
		for p := range g.done {
			if p.Partition == uint32(i) {
				from++
			}
		}
		moved = append(moved, map[string]any{"partition": i, "from": from, "to": to})
	}
	if !m.DryRun {
		clear(g.done)
	}
	answer(w, 200, map[string]any{"group": g.name, "partitions": slices.Clip(moved)})
}
