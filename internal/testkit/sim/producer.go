package sim

import (
	"encoding/binary"
	"fmt"
	"time"

	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
)

// producer is one lane of a gateway: one batch for one partition is under way at a time,
// and where nobody knows what became of it, the very same goes again.
type producer struct {
	w         *World
	name      string
	id        ident.ProducerID
	sequenced bool
	acks      rpc.Acks
	part      int
	next      int64 // sequence
	made      int   // records, for their values
	batch     []outgoing
	tries     int
	unknown   bool // a try of the batch in hand may have been taken
	done      bool // nothing is to be sent any more
	resolved  int  // batches that were answered for good
	lives     int
	of        ident.TopicID // that the batch in hand is for
	last      fault.Kind    // of the last refusal
}

// outgoing is one entry of a batch.
type outgoing struct {
	sequence int64
	value    string
	void     bool
	large    bool // refused for its size, so its number is used up
}

func (p *producer) start() { p.w.in(p.w.edge, p.w.between(0, p.w.set.Think), p.begin) }

// begin makes the next batch.
func (p *producer) begin() {
	if p.done {
		return
	}
	p.batch, p.tries, p.unknown = nil, 0, false
	kind := p.w.rng.IntN(40)
	for range 1 + p.w.rng.IntN(p.w.set.BatchRecords) {
		o := outgoing{sequence: p.next}
		if p.sequenced {
			p.next++
			o.void = kind < p.w.set.Voids
			o.large = !o.void && kind < 2*p.w.set.Voids
		}
		p.made++
		o.value = fmt.Sprintf("%s-%d", p.name, p.made)
		if o.large {
			o.value += string(make([]byte, maxMessageBytes))
		}
		p.batch = append(p.batch, o)
	}
	p.send()
}

// sealed is the batch as bytes of its own: the leader writes into them.
func (p *producer) sealed() record.Batch {
	var b record.Builder
	for i := range p.batch {
		o := &p.batch[i]
		if o.void {
			b.Void(p.id, o.sequence)
			continue
		}
		r := record.Record{Value: []byte(o.value), ContentType: "t"}
		if p.sequenced {
			r.Producer, r.Sequence = p.id, o.sequence
		}
		b.Add(&r)
	}
	return b.Seal()
}

// send routes the batch by what the gateway knows.
func (p *producer) send() {
	w := p.w
	t := w.routes().Topics[topicName]
	if t == nil {
		p.again()
		return
	}
	if p.of != t.ID {
		was := p.of
		if p.of = t.ID; was != (ident.TopicID{}) { // what it was for is no more, and nothing of it stands in the new one
			p.lives++
			p.id[8], p.next = byte(p.lives), 0
			p.resolve()
			return
		}
	}
	part := &t.Partitions[p.part]
	leader := w.brokerOf(part.Leader)
	if leader == nil {
		p.again()
		return
	}
	p.tries++
	if p.tries > 1 {
		w.reached.hit("batch sent again")
	}
	req := rpc.Append{Partition: t.Ref(ident.Index(p.part)), Epoch: part.LeaderEpoch, Batch: p.sealed(), Acks: p.acks}
	batch := p.batch
	w.call(w.edge, leader.p, w.set.Timeout, func(reply func(func())) {
		r := leader.replica(req.Partition)
		if r == nil {
			reply(func() { p.answered(batch, rpc.Appended{Err: fault.New(fault.LeaderUnavailable, "no such replica")}) })
			return
		}
		r.Append(req, func(a rpc.Appended) {
			w.answers(leader, p, batch, a)
			reply(func() { p.answered(batch, a) })
		})
	}, func(refused bool) {
		if refused {
			p.failed(batch, fault.LeaderUnavailable)
		} else {
			p.failed(batch, fault.UnknownOutcome)
		}
	})
}

func (p *producer) again() {
	p.w.in(p.w.edge, p.w.between(5*time.Millisecond, 80*time.Millisecond), p.send)
}

// answered takes in what became of a batch.
func (p *producer) answered(batch []outgoing, a rpc.Appended) {
	if a.Err != nil {
		p.failed(batch, fault.KindOf(a.Err))
		return
	}
	for i, r := range a.Records {
		if r.Err == nil {
			if r.Duplicate {
				p.w.reached.hit("repeat answered with its original")
			}
			continue
		}
		kind := fault.KindOf(r.Err)
		if batch[i].large && (kind == fault.MessageTooLarge || kind == fault.Invalid) {
			continue
		}
		if (p.acks == rpc.AcksLeader || p.w.set.mayLose()) && (kind == fault.OutOfOrderSequence || kind == fault.UnknownProducer) {
			p.anew() // what its leader alone had went with that leader
			break
		}
		p.w.fail("exactly-one-copy", "%s sends sequence %d (try %d) and hears %v", p.name, batch[i].sequence, p.tries, r.Err)
	}
	p.resolve()
}

func (p *producer) failed(_ []outgoing, kind fault.Kind) {
	p.last = kind
	switch kind {
	case fault.UnknownOutcome:
		p.w.reached.hit("unknown outcome of a publish")
		p.unknown = true
	case fault.NotEnoughReplicas:
		p.w.reached.hit("refused: not enough replicas")
	case fault.LeaderUnavailable, fault.Fenced, fault.DiskFull:
	default:
		p.w.fail("answers", "%s is refused with %s", p.name, kind)
		return
	}
	if p.sequenced || !p.unknown && p.w.chance(0.7) {
		p.again()
		return
	}
	if !p.unknown { // refused for certain, and given up
		for i := range p.batch {
			p.w.truth[p.part].refuse(p.batch[i].value)
		}
	}
	p.resolve() // without a number nobody may send it again
}

// anew begins another life of the producer.
func (p *producer) anew() {
	p.w.reached.hit("record lost that only its leader had")
	p.lives++
	p.id[8], p.next = byte(p.lives), 0
}

func (p *producer) resolve() {
	p.resolved++
	p.batch = nil
	p.w.in(p.w.edge, p.w.between(0, 2*p.w.set.Think), p.begin)
}

func producerID(i int) ident.ProducerID {
	var id ident.ProducerID
	id[0] = 9
	binary.BigEndian.PutUint32(id[12:], uint32(i+1))
	return id
}
