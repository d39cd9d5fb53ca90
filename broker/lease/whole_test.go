package lease

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
)

// whole holds the machine's parts to one another.
func (m *Machine) whole(t interface{ Fatalf(string, ...any) }) {
	seen, inHands, lost := map[slot]bool{}, map[*hand]int{}, 0
	visit := func(s slot, e *entry, aside bool) {
		if seen[s] {
			t.Fatalf("offset %d stands twice", e.offset)
		}
		seen[s] = true
		in := map[string]bool{"ready": slices.Contains(m.ready.slots, s), "timers": slices.Contains(m.timers.slots, s)}
		want := map[string]bool{"ready": e.state == available && !e.held, "timers": e.state == leased || e.state == waiting}
		if !maps.Equal(in, want) {
			t.Fatalf("offset %d in state %d: in %v", e.offset, e.state, in)
		}
		if (e.state == dying) != (e.letter != nil) || (e.state == leased || e.state == acking) != (e.hand != nil) {
			t.Fatalf("offset %d in state %d with letter %v, hand %v", e.offset, e.state, e.letter, e.hand)
		}
		if aside && e.state != acking && e.state != dying {
			t.Fatalf("offset %d is in state %d and was not read", e.offset, e.state)
		}
		if k := m.keys[e.hash]; e.failed && (k == nil || !slices.Contains(k.failed, e.offset)) || e.held && (k == nil || !slices.Contains(k.held, e.offset)) {
			t.Fatalf("offset %d: failed %v, held %v, key %v", e.offset, e.failed, e.held, k)
		}
		if e.failed && e.state != available && e.state != waiting && !(e.state == leased && e.serial != 0 && e.serial != spokenOf) {
			t.Fatalf("offset %d holds others back in state %d", e.offset, e.state)
		}
		if e.state == leased {
			inHands[e.hand]++
			if e.hand.former {
				lost++
			}
		}
	}
	last := ident.Offset(-1)
	for s, e := range m.window.all {
		if e.offset <= last || e.offset >= m.read {
			t.Fatalf("offset %d after %d, read to %d", e.offset, last, m.read)
		}
		last = e.offset
		visit(s, e, false)
	}
	for o, s := range m.window.aside {
		e := m.window.at(s)
		if o < m.read && o >= m.start && e.state != dying { // intents outlive a reset
			t.Fatalf("offset %d is aside, read to %d", o, m.read)
		}
		visit(s, e, true)
	}
	for _, h := range m.hands {
		if h.leased != inHands[h] || h.former {
			t.Fatalf("%s has %d, not %d", h.member, h.leased, inHands[h])
		}
	}
	for h, n := range inHands {
		if h.leased != n || !h.former && m.hands[h.member] != h {
			t.Fatalf("%s, who is gone, has %d", h.member, n)
		}
	}
	for _, k := range m.keys {
		for _, o := range k.failed {
			if s := m.window.find(o); s == none || !m.window.at(s).failed {
				t.Fatalf("offset %d is said to hold its key", o)
			}
		}
	}
	if len(seen) != m.window.len() || lost != m.lost || m.window.len() > cluster.MaxUnfinished {
		t.Fatalf("%d of %d records, %d of %d with owners of before", len(seen), m.window.len(), lost, m.lost)
	}
}

// holder is a lease that was given, as the outside sees it.
type holder struct {
	member string
	epoch  ident.MemberEpoch
	under  int // which machine
	until  time.Time
}

// world is a coordinator, a log, members and a broker, each of them simple.
type world struct {
	t        *rapid.T
	now      time.Time
	index    uint64
	group    cluster.Group
	progress cluster.GroupProgress
	done     map[ident.Offset]string // what ended, and how: the truth of the coordinator
	keys     []uint32                // of the log; 0: none
	holes    map[ident.Offset]bool
	start    ident.Offset
	leader   ident.Epoch
	reset    uint64 // of the machine
	m        *Machine
	machines int

	under []cluster.CommitOf // under way
	twice [][]cluster.CommitOf

	leases    map[ident.Offset]holder // the latest one of each record
	delivered map[ident.Offset]bool   // ever
	nacked    map[ident.Offset]bool   // failed, and not leased since, under this leader
	settled   map[ident.Offset]bool   // acknowledged, and the member was told so
	calls     map[Token][]ident.Offset
	counts    map[ident.Offset]int // leases given
	forgiving bool                 // a takeover or a refusal lets a delivery not count

	lossy bool                    // answers are lost
	made  map[string]*rpc.Hearing // by member and gateway
	lost  map[ident.Offset]bool   // leased in an answer that did not come
}

