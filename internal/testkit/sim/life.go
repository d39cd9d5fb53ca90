package sim

import (
	"fmt"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// register begins a new life of the broker at the coordinator: register, act on
// everything up to that, note the epoch, activate, renew.
func (b *broker) register() {
	b.attempt++
	attempt := b.attempt
	b.leases, b.next, b.registering = cluster.Leases{}, cluster.Life{}, true
	n := cluster.Node{
		ID: b.id, Name: b.name(), Zone: "z", Roles: []string{"broker"}, Version: "sim", Storage: b.disk.storage,
		Boot: b.boot(),
	}
	unfit := b.unfit()
	change := cluster.Register{Node: n, Last: b.folder.noted, Unfit: unfit}
	b.w.council.propose(b.p, cluster.Change{Register: &change}, func(answer cluster.Answer, err error) {
		switch {
		case attempt != b.attempt:
		case err != nil:
			b.w.in(b.p, 50*time.Millisecond, b.register)
		case answer.Refusal != nil:
			b.w.note(b.name(), "is refused (noted %d): %.70s", b.folder.noted, answer.Refusal.Detail)
			b.w.reached.hit("registration refused")
			b.refused()
		default:
			for _, p := range unfit {
				b.disclaimed[p.Index] = true
			}
			b.registering = false
			b.next = cluster.Life{Node: b.id, Epoch: answer.Epoch}
			b.reached = answer.Index
			if b.snapshot.Index >= b.reached {
				b.begins()
			}
		}
	})
}

// boot names the life of the broker's machine.
func (b *broker) boot() string { return fmt.Sprint("boot ", b.disk.boot) }

// refused is a registration that the coordinator does not take. Where nobody else has
// what the folder lacks, somebody brings the folder back as it was.
func (b *broker) refused() {
	if !b.lost || b.disk.last == nil {
		b.w.in(b.p, 500*time.Millisecond, b.register)
		return
	}
	b.w.reached.hit("folder brought back")
	b.w.kill(b.p, false)
	b.disk.restore()
	b.lost = false
	b.w.after(100*time.Millisecond, func() { b.w.revive(b.p) })
}

// unfit are the partitions whose logs are known to be damaged.
func (b *broker) unfit() (bad []ident.Partition) {
	for i, h := range b.replicas {
		if h != nil && h.log.damage != nil || h == nil && b.folder.knows(i) {
			bad = append(bad, ident.Partition{Topic: b.folder.logs[i].of, Index: ident.Index(i)})
		}
	}
	return bad
}

// begins acts on the life that was registered: the feed has reached it.
func (b *broker) begins() {
	life, attempt := b.next, b.attempt
	b.next = cluster.Life{}
	b.acted, b.self = true, life
	b.w.note(b.name(), "has life %d", life.Epoch)
	for _, u := range b.ups {
		if u != nil {
			u.again()
		}
	}
	for _, d := range b.downs {
		if d != nil {
			d.ends()
		}
	}
	here := b.folder
	b.disk.queue(&op{part: -1, do: func(f *folder) { f.noted = life.Epoch }, durable: func(err error) {
		if err == nil { // sooner nobody is told of it: it would have to survive a power cut
			here.noted = life.Epoch
		}
		if err == nil && attempt == b.attempt {
			b.activate(life, attempt)
		}
	}})
}

func (b *broker) activate(life cluster.Life, attempt int) {
	b.w.council.propose(b.p, cluster.Change{Activate: &cluster.Activate{Node: b.id, Epoch: life.Epoch}}, func(answer cluster.Answer, err error) {
		switch {
		case attempt != b.attempt:
		case err != nil:
			b.w.in(b.p, 20*time.Millisecond, func() { b.activate(life, attempt) })
		case answer.Refusal != nil:
			b.register()
		default:
			b.renew(life, attempt)
		}
	})
}

// renew keeps the lease. It counts from the moment at which its renewal was sent.
func (b *broker) renew(life cluster.Life, attempt int) {
	if attempt != b.attempt {
		return
	}
	sent := b.now()
	b.w.council.renew(b.p, life, func(lease cluster.Lease, fenced bool) {
		switch {
		case attempt != b.attempt:
		case fenced:
			b.w.note(b.name(), "learns that life %d is over", life.Epoch)
			b.w.reached.hit("fenced by the coordinator")
			b.register()
		default:
			b.leases = b.leases.With(b.now(), sent.Add(lease.For), lease.Index)
		}
	})
	b.w.in(b.p, b.w.set.Lease/4, func() { b.renew(life, attempt) })
}
