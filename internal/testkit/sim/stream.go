package sim

import (
	"slices"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
)

// stream carries what one broker follows of another, as broker/link does: in order, each
// direction by itself, with few messages under way. Either end notices by itself that
// it is over: because it is told, or because it hears nothing for too long.
type stream struct {
	w                *World
	follower, leader *process
	flife, llife     int // of the processes
	up, down         pipe
	upFlight         int // messages on their way to the leader
	downFlight       int
	u                *upstream   // nil: the follower's end is closed
	d                *downstream // nil: the leader's end is closed, or not open yet
	refused          bool        // the leader did not take it
}

// inFlight is how many messages go into the sockets between two brokers.
const inFlight = 4

// silence is after how long an end that hears nothing takes a stream for broken.
const silence = 2 * time.Second

func (s *stream) toLeader(do func()) {
	if s.leader.life == s.llife {
		s.w.net.send(s.follower.machine, s.leader, &s.up, do)
	}
}

func (s *stream) toFollower(do func()) {
	if s.follower.life == s.flife {
		s.w.net.send(s.leader.machine, s.follower, &s.down, do)
	}
}

// dies is the end of the process at one end.
func (s *stream) dies(quiet bool, p *process) {
	if p == s.follower {
		s.u = nil
	} else {
		s.d = nil
	}
	if quiet {
		return // the other end finds out by itself
	}
	if p == s.follower {
		s.toLeader(s.closeDown)
	} else {
		s.toFollower(func() { s.closeUp(true) })
	}
}

// closeUp closes the follower's end.
func (s *stream) closeUp(report bool) {
	if u := s.u; u != nil {
		s.u = nil
		u.closed(s, report)
	}
}

// closeDown closes the leader's end.
func (s *stream) closeDown() {
	if d := s.d; d != nil {
		s.d = nil
		d.closed()
	}
}

// upstream is the follower's end of the stream to one leader.
type upstream struct {
	b       *broker
	leader  *broker
	stream  *stream // nil: none is open
	heard   time.Duration
	dirty   []int // partitions
	sending bool
	pause   time.Duration
	cuts    int // logs that are being cut
	reports bool
	ended   bool
}

// want keeps a stream to every leader that the broker follows.
func (b *broker) want() {
	wanted := make([]bool, len(b.w.brokers))
	for _, h := range b.replicas {
		if h != nil && h.leader != b.id && h.leader != (ident.NodeID{}) {
			wanted[b.w.brokerOf(h.leader).index] = true
		}
	}
	for i, u := range b.ups {
		switch {
		case u == nil && wanted[i]:
			b.ups[i] = &upstream{b: b, leader: b.w.brokers[i], pause: 10 * time.Millisecond}
			b.w.in(b.p, 0, b.ups[i].open)
		case u != nil && !wanted[i]:
			u.ended = true
			b.ups[i] = nil
			if s := u.stream; s != nil {
				s.closeUp(false)
				s.toLeader(s.closeDown)
			}
		}
	}
}

// open begins a stream.
func (u *upstream) open() {
	b, w := u.b, u.b.w
	if u.ended || u.stream != nil {
		return
	}
	leader, known := b.lifeOf(u.leader.id)
	if !known || b.self.Epoch == 0 {
		u.later()
		return
	}
	if !u.leader.p.up && w.net.joined(b.p.machine, u.leader.p.machine) { // a connection is refused
		w.in(b.p, 2*w.set.NetMax, func() { u.report(leader); u.later() })
		return
	}
	s := &stream{w: w, follower: b.p, leader: u.leader.p, flife: b.p.life, llife: u.leader.p.life, u: u}
	u.stream = s
	u.heard = w.now
	self := b.self
	s.toLeader(func() { u.leader.serve(s, rpc.Follow{Follower: self, Leader: leader}) })
	for _, r := range b.followed(u.leader.id) {
		r.Opened(u.leader.id)
	}
	u.watch(s)
	s.sign()
}

// later tries again after a pause.
func (u *upstream) later() {
	w := u.b.w
	w.in(u.b.p, u.pause/2+w.between(0, u.pause), u.open)
	u.pause = min(2*u.pause, 500*time.Millisecond)
}