func newWorld(t *rapid.T, mode cluster.GroupMode) *world {
	w := &world{
		t: t, now: time.Unix(1000, 0), index: 1, leader: 1,
		done: map[ident.Offset]string{}, holes: map[ident.Offset]bool{}, leases: map[ident.Offset]holder{}, delivered: map[ident.Offset]bool{},
		nacked: map[ident.Offset]bool{}, settled: map[ident.Offset]bool{}, calls: map[Token][]ident.Offset{}, counts: map[ident.Offset]int{},
		lossy: rapid.Bool().Draw(t, "lossy"), made: map[string]*rpc.Hearing{}, lost: map[ident.Offset]bool{},
	}
	w.group = cluster.Group{ID: ident.GroupID{1}, Settings: cluster.GroupSettings{
		Mode: mode, Lease: 10 * time.Second, MaxDeliveries: rapid.IntRange(1, 4).Draw(t, "deliveries"),
		Backoff:     time.Duration(rapid.IntRange(0, 2).Draw(t, "backoff")) * time.Second,
		MaxInFlight: rapid.IntRange(1, 8).Draw(t, "inflight"),
	}}
	if mode == cluster.Exclusive {
		w.group.Owners = []cluster.Owner{{Epoch: 1, Released: true}}
	}
	w.progress.Group = w.group.ID
	w.begin(time.Time{})
	return w
}

func (w *world) high() ident.Offset { return ident.Offset(len(w.keys)) }

func (w *world) begin(alone time.Time) { w.beginAs(Config{Alone: alone}) }

func (w *world) beginAs(cfg Config) {
	cfg.Leader = w.leader
	g, p := w.group, w.progress
	g.Members, g.Owners = slices.Clone(g.Members), slices.Clone(g.Owners)
	p.Done = together(slices.Sorted(func(yield func(ident.Offset) bool) {
		for o := range w.done {
			if o >= p.Floor && !yield(o) {
				return
			}
		}
	}))
	w.t.Logf("begin at %v %+v, log from %d to %d", w.now.Unix(), p, w.start, w.high())
	w.m = Begin(w.now, cfg, &g, p, w.start, w.high())
	w.under = nil
	w.machines++
	clear(w.calls)
	clear(w.nacked)
	clear(w.lost)
}

func (w *world) see() {
	w.index++
	w.group.Modified = w.index
	w.forgiving = w.forgiving || len(w.calls) > 0 // whose member goes, counts for nothing
	g := w.group
	g.Members, g.Owners = slices.Clone(g.Members), slices.Clone(g.Owners)
	w.m.See(w.now, &g)
	w.t.Logf("sees %+v %+v", g.Members, g.Owners)
	w.answers()
	w.over()
}

// over begins anew where the machine has to read what the coordinator holds.
func (w *world) over() {
	if !w.m.Over() {
		return
	}
	for _, late := range w.twice { // who reads has what came before
		if rapid.Bool().Draw(w.t, "came") {
			for i := range late {
				w.apply(&late[i])
			}
		}
	}
	w.twice, w.forgiving = nil, true
	was := w.reset
	w.reset = w.group.Reset
	w.beginAs(Config{Alone: w.now, First: was < w.reset})
}

func (w *world) ended(o ident.Offset) bool {
	return w.done[o] != "" || o < w.start || o < w.progress.Floor && w.dying(o) // the group was moved past its intent
}

func (w *world) dying(o ident.Offset) bool {
	return slices.ContainsFunc(w.progress.Intents, func(i cluster.Intent) bool { return i.Offset == o })
}

