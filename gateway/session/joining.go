package session

import (
	"context"
	"math"
	"slices"
	"strconv"
	"time"

	"tidewire/gateway/access"
	"tidewire/gateway/budget"
	"tidewire/gateway/group"
	"tidewire/gateway/groups"
	"tidewire/gateway/reply"
	"tidewire/internal/fault"
	"tidewire/internal/wire"
)

// Groups serves consumer groups, wherever their coordinator and leaders are;
// *groups.Groups does.
type Groups interface {
	Find(ctx context.Context, topic, name string) (group.View, error)
	Register(ctx context.Context, topic, name string, s wire.GroupSettings) (v group.View, created bool, err error)
	Join(ctx context.Context, topic, name, member string) (groups.Membership, error)
	End(ctx context.Context, m groups.Membership) error
	Hear(m groups.Membership)
	Deliver(ctx context.Context, m groups.Membership, to groups.Outlet) error
	Settler(m groups.Membership) *groups.Settler
}

// membership is a connection's place in a group. Records that were leased for it go into
// the outbox; while some are there that no turn has written, nothing more is leased.
type membership struct {
	groups.Membership
	s       *session
	name    string // of the subscription
	settler *groups.Settler
	stop    context.CancelFunc // ends the deliveries
	ended   chan struct{}      // closed when they have ended
	woken   chan struct{}      // room for one: there may be more room

	// Guarded by the session's mutex.
	gone   bool          // off the connection
	credit int64         // messages the client will take; unbounded
	unsent bool          // messages in the outbox
	share  *budget.Share // what is leased for the outbox, or is about to be
}

func (s *session) join(ctx context.Context, f *wire.Frame) error {
	if err := s.refusesNew(); err != nil {
		return err
	}
	q := f.Join
	if err := s.grant.May(access.Group, q.Topic); err != nil {
		return err
	}
	if s.m.cfg.Groups == nil {
		return fault.New(fault.CoordinatorUnavailable, "this node does not serve groups")
	}
	if err := s.seat(); err != nil {
		return err
	}
	if q.Given {
		v, err := s.m.cfg.Groups.Find(ctx, q.Topic, q.Group)
		if err != nil || !group.Fits(v.Group, &q.Patch) {
			_, _, err = s.m.cfg.Groups.Register(ctx, q.Topic, q.Group, q.GroupSettings)
		}
		if err != nil {
			return err
		}
	}
	m, err := s.m.cfg.Groups.Join(ctx, q.Topic, q.Group, q.Member)
	if err != nil {
		return err
	}
	s.joined(f.ID, m, q.Credit)
	return nil
}

// joined begins the deliveries to a member. Its answer is in the outbox before the first
// of them.
func (s *session) joined(id int64, m groups.Membership, credit int64) {
	s.lastSub++
	ctx, stop := context.WithCancel((*life)(s))
	x := &membership{
		Membership: m, s: s, name: "s" + strconv.Itoa(s.lastSub), settler: s.m.cfg.Groups.Settler(m),
		stop: stop, ended: make(chan struct{}), woken: make(chan struct{}, 1), credit: credit, share: s.m.cfg.Held.Share(),
	}
	s.m.metrics.subscriptions.Inc()
	line := wire.Open(nil, "joined").ID(id).Str("sub", x.name).Str("member", m.Member).Int("epoch", int64(m.Epoch)).
		Raw("partitions", indexes(m.Assigned.Held)).Close()
	s.mu.Lock()
	s.members = append(s.members, x)
	s.beatLocked()
	s.pushLocked(line)
	s.mu.Unlock()
	s.schedule()
	s.m.open.Go(func() {
		defer close(x.ended)
		if err := s.m.cfg.Groups.Deliver(ctx, m, x); err != nil {
			s.fenced(x, err)
		}
		s.schedule() // a goodbye may wait for this
	})
}

// fenced ends a membership whose life is over.
func (s *session) fenced(x *membership, err error) {
	s.mu.Lock()
	if s.forgetLocked(x) {
		s.pushLocked(reply.FrameFor(0, x.name, err))
	}
	s.mu.Unlock()
}

// forgetLocked takes a membership off the connection; false: it was off it.
func (s *session) forgetLocked(x *membership) bool {
	i := slices.Index(s.members, x)
	if i < 0 {
		return false
	}
	s.members = slices.Delete(s.members, i, i+1)
	s.beatLocked()
	x.stop()
	x.gone = true
	x.share.Close()
	s.m.metrics.subscriptions.Dec()
	return true
}