// watch takes the stream for broken when nothing comes through it.
func (u *upstream) watch(s *stream) {
	w := u.b.w
	w.in(u.b.p, silence/4, func() {
		switch {
		case s.u != u:
		case w.now-u.heard >= silence:
			w.reached.hit("follower gives a silent stream up")
			s.closeUp(true)
			s.toLeader(s.closeDown)
		default:
			u.watch(s)
		}
	})
}

// sign is what the connection itself sends to the leader to show that it lives.
func (s *stream) sign() {
	s.w.in(s.follower, silence/4, func() {
		if s.u != nil {
			s.toLeader(func() {
				if s.d != nil {
					s.d.heard = s.w.now
				}
			})
			s.sign()
		}
	})
}

// closed is the end of the stream.
func (u *upstream) closed(s *stream, report bool) {
	if u.stream == s {
		u.stream = nil
	}
	u.sending = false
	if u.cuts > 0 { // as the receiver waits for them
		u.b.w.in(u.b.p, time.Millisecond, func() { u.closed(s, report) })
		return
	}
	for _, r := range u.b.followed(u.leader.id) {
		r.Closed(u.leader.id)
	}
	if leader, ok := u.b.lifeOf(u.leader.id); ok && report && !u.ended {
		u.report(leader)
	}
	if !u.ended {
		u.later()
	}
}

// again ends the stream in hand: the broker has begun a new life.
func (u *upstream) again() {
	u.pause = 10 * time.Millisecond
	if s := u.stream; s != nil {
		s.closeUp(false)
		s.toLeader(s.closeDown)
	}
}

// report tells the coordinator that the leader may be dead.
func (u *upstream) report(leader cluster.Life) {
	if u.reports {
		return
	}
	u.reports = true
	u.b.w.council.report(u.b.p, cluster.Suspicion{From: u.b.id, Life: leader}, func() { u.reports = false })
}

// mark says that a partition has something to say.
func (u *upstream) mark(part int) {
	if !slices.Contains(u.dirty, part) {
		u.dirty = append(u.dirty, part)
	}
	u.rouse()
}

func (u *upstream) rouse() {
	if !u.sending && u.stream != nil && len(u.dirty) > 0 && u.stream.upFlight < inFlight {
		u.sending = true
		s := u.stream
		u.b.w.in(u.b.p, u.b.w.between(0, 100*time.Microsecond), func() { u.send(s) })
	}
}

// send says what partitions have to say, all in one message.
func (u *upstream) send(s *stream) {
	if s.u != u {
		return
	}
	u.sending = false
	var m rpc.FromFollower
	taken := u.dirty
	u.dirty = nil
	for _, part := range taken {
		r := u.b.replica(u.b.ref(part))
		if r == nil {
			continue
		}
		standing, held := r.Say(u.leader.id)
		if standing != nil {
			m.Standings = append(m.Standings, *standing)
		}
		if held != nil {
			m.Held = append(m.Held, *held)
		}
	}
	if len(m.Standings)+len(m.Held) == 0 {
		return
	}
	s.upFlight++
	s.toLeader(func() {
		s.upFlight--
		if s.u != nil {
			s.w.in(s.follower, 0, s.u.rouse)
		}
		if s.d != nil {
			s.d.receive(&m)
		}
	})
}

// receive takes in a leader's message, as broker/link does.
func (u *upstream) receive(s *stream, m *rpc.FromLeader) {
	b, w := u.b, u.b.w
	u.heard = w.now
	for _, f := range m.Refused {
		if r := b.replica(f.Partition); r != nil {
			r.Refused(f)
		}
	}
	for _, d := range m.Divergences {
		r := b.replica(d.Partition)
		if r == nil {
			continue
		}
		if d.Agreed {
			w.diverged(u, d, r.Diverged(d))
			continue
		}
		u.cuts++
		w.note(b.name(), "is told by %s of partition %d: epoch %d ended at %v, the log starts at %d", u.leader.name(), d.Partition.Index, d.Last, d.End, d.Start)
		w.in(b.p, 0, func() {
			err := r.Diverged(d)
			u.cuts--
			w.diverged(u, d, err)
		})
	}
	for i := range m.Pushes {
		p := &m.Pushes[i]
		if r := b.replica(p.Partition); r != nil {
			w.pushed(b, p)
			r.Pushed(*p)
		}
	}
}