// apply is the coordinator's part.
func (w *world) apply(of *cluster.CommitOf) bool {
	mine := of.Leader == w.leader && of.Reset == w.group.Reset
	if of.Assignment > 0 {
		mine = mine && w.group.Owners[0].Epoch == of.Assignment
	}
	if of.Member != "" {
		m, ok := w.group.Member(of.Member)
		mine = mine && ok && m.Epoch == of.Epoch
	}
	if !mine {
		return false
	}
	w.t.Logf("applied %+v", *of)
	for _, d := range of.Done {
		for o := d.From; o < d.To; o++ {
			if w.done[o] == "dead" {
				w.t.Fatalf("offset %d is dead and done", o)
			}
			if h, ok := w.leases[o]; ok && of.Assignment+ident.Assignment(of.Epoch) > 0 && h.under == w.machines && h.until.After(w.now) {
				w.t.Fatalf("offset %d is done, and %s, who has it, has not said so", o, h.member)
			}
			if w.lost[o] && of.Assignment+ident.Assignment(of.Epoch) > 0 {
				w.t.Fatalf("offset %d is done, and has not come to anybody who said so", o)
			}
			w.done[o] = "done"
			w.leave(o)
		}
	}
	for _, i := range of.Intents {
		if n := slices.IndexFunc(w.progress.Intents, func(h cluster.Intent) bool { return h.Offset == i.Offset }); n >= 0 {
			if w.progress.Intents[n] != i {
				w.t.Fatalf("intent %v was %v", i, w.progress.Intents[n])
			}
			continue
		}
		if w.done[i.Offset] == "dead" {
			continue // a repeat
		} else if w.done[i.Offset] != "" {
			w.t.Fatalf("intent of %d, which is done", i.Offset)
		}
		if i.Sequence != w.progress.Sequence {
			w.t.Fatalf("intent %v, where %d is next", i, w.progress.Sequence)
		}
		w.progress.Sequence++
		w.progress.Intents = append(w.progress.Intents, i)
		w.progress.Counts = slices.DeleteFunc(w.progress.Counts, func(h cluster.Count) bool { return h.Offset == i.Offset })
	}
	for _, o := range of.Published {
		if n := slices.IndexFunc(w.progress.Intents, func(h cluster.Intent) bool { return h.Offset == o }); n >= 0 {
			w.leave(o)
			w.done[o] = "dead"
		} else if w.done[o] != "dead" {
			w.t.Fatalf("offset %d is published without an intent", o)
		}
	}
	for _, c := range of.Counts {
		if w.done[c.Offset] != "" {
			continue
		}
		w.progress.Counts = slices.DeleteFunc(w.progress.Counts, func(h cluster.Count) bool { return h.Offset == c.Offset })
		w.progress.Counts = append(w.progress.Counts, c)
	}
	w.progress.Floor = max(w.progress.Floor, of.Start)
	for w.done[w.progress.Floor] != "" {
		w.progress.Floor++
	}
	return true
}

func (w *world) leave(o ident.Offset) {
	w.progress.Counts = slices.DeleteFunc(w.progress.Counts, func(h cluster.Count) bool { return h.Offset == o })
	w.progress.Intents = slices.DeleteFunc(w.progress.Intents, func(h cluster.Intent) bool { return h.Offset == o })
}

// give begins a commit; the coordinator gets it now, later, or never.
func (w *world) give() {
	budget := rapid.IntRange(400, 4000).Draw(w.t, "budget")
	w.under = w.m.Delta(budget)
	for i := range w.under {
		b, err := json.Marshal(w.under[i])
		if err != nil {
			w.t.Fatalf("%v", err)
		}
		budget -= len(b)
	}
	if budget < 0 {
		w.t.Fatalf("%d bytes more than allowed", -budget)
	}
}

func (w *world) answer(outcome int) {
	w.t.Logf("outcome %d", outcome)
	taken := make([]bool, len(w.under))
	if outcome < 2 {
		for i := range w.under {
			taken[i] = w.apply(&w.under[i])
			w.forgiving = w.forgiving || !taken[i]
		}
	}
	if outcome == 2 {
		w.twice = append(w.twice, w.under) // it is on its way yet
	}
	if outcome == 0 {
		w.m.Committed(w.now, taken)
	} else {
		w.m.Unknown(w.now)
		w.forgiving = true
	}
	w.under = nil
	w.answers()
	w.over()
}

// answers tells members what is decided.
func (w *world) answers() {
	for _, a := range w.m.Answers() {
		w.forgiving = w.forgiving || len(a.Stale) > 0
		for _, o := range w.calls[a.Token] {
			if !a.Unknown && !slices.ContainsFunc(a.Stale, func(s rpc.Stale) bool { return s.Offset == o }) {
				w.ok(o)
			}
		}
		delete(w.calls, a.Token)
	}
}

