package groups

import (
	"time"

	"tidewire/internal/rpc"
)

// Lookouts is a Broker of this process, at which a wait takes no goroutine.
type Lookouts interface {
	// Lookout begins a Take with Limit 0: poke, which has room for one, gets an entry whenever
	// there may be something. nil: such a Take has to wait before it can say anything.
	Lookout(t rpc.Take, poke chan struct{}) rpc.Lookout
}

// outlook is a wait at this node's broker, of which a puller has one at most.
type outlook struct {
	of   rpc.Lookout
	call uint64
}

// lookOut waits at a leader without a goroutine, which is two goroutines' turns less for a
// record that comes alone; false: that cannot be. It does not pause, so it is not for a leader
// that gave nothing the last time.
func (p *puller) lookOut(l *lead) bool {
	if p.once || l.node != p.g.cfg.Self || l.misses > 0 || l.err != nil {
		return false
	}
	b, err := p.g.broker(l.node, l.of)
	if err != nil {
		return false
	}
	at, ok := b.(Lookouts)
	if !ok {
		return false
	}
	q := p.asks(l, waitTime)
	out := at.Lookout(q, p.poke)
	if out == nil {
		return false
	}
	taken, said := out.Look()
	if said && !taken.More { // something is wrong with a partition
		out.Leave()
		return false
	}
	p.g.metrics.waits.Inc()
	l.out = &outlook{out, q.Call}
	l.cancel = func() {
		if l.out != nil {
			l.out = nil
			out.Leave()
			p.g.metrics.waits.Dec()
		}
	}
	if p.renewal == nil {
		p.renewal = time.AfterFunc(waitTime, func() { nudge(p.renew) })
	}
	if said {
		p.answered(answer{lead: l, more: true, call: q.Call, taken: taken})
	}
	return true
}

// look takes in what the lookout says now.
func (p *puller) look() {
	for _, l := range p.leads {
		if l.out == nil {
			continue
		}
		taken, said := l.out.of.Look()
		if !said {
			return
		}
		a := answer{lead: l, more: taken.More, call: l.out.call, taken: taken}
		if !a.more {
			a.err = refused(taken.Of)
		}
		p.answered(a)
		return
	}
}

// lookAgain begins a new wait where one has lasted for long, as those of a goroutine end.
func (p *puller) lookAgain() {
	for _, l := range p.leads {
		if l.out != nil {
			p.again(l)
			break
		}
	}
	p.renewal.Reset(waitTime)
}

// comeIn ends the lookout.
func (p *puller) comeIn() {
	if p.renewal != nil {
		p.renewal.Stop()
	}
	for _, l := range p.leads {
		if l.out != nil {
			l.cancel()
		}
	}
}
