package rpc

import (
	"google.golang.org/protobuf/encoding/protowire"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
	"tidewire/internal/record"
)

// followRequest is tidewirepb.FollowRequest: the opening, or what a follower says.
type followRequest struct {
	opening *Follow
	from    *FromFollower
}

// followResponse is tidewirepb.FollowResponse.
type followResponse struct{ from *FromLeader }

func (e *encoder) position(field protowire.Number, p record.Position) {
	e.varint(field, uint64(p.Offset))
	e.varint(field+1, uint64(p.Voids))
}

func (e *encoder) life(field protowire.Number, l cluster.Life) {
	at := e.small(field)
	e.bytes(1, l.Node[:])
	e.varint(2, uint64(l.Epoch))
	e.end(at)
}

func (m *followRequest) encode(e *encoder) {
	if o := m.opening; o != nil {
		e.begin()
		at := e.small(1)
		e.life(1, o.Follower)
		e.life(2, o.Leader)
		e.end(at)
		return
	}
	f := m.from
	e.begin()
	for i := range f.Standings {
		s := &f.Standings[i]
		at := e.small(2)
		e.partition(1, s.Partition)
		e.varint(2, uint64(s.Epoch))
		e.position(3, s.End)
		e.varint(5, uint64(s.Last))
		e.varint(6, s.Version)
		e.end(at)
	}
	for i := range f.Held {
		h := &f.Held[i]
		at := e.small(3)
		e.partition(1, h.Partition)
		e.varint(2, uint64(h.Epoch))
		e.position(3, h.Durable)
		e.bool(5, h.Watched)
		e.end(at)
	}
}

func (m *followRequest) decode(b []byte) error {
	m.opening = nil
	f := m.from
	f.Standings, f.Held = f.Standings[:0], f.Held[:0]
	d := decoder{rest: b}
	for d.next() {
		switch d.field {
		case 1:
			m.opening = &Follow{}
			d.inner(m.opening.decode(d.b))
		case 2:
			f.Standings = append(f.Standings, Standing{})
			d.inner(f.Standings[len(f.Standings)-1].decode(d.b))
		case 3:
			f.Held = append(f.Held, Held{})
			d.inner(f.Held[len(f.Held)-1].decode(d.b))
		}
	}
	return d.err
}

func (f *Follow) decode(b []byte) error {
	d := decoder{rest: b}
	for d.next() {
		switch d.field {
		case 1:
			f.Follower = d.life()
		case 2:
			f.Leader = d.life()
		}
	}
	return d.err
}

func (d *decoder) life() (l cluster.Life) {
	in := decoder{rest: d.b}
	for in.next() {
		switch in.field {
		case 1:
			if len(in.b) != len(l.Node) {
				in.err = errMalformed
			}
			copy(l.Node[:], in.b)
		case 2:
			l.Epoch = ident.BrokerEpoch(in.v)
		}
	}
	if in.err != nil {
		d.err = in.err
	}
	return l
}

func (s *Standing) decode(b []byte) error {
	d := decoder{rest: b}
	for d.next() {
		switch d.field {
		case 1:
			s.Partition = d.partition()
		case 2:
			s.Epoch = d.epoch()
		case 3:
			s.End.Offset = d.offset()
		case 4:
			s.End.Voids = int(uint32(d.v))
		case 5:
			s.Last = d.epoch()
		case 6:
			s.Version = d.v
		}
	}
	return d.err
}

func (h *Held) decode(b []byte) error {
	d := decoder{rest: b}
	for d.next() {
		switch d.field {
		case 1:
			h.Partition = d.partition()
		case 2:
			h.Epoch = d.epoch()
		case 3:
			h.Durable.Offset = d.offset()
		case 4:
			h.Durable.Voids = int(uint32(d.v))
		case 5:
			h.Watched = d.v != 0
		}
	}
	return d.err
}

func (m *followResponse) encode(e *encoder) {
	f := m.from
	e.begin()
	for i := range f.Divergences {
		v := &f.Divergences[i]
		o := e.open(1)
		e.partition(1, v.Partition)
		e.varint(2, uint64(v.Epoch))
		e.bool(3, v.Agreed)
		e.varint(4, uint64(v.Last))
		e.position(5, v.End)
		e.varint(7, uint64(v.Start))
		e.bytes(8, v.Producers)
		e.varint(9, uint64(v.ProducersAt))
		e.position(10, v.Of)
		e.varint(12, uint64(v.OfLast))
		e.close(o)
	}
	for i := range f.Pushes {
		p := &f.Pushes[i]
		o := e.open(2)
		e.partition(1, p.Partition)
		e.varint(2, uint64(p.Epoch))
		e.position(3, p.Prev)
		e.varint(5, uint64(p.PrevEpoch))
		e.varint(6, uint64(p.HW))
		e.varint(7, uint64(p.Start))
		e.bytes(8, p.Batches)
		e.close(o)
	}
	for i := range f.Refused {
		at := e.small(3)
		e.partition(1, f.Refused[i].Partition)
		e.varint(2, uint64(f.Refused[i].Epoch))
		e.end(at)
	}
}

func (m *followResponse) decode(b []byte, given bool) error {
	f := m.from
	f.Divergences, f.Pushes, f.Refused = f.Divergences[:0], f.Pushes[:0], f.Refused[:0]
	d := decoder{rest: b}
	for d.next() {
		switch d.field {
		case 1:
			f.Divergences = append(f.Divergences, Divergence{})
			v := &f.Divergences[len(f.Divergences)-1]
			d.inner(v.decode(d.b, given))
		case 2:
			f.Pushes = append(f.Pushes, Push{})
			p := &f.Pushes[len(f.Pushes)-1]
			d.inner(p.decode(d.b, given))
		case 3:
			f.Refused = append(f.Refused, Refused{})
			d.inner(f.Refused[len(f.Refused)-1].decode(d.b))
		}
	}
	return d.err
}

func (v *Divergence) decode(b []byte, given bool) error {
	d := decoder{rest: b}
	for d.next() {
		switch d.field {
		case 1:
			v.Partition = d.partition()
		case 2:
			v.Epoch = d.epoch()
		case 3:
			v.Agreed = d.v != 0
		case 4:
			v.Last = d.epoch()
		case 5:
			v.End.Offset = d.offset()
		case 6:
			v.End.Voids = int(uint32(d.v))
		case 7:
			v.Start = d.offset()
		case 8:
			v.Producers = keep(d.b, given)
		case 9:
			v.ProducersAt = d.offset()
		case 10:
			v.Of.Offset = d.offset()
		case 11:
			v.Of.Voids = int(uint32(d.v))
		case 12:
			v.OfLast = d.epoch()
		}
	}
	return d.err
}

func (p *Push) decode(b []byte, given bool) error {
	d := decoder{rest: b}
	for d.next() {
		switch d.field {
		case 1:
			p.Partition = d.partition()
		case 2:
			p.Epoch = d.epoch()
		case 3:
			p.Prev.Offset = d.offset()
		case 4:
			p.Prev.Voids = int(uint32(d.v))
		case 5:
			p.PrevEpoch = d.epoch()
		case 6:
			p.HW = d.offset()
		case 7:
			p.Start = d.offset()
		case 8:
			p.Batches = keep(d.b, given)
		}
	}
	return d.err
}

func (r *Refused) decode(b []byte) error {
	d := decoder{rest: b}
	for d.next() {
		switch d.field {
		case 1:
			r.Partition = d.partition()
		case 2:
			r.Epoch = d.epoch()
		}
	}
	return d.err
}