func (w *world) ok(o ident.Offset) {
	if !w.ended(o) && !w.holes[o] {
		w.t.Fatalf("offset %d was acknowledged, and the coordinator does not know", o)
	}
	w.settled[o] = true
}

func (w *world) life(m string) cluster.MemberLife {
	l := cluster.MemberLife{Group: w.group.ID, Member: m}
	if c, ok := w.group.Member(m); ok {
		l.Epoch = c.Epoch
	}
	return l
}

func (w *world) records(from ident.Offset, n int) (all []Record, next ident.Offset) {
	for next = max(from, w.start); next < w.high() && len(all) < n; next++ {
		if !w.holes[next] {
			k := w.keys[next]
			all = append(all, Record{Offset: next, Hash: k, Keyed: k > 0, Stamp: 1})
		}
	}
	return all, next
}

func (w *world) take(member string, limit int) []rpc.Lease {
	from, n := w.m.Wants(limit)
	if n > 0 {
		records, next := w.records(from, n)
		w.m.Offer(from, next, records)
	}
	l := w.life(member)
	by := w.gateway(member)
	w.m.Hear(w.now, l, *by) // by.Call is the take that comes now
	ready := w.m.Ready(w.now, l)
	leases, err := w.m.Take(w.now, l, limit, *by)
	by.Call++
	if err != nil && !fault.Is(err, fault.Fenced) || ready != (len(leases) > 0) {
		w.t.Fatalf("ready %v, %d leases: %v", ready, len(leases), err)
	}
	if len(leases) > 0 && rapid.IntRange(0, 9).Draw(w.t, "lost on its way") == 0 {
		var offsets []ident.Offset
		for _, g := range leases {
			offsets = append(offsets, g.Offset)
		}
		w.m.Undo(l, offsets)
		by.Heard = by.Call - 1
		return nil
	}
	if w.lossy && rapid.IntRange(0, 4).Draw(w.t, "lost on the way back") == 0 {
		w.forgiving = true // a lease that nobody had may run out
		for _, g := range leases {
			w.t.Logf("at %d %v does not get to %s", w.now.Unix(), g, member)
			w.lost[g.Offset] = true
			w.gone(g.Offset) // who has it from a former leader has no longer the latest lease
		}
		return nil
	}
	by.Heard = by.Call - 1
	for _, g := range leases {
		w.given(member, l.Epoch, g)
	}
	return leases
}

// gateway is one of a member's, its next take, and what it has heard.
func (w *world) gateway(member string) *rpc.Hearing {
	taker := uint64(1)
	if w.lossy {
		taker = rapid.Uint64Range(1, 2).Draw(w.t, "gateway")
	}
	by := member + string(rune('0'+taker))
	if w.made[by] == nil {
		w.made[by] = &rpc.Hearing{Taker: taker, Call: 1}
	}
	return w.made[by]
}

// given holds a lease to what was promised.
func (w *world) given(member string, epoch ident.MemberEpoch, g rpc.Lease) {
	o := g.Offset
	w.t.Logf("at %d %s gets %v", w.now.Unix(), member, g)
	switch {
	case w.done[o] != "":
		w.t.Fatalf("offset %d is %s and leased", o, w.done[o])
	case w.settled[o]:
		w.t.Fatalf("offset %d was acknowledged and is leased", o)
	}
	if h, ok := w.leases[o]; ok && w.now.Before(h.until) && h.under == w.machines && w.alive(h) {
		w.t.Fatalf("offset %d is with %v", o, h)
	}
	w.counts[o]++
	if !w.forgiving && w.counts[o] != g.Delivery || g.Delivery > w.group.Settings.MaxDeliveries {
		w.t.Fatalf("offset %d was leased %d times, and is now for the %d.", o, w.counts[o], g.Delivery)
	}
	if w.exclusive() {
		for p, h := range w.leases {
			if h.member != member && w.now.Before(h.until) {
				w.t.Fatalf("%s gets %d while %s holds %d", member, o, h.member, p)
			}
		}
		if k := w.keys[o]; k > 0 && !w.delivered[o] {
			for p := range o {
				if w.keys[p] == k && !w.holes[p] && !w.ended(p) && (!w.delivered[p] || w.nacked[p]) && w.waits(p) {
					w.t.Fatalf("offset %d before %d of the same key", o, p)
				}
			}
		}
	}
	w.delivered[o] = true
	delete(w.nacked, o)
	delete(w.lost, o)
	w.leases[o] = holder{member, epoch, w.machines, w.now.Add(g.Left)}
}