// beatLocked is how often the client is to be pinged: the gateway's ping, or the
// heartbeat of a member.
func (s *session) beatLocked() {
	s.beat = s.m.cfg.Ping
	for _, x := range s.members {
		s.beat = min(s.beat, group.Heartbeat(x.Group.Settings.Session))
	}
}

// hear tells that the connection's members live: their client does.
func (s *session) hear() {
	s.mu.Lock()
	members := slices.Clone(s.members)
	s.mu.Unlock()
	for _, x := range members {
		s.m.cfg.Groups.Hear(x.Membership)
	}
}

func (s *session) memberLocked(name string) *membership {
	for _, x := range s.members {
		if x.name == name {
			return x
		}
	}
	return nil
}

func (s *session) leave(ctx context.Context, f *wire.Frame) error {
	s.mu.Lock()
	x := s.memberLocked(f.Sub)
	s.mu.Unlock()
	if x == nil {
		return noMember(f.Sub)
	}
	x.finish()
	s.mu.Lock()
	s.forgetLocked(x)
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	if err := s.m.cfg.Groups.End(ctx, x.Membership); err != nil && !fault.Is(err, fault.Fenced) {
		return err
	}
	s.push(wire.Open(nil, "left").ID(f.ID).Str("sub", x.name).Close())
	return nil
}

// leaveTime is how long the coordinator may take to hear that a member leaves, whose
// session ends by itself otherwise.
const leaveTime = 5 * time.Second

// finish ends the deliveries and waits until all is settled that the client has said.
func (x *membership) finish() {
	x.stop()
	<-x.ended
	x.settler.Wait()
}

// part ends the memberships of a connection that has ended. leaves says that its client
// has said goodbye: then their lives end too.
func (s *session) part(leaves bool) {
	s.mu.Lock()
	members := slices.Clone(s.members)
	s.mu.Unlock()
	for _, x := range members {
		x.finish()
		if leaves {
			ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
			if err := s.m.cfg.Groups.End(ctx, x.Membership); err != nil {
				s.logger().Debug("a member could not leave; its session ends by itself", "member", x.Member, "err", err)
			}
			cancel()
		}
		s.mu.Lock()
		s.forgetLocked(x)
		s.mu.Unlock()
	}
}

// settle says what the client has done with records. The answer comes when the coordinator
// holds it.
func (s *session) settle(_ context.Context, f *wire.Frame) error {
	s.mu.Lock()
	x := s.memberLocked(f.Sub)
	s.mu.Unlock()
	if x == nil {
		return noMember(f.Sub)
	}
	entries := f.Settle.Entries()
	bytes := flightBytes + len(f.Settle.Reason) + entryBytes*len(entries)
	s.mu.Lock()
	s.inFlight++
	s.flying += bytes
	s.mu.Unlock()
	id := f.ID
	x.settler.Add(entries, func(done group.Settled, err error) { s.settled(x, id, bytes, done, err) })
	return nil
}

// entryBytes is about what an entry holds until it is answered.
const entryBytes = 64

// settled answers what was said of records. Without an id only an error is told.
func (s *session) settled(x *membership, id int64, bytes int, done group.Settled, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight--
	s.flying -= bytes
	switch {
	case err != nil:
		s.pushLocked(reply.Frame(id, err))
	case id != 0:
		l := wire.Open(nil, "acked").ID(id).Str("sub", x.name)
		if len(done.Stale) > 0 {
			l.Raw("stale", group.AppendStale(nil, done.Stale))
		}
		if len(done.Extended) > 0 {
			l.Raw("extended", group.AppendExtended(nil, done.Extended, time.Now()))
		}
		s.pushLocked(l.Close())
	}
	s.relief.Signal()
	s.schedule()
}

func noMember(name string) error {
	return fault.New(fault.Invalid, "field \"sub\": this connection has joined no group as %q", clip(name)).With("field", "sub")
}

// allow raises the credit of a membership; false: there is none of that name.
func (s *session) allowLocked(name string, add int64) (bool, error) {
	x := s.memberLocked(name)
	switch {
	case x == nil:
		return false, nil
	case x.credit == unbounded:
		return true, fault.New(fault.Invalid, "%q joined without \"credit\" and has no bound to raise", x.name).With("field", "sub")
	}
	x.credit = min(x.credit, math.MaxInt64-add) + add
	x.wake()
	return true, nil
}
