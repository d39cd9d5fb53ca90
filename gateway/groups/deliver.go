package groups

import (
	"context"
	"slices"
	"sync"
	"time"

	"tidewire/gateway/group"
	"tidewire/internal/ident"
	"tidewire/internal/sleep"
)

// Fetch asks for leased messages, once.
type Fetch struct {
	Caller
	Limit    int
	MaxBytes int
	Wait     time.Duration
	// Reserve is called before anything is leased: an error leases nothing.
	Reserve func(ctx context.Context) error
}

// Fetched is what was leased: lines without newlines, in the order in which they are to
// be worked on.
type Fetched struct {
	Lines [][]byte
	Bytes int

	from []origin
}

// origin is the take in which something was leased.
type origin struct {
	hand   *hand
	leader ident.NodeID
	call   uint64
}

func (f *Fetched) add(lines [][]byte) {
	f.Lines = append(f.Lines, lines...)
	for _, l := range lines {
		f.Bytes += len(l)
	}
}

// GiveBack says that the client went away before it had its answer. What is leased in it is
// available again once its leaders hear of that, and was no delivery; but for what they were
// told meanwhile to have come, by another call of the member.
func (f *Fetched) GiveBack() {
	for _, o := range f.from {
		o.hand.lose(o.leader, o.call)
	}
}

// Messages leases what there is, or waits for it.
func (g *Groups) Messages(ctx context.Context, q Fetch) (Fetched, error) {
	v, err := g.live(ctx, q.Caller)
	if err != nil {
		return Fetched{}, err
	}
	m := Membership{View: v, Member: q.Member, Epoch: q.Epoch}
	g.Hear(m)
	defer g.hands.begin(m.Life()).end() // what leaders have said outlasts the first pull
	f := &fetching{m: m, q: q, ctx: ctx}
	defer g.keepAlive(m)()
	// What there is comes from all leaders alike. Only where nobody has anything does the
	// first count who does.
	look := lookTime
	if q.Wait > 0 {
		look = min(2*gatherTime, q.Wait)
	}
	err = g.pull(ctx, m, f, true, time.After(look))
	if nothing := len(f.got.Lines) == 0 && f.err == nil && (err == nil || passing(err) || stays(err)); nothing && q.Wait > 0 {
		err = g.pull(ctx, m, f, false, time.After(q.Wait))
	}
	if len(f.got.Lines) > 0 {
		return f.got, nil // it is leased
	}
	if f.err != nil {
		err = f.err
	}
	return f.got, err
}

// keepAlive gives signs of life for a member who waits here, until end is called.
func (g *Groups) keepAlive(m Membership) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var beating sync.WaitGroup
	beating.Go(func() {
		for sleep.For(ctx, group.Heartbeat(m.Group.Settings.Session)) {
			g.Hear(m)
		}
	})
	return func() {
		cancel()
		beating.Wait()
	}
}

// fetching is the sink of one fetch.
type fetching struct {
	m    Membership
	q    Fetch
	ctx  context.Context
	got  Fetched
	err  error
	open bool // there is room reserved
}

func (f *fetching) room() (messages, bytes int) {
	if f.err == nil && !f.open && f.q.Reserve != nil {
		f.err = f.q.Reserve(f.ctx)
	}
	f.open = true
	if f.err != nil {
		return 0, 0
	}
	return f.q.Limit - len(f.got.Lines), f.q.MaxBytes - f.got.Bytes
}

func (f *fetching) woken() <-chan struct{}    { return nil }
func (f *fetching) assigned(group.Assignment) {}

func (f *fetching) take(got Fetched) bool {
	f.got.add(got.Lines)
	f.got.from = append(f.got.from, got.from...)
	return len(f.got.Lines) > 0
}

// Outlet is where deliveries to a member go. All of it is called by one goroutine and
// does not wait.
type Outlet interface {
	// Room is how many messages may be brought now, and about how many bytes of them.
	Room() (messages, bytes int)
	// Woken gives when there may be more room than before.
	Woken() <-chan struct{}
	// Assigned tells which partitions have become the member's own, and which are no
	// more: of these nothing new comes.
	Assigned(gained, lost []ident.Index)
	// Messages brings lines without newlines, in the order in which they are to be
	// worked on, for the room that was given last; perhaps none. They are leased: false
	// says that they do not go out, and is to be given back what they are.
	Messages(lines [][]byte, bytes int) bool
}

// Deliver brings a member what is leased to it until ctx ends (nil) or its life is over,
// which is the error.
func (g *Groups) Deliver(ctx context.Context, m Membership, to Outlet) error {
	return g.pull(ctx, m, &delivering{m: m, to: to, told: m.Assigned}, false, nil)
}

type delivering struct {
	m    Membership
	to   Outlet
	told group.Assignment
}

func (d *delivering) room() (messages, bytes int) { return d.to.Room() }
func (d *delivering) woken() <-chan struct{}      { return d.to.Woken() }

func (d *delivering) assigned(now group.Assignment) {
	if gained, lost := now.Changes(d.told); len(gained) > 0 || len(lost) > 0 {
		d.told = group.Assignment{Held: slices.Clone(now.Held)}
		d.to.Assigned(gained, lost)
	}
}

func (d *delivering) take(got Fetched) bool {
	if !d.to.Messages(got.Lines, got.Bytes) {
		got.GiveBack()
	}
	return false
}