// waits says that a record is in nobody's hands and is to come into some.
func (w *world) waits(o ident.Offset) bool {
	state := w.m.Status(w.now, o).State
	return state == rpc.Received || state == rpc.InFlight && w.lost[o]
}

func (w *world) exclusive() bool { return w.group.Settings.Mode == cluster.Exclusive }

func (w *world) alive(h holder) bool {
	m, ok := w.group.Member(h.member)
	return ok && m.Epoch == h.epoch && (!w.exclusive() || w.group.Owners[0].Member == h.member)
}

// free ends leases, as far as the outside is concerned.
func (w *world) free(yes func(holder) bool) {
	maps.DeleteFunc(w.leases, func(_ ident.Offset, h holder) bool { return yes(h) })
}

func (w *world) settle(l cluster.MemberLife, of rpc.SettleOf) {
	for from, n := w.m.Unread(of.Through); n > 0; from, n = w.m.Unread(of.Through) {
		records, next := w.records(from, n)
		w.m.Offer(from, next, records)
	}
	for _, o := range append(slices.Clone(of.Ack), of.Through) { // it says that it had these
		delete(w.lost, o)
	}
	for _, n := range of.Nack {
		delete(w.lost, n.Offset)
	}
	for _, r := range of.Reject {
		delete(w.lost, r.Offset)
	}
	w.m.Hear(w.now, l, *w.gateway(l.Member))
	got, err := w.m.Settle(w.now, l, of)
	w.t.Logf("%v %+v: %v %v", l, of, got, err)
	if err != nil {
		return
	}
	stale := func(o ident.Offset) bool {
		return slices.ContainsFunc(got.Stale, func(s rpc.Stale) bool { return s.Offset == o })
	}
	var acks []ident.Offset
	for _, o := range of.Ack {
		if !stale(o) {
			acks = append(acks, o)
			w.gone(o)
		}
	}
	if o := of.Through; o >= 0 && !stale(o) {
		// All that it has is taken, or named.
		for at := range o + 1 {
			if h, ok := w.leases[at]; (at == o || ok && h.member == l.Member && h.epoch == l.Epoch && h.until.After(w.now)) && !stale(at) {
				acks = append(acks, at)
				w.gone(at)
			}
		}
	}
	for _, n := range of.Nack {
		if !stale(n.Offset) {
			if h, ok := w.leases[n.Offset]; ok && h.member == l.Member {
				w.nacked[n.Offset] = w.m.Status(w.now, n.Offset).State == rpc.Received
				w.gone(n.Offset)
			}
			w.delivered[n.Offset] = true // by a former leader, says the member
		}
	}
	for _, r := range of.Reject {
		if !stale(r.Offset) {
			w.gone(r.Offset)
		}
	}
	for _, x := range got.Extended { // it counts on that, whether the answer with the lease came or not
		w.leases[x.Offset] = holder{l.Member, l.Epoch, w.machines, w.now.Add(x.Left)}
		w.delivered[x.Offset] = true
		delete(w.lost, x.Offset)
	}
	if got.Token > 0 {
		w.calls[got.Token] = acks
		return
	}
	for _, o := range acks {
		w.ok(o)
	}
}

func (w *world) gone(o ident.Offset) { delete(w.leases, o) }

func (w *world) join(member string) {
	w.free(func(h holder) bool { return h.member == member }) // it knows that it begins anew
	w.group.Members = slices.DeleteFunc(slices.Clone(w.group.Members), func(m cluster.Member) bool { return m.ID == member })
	w.group.Members = append(w.group.Members, cluster.Member{ID: member, Epoch: ident.MemberEpoch(w.index + 1)})
	slices.SortFunc(w.group.Members, func(a, b cluster.Member) int { return int(a.ID[0]) - int(b.ID[0]) })
	if o := w.owner(); o != nil && (o.Member == member || o.Member == "") {
		w.own(member, o.Released)
		return
	}
	w.see()
}

