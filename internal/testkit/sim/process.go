package sim

import "time"

// process is one operating system process on a machine of its own. It may be a broker,
// a coordinator, both, or the gateways at the edge.
type process struct {
	name    string
	machine int
	life    int // counts its starts
	up      bool
	paused  bool
	skew    time.Duration // of its machine's clock: how far it is wrong
	backlog []event       // what came while it was paused
	broker  *broker
	member  *member
}

// start begins a new life of a process.
func (w *World) start(p *process) {
	p.life++
	p.up, p.paused = true, false
	w.note(p.name, "starts")
	if p.member != nil {
		p.member.start()
	}
	if p.broker != nil {
		p.broker.start()
	}
}

// stop ends a life. quiet: nobody is told, as when the power goes; else the system
// closes the connections of the process.
func (w *World) stop(p *process, quiet bool) {
	if !p.up {
		return
	}
	p.up, p.paused, p.backlog = false, false, nil
	if p.broker != nil {
		w.touch(p.broker)
		p.broker.stop(quiet)
	}
}

func (w *World) pause(p *process) {
	if p.up {
		p.paused = true
	}
}

// resume lets a paused process do all that it missed, in order.
func (w *World) resume(p *process) {
	if !p.paused {
		return
	}
	p.paused = false
	missed := p.backlog
	p.backlog = nil
	for _, e := range missed {
		e.at = w.now
		w.push(e)
	}
}

// runs says whether a process does anything now.
func (p *process) runs() bool { return p.up && !p.paused }
