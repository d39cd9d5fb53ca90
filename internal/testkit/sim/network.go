package sim

import "time"

// network joins machines. Each direction of each link is by itself: it has a delay, and
// it may hold everything that is sent until it is healed, as TCP does.
type network struct {
	w     *World
	links [][]direction // from, to
}

type direction struct {
	held  bool
	since time.Duration // it is
	slow  time.Duration // added to every message
	queue []message     // what waits for it to heal
}

type message struct {
	on *pipe
	to *process // nil: the network itself
	// of the process at the time; it is for no other
	life int
	do   func()
}

// pipe keeps the order of what is sent through it.
type pipe struct{ last time.Duration }

func (n *network) init(w *World, machines int) {
	n.w = w
	n.links = make([][]direction, machines)
	for i := range n.links {
		n.links[i] = make([]direction, machines)
	}
}

// send brings a message to the process that now runs on a machine.
func (n *network) send(from int, to *process, on *pipe, do func()) {
	n.carry(from, to.machine, message{on: on, to: to, life: to.life, do: do})
}

// carry brings a message from machine to machine.
func (n *network) carry(from, to int, m message) {
	d := &n.links[from][to]
	if d.held {
		d.queue = append(d.queue, m)
		return
	}
	at := n.w.now + n.delay(from, to, d)
	if m.on != nil {
		at = max(at, m.on.last)
		m.on.last = at
	}
	n.w.push(event{at: at, in: m.to, life: m.life, do: m.do})
}

func (n *network) delay(from, to int, d *direction) time.Duration {
	s := &n.w.set
	if from == to {
		return n.w.between(5*time.Microsecond, 50*time.Microsecond)
	}
	delay := n.w.between(s.NetMin, s.NetMax)
	if n.w.chance(s.NetTail) {
		delay = n.w.between(s.NetMax, 20*s.NetMax)
	}
	return delay + d.slow
}

func (n *network) hold(from, to int) {
	if d := &n.links[from][to]; from != to && !d.held {
		d.held, d.since = true, n.w.now
	}
}

func (n *network) heal(from, to int) {
	d := &n.links[from][to]
	if !d.held {
		return
	}
	d.held = false
	waiting := d.queue
	d.queue = nil
	for _, m := range waiting {
		n.carry(from, to, m)
	}
}

// broken says whether a direction has held what is sent for so long that connections
// which need it have ended.
func (n *network) broken(from, to int) bool {
	d := &n.links[from][to]
	return d.held && n.w.now-d.since >= silence
}

// joined says whether two machines can talk, both ways.
func (n *network) joined(a, b int) bool {
	return !n.links[a][b].held && !n.links[b][a].held
}

// call asks another process and brings back its answer. serve runs there, and gives
// what is to run here. Where no answer comes in time, or nobody listens, failed runs
// instead, once. The question may be served long after.
func (w *World) call(from, to *process, timeout time.Duration, serve func(reply func(func())), failed func(refused bool)) {
	done, life := false, from.life
	answer := func(do func()) func() {
		return func() {
			if !done {
				done = true
				do()
			}
		}
	}
	w.net.carry(from.machine, to.machine, message{do: func() {
		switch {
		case from.life != life || done && w.chance(0.5): // the connection it came by is gone
		case w.net.broken(to.machine, from.machine): // nobody can connect whom no answer reaches
		case !to.up:
			w.net.send(to.machine, from, nil, answer(func() { failed(true) }))
		default:
			w.in(to, 0, func() {
				serve(func(do func()) {
					if from.life == life {
						w.net.send(to.machine, from, nil, answer(do))
					}
				})
			})
		}
	}})
	w.in(from, timeout, answer(func() { failed(false) }))
}