// part ends a member's life; it let go, or it is lost.
func (w *world) part(member string, lost bool) {
	w.group.Members = slices.DeleteFunc(slices.Clone(w.group.Members), func(m cluster.Member) bool { return m.ID == member })
	if !lost || !w.exclusive() {
		w.free(func(h holder) bool { return h.member == member })
	}
	if o := w.owner(); o != nil && o.Member == member {
		heir := ""
		if len(w.group.Members) > 0 {
			heir = w.group.Members[0].ID
		}
		w.own(heir, !lost && o.Released)
		return
	}
	if o := w.owner(); o != nil && o.Next == member {
		c := *o
		c.Next, c.Notice = "", 0
		w.group.Owners = []cluster.Owner{c}
	}
	w.see()
}

func (w *world) owner() *cluster.Owner {
	if !w.exclusive() {
		return nil
	}
	return &w.group.Owners[0]
}

func (w *world) own(member string, released bool) {
	w.group.Owners = []cluster.Owner{{Member: member, Epoch: ident.Assignment(w.index + 1), Released: released}}
	w.see()
}

func (w *world) wait(d time.Duration) {
	w.now = w.now.Add(d)
	w.m.Tick(w.now)
	for o, h := range w.leases {
		if !w.now.Before(h.until) {
			delete(w.leases, o)
			w.nacked[o] = w.m.Status(w.now, o).State == rpc.Received && h.under == w.machines
		}
	}
}

func (w *world) takeover() {
	w.leader++
	w.forgiving = true
	w.reset = w.group.Reset
	w.begin(w.now)
}

// move resets the group.
func (w *world) move(to ident.Offset) {
	w.group.Reset++
	w.progress.Reset++
	for o := range w.high() {
		if o >= to {
			delete(w.done, o)
		} else if w.done[o] == "" && !w.dying(o) {
			w.done[o] = "skipped"
		}
	}
	w.progress.Start, w.progress.Floor, w.progress.Counts = to, to, nil
	clear(w.leases)
	clear(w.delivered)
	clear(w.settled)
	clear(w.calls)
	clear(w.counts)
	clear(w.lost)
	w.see()
}

var members = []string{"a", "b", "c"}

func (w *world) step() {
	t := w.t
	member := rapid.SampledFrom(members).Draw(t, "member")
	offset := ident.Offset(rapid.IntRange(0, max(0, len(w.keys))).Draw(t, "offset"))
	switch act := rapid.IntRange(0, 27).Draw(t, "act"); act {
	case 0, 1, 2:
		w.keys = append(w.keys, uint32(rapid.IntRange(0, 3).Draw(t, "key")))
		if rapid.IntRange(0, 9).Draw(t, "hole") == 0 {
			w.holes[w.high()-1] = true
		}
		w.m.Moved(w.now, w.start, w.high())
	case 3, 4, 5, 6:
		w.take(member, rapid.IntRange(1, 5).Draw(t, "limit"))
	case 7, 8, 9:
		for o, h := range w.leases { // a member that works
			if h.member == member && w.life(member).Epoch == h.epoch {
				offset = min(offset, o)
			}
		}
		w.settle(w.life(member), rpc.SettleOf{Ack: []ident.Offset{offset}, Through: -1})
	case 10, 11:
		w.settle(w.life(member), rpc.SettleOf{Through: -1, Nack: []rpc.Nack{{Offset: offset, Delay: time.Duration(rapid.IntRange(-1, 3).Draw(t, "delay")) * time.Second}}})
	case 12:
		for o := range w.lost { // one that it had before, and has again without knowing
			offset = min(offset, o)
		}
		w.settle(w.life(member), rpc.SettleOf{Through: -1, Extend: []ident.Offset{offset}})
	case 13:
		w.settle(w.life(member), rpc.SettleOf{Through: -1, Reject: []rpc.Reject{{Offset: offset, Reason: "<bad>"}}})
	case 27:
		through := ident.Offset(-1)
		for o, h := range w.leases { // the last one that it has
			if h.member == member && w.life(member).Epoch == h.epoch {
				through = max(through, o)
			}
		}
		w.settle(w.life(member), rpc.SettleOf{Through: through})
	case 14, 15, 16:
		if w.under == nil {
			w.give()
		} else {
			w.answer(max(0, rapid.IntRange(-3, 2).Draw(t, "outcome")))
		}
	case 17:
		if len(w.twice) > 0 { // a late one arrives
			for i := range w.twice[0] {
				w.apply(&w.twice[0][i])
			}
			w.twice = w.twice[1:]
		}
	case 18:
		for _, l := range w.m.Letters() {
			if w.progress.Intents == nil || !slices.ContainsFunc(w.progress.Intents, func(i cluster.Intent) bool { return i == l }) {
				t.Fatalf("letter %v without an intent", l)
			}
			w.m.Published(l.Offset)
		}
	case 19:
		w.wait(time.Duration(rapid.IntRange(0, 12).Draw(t, "seconds")) * time.Second)
	case 20:
		w.join(member)
	case 21:
		if _, ok := w.group.Member(member); ok {
			w.part(member, rapid.Bool().Draw(t, "lost"))
		}
	case 22:
		if o := w.owner(); o != nil && o.Member != "" && o.Next == "" && o.Member != member {
			if _, ok := w.group.Member(member); ok {
				c := *o
				c.Next, c.Notice = member, w.index+1
				w.group.Owners = []cluster.Owner{c}
				w.see()
			}
		}
	case 23:
		w.release(rapid.Bool().Draw(t, "by the member"))
	case 24:
		if rapid.IntRange(0, 3).Draw(t, "really") == 0 && w.start < w.high() {
			w.start++
			w.m.Moved(w.now, w.start, w.high())
		}
	case 26:
		if rapid.IntRange(0, 3).Draw(t, "really") == 0 && offset >= w.start {
			w.move(offset)
		}
	case 25:
		if rapid.IntRange(0, 3).Draw(t, "really") == 0 {
			w.takeover()
		}
	}
	w.m.whole(t)
	if f := w.m.Floor(); f < w.high() && f >= w.start {
		for o := range f {
			if !w.ended(o) {
				t.Fatalf("the floor %d passes %d", f, o)
			}
		}
	}
}

