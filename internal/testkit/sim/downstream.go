package sim

import (
	"slices"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/rpc"
)

// downstream is the leader's end of the stream of one follower.
type downstream struct {
	b        *broker
	stream   *stream
	follower cluster.Life
	heard    time.Duration
	dirty    []int
	answers  rpc.FromLeader // to standings
	sending  bool
	idle     bool // a sign of life is due
}

// serve takes a follower's stream, or refuses it, as broker/link does.
func (b *broker) serve(s *stream, f rpc.Follow) {
	if s.refused || s.d != nil {
		return
	}
	from := b.w.brokerOf(f.Follower.Node)
	known, _ := b.lifeOf(f.Follower.Node)
	former := b.downs[from.index]
	switch {
	case f.Leader != b.self || b.self.Epoch == 0,
		f.Follower.Epoch < known.Epoch,
		former != nil && former.follower.Epoch > f.Follower.Epoch:
		b.w.reached.hit("stream of another life refused")
		s.refused = true
		s.toFollower(func() { s.closeUp(false) })
		return
	}
	if former != nil { // what it said is over before what this one says begins
		former.ends()
	}
	d := &downstream{b: b, stream: s, follower: f.Follower, heard: b.w.now}
	s.d = d
	b.downs[from.index] = d
	d.sign()
	d.watch()
}

// ends closes the stream from the leader's end.
func (d *downstream) ends() {
	s := d.stream
	s.closeDown()
	s.toFollower(func() { s.closeUp(true) })
}

// closed is the end of the stream: every replica hears that the follower is lost.
func (d *downstream) closed() {
	i := d.b.w.brokerOf(d.follower.Node).index
	if d.b.downs[i] == d {
		d.b.downs[i] = nil
	}
	for _, h := range d.b.replicas {
		if h != nil {
			h.replica.Lost(d.follower)
		}
	}
}

// sign sends an empty message now and then when there is nothing else.
func (d *downstream) sign() {
	d.b.w.in(d.b.p, 250*time.Millisecond, func() {
		if d.stream.d != d {
			return
		}
		d.idle = true
		d.rouse()
		d.sign()
	})
}

func (d *downstream) watch() {
	w := d.b.w
	w.in(d.b.p, silence/4, func() {
		switch {
		case d.stream.d != d:
		case w.now-d.heard >= silence:
			w.reached.hit("leader gives a silent stream up")
			d.ends()
		default:
			d.watch()
		}
	})
}

func (d *downstream) mark(part int) {
	d.note(part)
	d.rouse()
}

// note is mark for what goes along with whatever is sent next.
func (d *downstream) note(part int) {
	if !slices.Contains(d.dirty, part) {
		d.dirty = append(d.dirty, part)
	}
}

func (d *downstream) rouse() {
	something := d.idle || len(d.dirty) > 0 || len(d.answers.Divergences)+len(d.answers.Refused) > 0
	if !d.sending && something && d.stream.d == d && d.stream.downFlight < inFlight {
		d.sending = true
		d.b.w.in(d.b.p, d.b.w.between(0, 100*time.Microsecond), d.flush)
	}
}

// receive takes in a follower's message.
func (d *downstream) receive(m *rpc.FromFollower) {
	d.heard = d.b.w.now
	for _, s := range m.Standings {
		r := d.b.replica(s.Partition)
		if r == nil {
			d.answers.Refused = append(d.answers.Refused, rpc.Refused{Partition: s.Partition})
			continue
		}
		answer, refused := r.Standing(d.follower, s)
		if refused != nil {
			d.answers.Refused = append(d.answers.Refused, *refused)
			continue
		}
		d.answers.Divergences = append(d.answers.Divergences, answer)
	}
	for _, h := range m.Held {
		if r := d.b.replica(h.Partition); r != nil {
			d.b.w.held(d.b, h)
			r.Held(d.follower, h)
		}
	}
	d.rouse()
}

// flush sends what partitions have, in one message of bounded size. The answers are
// fetched after the pushes and read before them.
func (d *downstream) flush() {
	s, w := d.stream, d.b.w
	if s.d != d {
		return
	}
	d.sending = false
	var m rpc.FromLeader
	taken := d.dirty
	d.dirty = nil
	for bytes := 0; len(taken) > 0 && bytes < w.set.MessageBytes; taken = taken[1:] {
		bytes += d.gather(&m, taken[0])
	}
	d.dirty = append(slices.Clone(taken), d.dirty...)
	m.Divergences = append(m.Divergences, d.answers.Divergences...)
	m.Refused = append(m.Refused, d.answers.Refused...)
	d.answers = rpc.FromLeader{}
	if len(m.Pushes)+len(m.Divergences)+len(m.Refused) == 0 && !d.idle {
		return
	}
	d.idle = false
	s.downFlight++
	s.toFollower(func() {
		s.downFlight--
		if s.d != nil {
			w.in(s.leader, 0, s.d.rouse)
		}
		if s.u != nil {
			s.u.receive(s, &m)
		}
	})
	d.rouse()
}

// gather adds what a partition has to a message, and gives its size.
func (d *downstream) gather(m *rpc.FromLeader, part int) int {
	r := d.b.replica(d.b.ref(part))
	if r == nil {
		return 0
	}
	out, err := r.Push(d.follower.Node, d.b.w.set.PushBytes)
	if err != nil {
		d.b.w.reached.hit("a push that cannot be read")
		return 0
	}
	if out.More {
		d.mark(part)
	}
	if out.Diverged != nil {
		m.Divergences = append(m.Divergences, *out.Diverged)
		return 100
	}
	if out.Push == nil {
		return 0
	}
	if n := len(out.Push.Batches); n > 0 && d.b.garbles && d.b.w.chance(0.2) {
		d.b.w.reached.hit("push with a flipped bit")
		out.Push.Batches = slices.Clone(out.Push.Batches)
		out.Push.Batches[d.b.w.rng.IntN(n)] ^= 1 << d.b.w.rng.IntN(8)
	}
	m.Pushes = append(m.Pushes, *out.Push)
	return len(out.Push.Batches)
}