// release gives the partition to its next owner.
func (w *world) release(byMember bool) {
	o := w.owner()
	if o == nil || o.Next == "" {
		return
	}
	if of, free := w.m.Free(w.now); free && (of.Epoch != o.Epoch || of.Notice != o.Notice) {
		w.t.Fatalf("free of %+v, not %+v", of, o)
	} else if free {
		for p, h := range w.leases {
			if w.now.Before(h.until) {
				w.t.Fatalf("free, and %s holds %d", h.member, p)
			}
		}
	} else if !byMember {
		return
	}
	if byMember {
		w.free(func(h holder) bool { return h.member == o.Member })
		w.own(o.Next, o.Released)
		return
	}
	w.own(o.Next, true) // drained: also what a former leader may have leased is over
}

// finish lets everybody behave, and wants everything to end.
func (w *world) finish() {
	if len(w.group.Members) == 0 {
		w.join("a")
	}
	for range 400 {
		for _, m := range w.group.Members {
			if o := w.owner(); o != nil && o.Next != "" {
				w.release(false)
			}
			w.take(m.ID, 8)
			var acks []ident.Offset
			for o, h := range w.leases {
				if h.member == m.ID && h.epoch == m.Epoch {
					acks = append(acks, o)
				}
			}
			slices.Sort(acks)
			w.settle(w.life(m.ID), rpc.SettleOf{Ack: acks, Through: -1})
		}
		for _, l := range w.m.Letters() {
			w.m.Published(l.Offset)
		}
		if w.under == nil {
			w.under = w.m.Delta(cluster.MaxCommitBytes)
		}
		if w.under != nil {
			w.answer(0)
		}
		w.m.whole(w.t)
		if w.progress.Floor >= w.high() && w.m.window.len() == 0 && len(w.calls) == 0 {
			return
		}
		w.wait(w.pause())
	}
	w.t.Fatalf("floor %d of %d, %d unfinished, %d calls: %+v", w.progress.Floor, w.high(), w.m.window.len(), len(w.calls), w.m.Standing(w.now))
}

func (w *world) pause() time.Duration {
	if d := w.m.Deadline(); !d.IsZero() {
		return max(0, d.Sub(w.now))
	}
	return 0
}

func TestWhateverHappensEachRecordEndsOnce(t *testing.T) {
	for _, mode := range []cluster.GroupMode{cluster.Exclusive, cluster.Shared} {
		t.Run(string(mode), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				w := newWorld(t, mode)
				for range rapid.IntRange(1, 200).Draw(t, "steps") {
					w.step()
				}
				w.finish()
			})
		})
	}
}
