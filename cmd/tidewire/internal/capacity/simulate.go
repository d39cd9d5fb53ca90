package capacity

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
)

// Play is how a case is simulated.
type Play struct {
	Seed    uint64  `json:"seed"`
	Seconds int     `json:"seconds"`
	Burst   float64 `json:"burst"` // how many times the peak's load comes in a burst
}

// Simulated is what came of it. Shares are of a node's processors, by the busiest node.
type Simulated struct {
	Play
	Nodes  int   `json:"nodes"`
	Died   int   `json:"died"`
	Before Phase `json:"before"`
	Wave   Phase `json:"wave"`  // from the deaths until all clients are back
	After  Phase `json:"after"` // from then on
	// Half and All are when half and all of the clients of the dead nodes were back, in
	// seconds after the deaths; -1: not within the time that was played.
	Half     float64 `json:"half_back_seconds"`
	All      float64 `json:"all_back_seconds"`
	Clients  int     `json:"clients"`
	Attempts int     `json:"attempts"`
	Refused  int     `json:"refused"` // attempts beyond max_connection_rate
}

// Phase is a stretch of the time that was played.
type Phase struct {
	Seconds float64 `json:"seconds"`
	Mean    float64 `json:"mean"` // of all nodes
	P99     float64 `json:"p99"`  // of the steps, the busiest node
	Behind  float64 `json:"behind_seconds"`
}

// log is a phase under way.
type log struct {
	busiest []float64 // share of the busiest node, of each step
	sum     float64   // of the shares of all
	behind  float64
}

const (
	stepsPerSecond = 10
	step           = 1.0 / stepsPerSecond // in seconds
	// burstEvery is how often a burst comes, in seconds, and burstSteps how long it lasts.
	burstEvery = 60
	burstSteps = 5 * stepsPerSecond
	// failover is how long writes to the partitions of a dead leader wait, in seconds.
	failover      = 2
	failoverSteps = failover * stepsPerSecond
	// leastBackoff and mostBackoff bound what a client waits before an attempt, in seconds:
	// a random time below a bound that doubles with each.
	leastBackoff = 0.5
	mostBackoff  = 20
	// mostClients are played one by one.
	mostClients = 5_000_000
)

// client is one that lost its node.
type client struct {
	attempts int
	away     float64 // since when, in seconds
}

// world is a case that is played. Work is in seconds of one processor.
type world struct {
	c      *Case
	f      *Figures
	d      *Demand
	chance *rand.Rand
	alive  []node
	due    [][]client // by the step of their next attempt
	rate   float64    // published a second now
	out    Simulated
	back   int
}

type node struct {
	connections float64
	backlog     float64 // work that is not done
	tokens      float64 // clients that it takes in
}

// Simulate plays a sizing: the peak's load for a third of the time, then the deaths.
func Simulate(c Case, f Figures, s Sizing, p Play) (Simulated, error) {
	lost := int(s.Wave.Connections)
	switch {
	case p.Seconds < 30 || p.Seconds > 86400:
		return Simulated{}, errors.New("--seconds: a simulation takes from 30 to 86400 of them")
	case !(p.Burst >= 1 && p.Burst <= 1000):
		return Simulated{}, errors.New("--burst: from 1 to 1000 times the load")
	case lost > mostClients:
		return Simulated{}, errors.New("more clients would come back from the dead nodes than a simulation plays")
	}
	steps := p.Seconds * stepsPerSecond
	w := &world{c: &c, f: &f, d: &s.Demand, chance: rand.New(rand.NewPCG(p.Seed, 0)), alive: make([]node, s.Nodes), due: make([][]client, steps)}
	w.out = Simulated{Play: p, Nodes: s.Nodes, Died: c.Deaths, Clients: lost, Half: -1, All: -1}
	for i := range w.alive {
		w.alive[i].connections = s.Demand.Connections / float64(s.Nodes)
	}
	death := steps / 3
	var before, wave, after log
	burst := 0 // steps that it goes on for
	for i := range steps {
		if i == death && c.Deaths > 0 {
			w.die(i, lost)
		}
		if burst > 0 {
			burst--
		} else if w.chance.Float64() < step/burstEvery {
			burst = burstSteps
		}
		w.rate = w.d.Published
		if burst > 0 {
			w.rate *= p.Burst
		}
		phase := &before
		switch {
		case i >= death && c.Deaths > 0 && w.out.All < 0:
			phase = &wave
		case i >= death:
			phase = &after
		}
		w.step(i, death, phase)
	}
	w.out.Before, w.out.Wave, w.out.After = before.phase(), wave.phase(), after.phase()
	return w.out, nil
}

// die ends the last nodes: their clients are cut off, and come back after a backoff.
func (w *world) die(now, lost int) {
	w.alive = w.alive[:len(w.alive)-w.c.Deaths]
	if lost == 0 {
		w.out.Half, w.out.All = 0, 0
	}
	for range lost {
		w.again(now, client{away: float64(now) * step})
	}
}

// again has a client come back after its backoff.
func (w *world) again(now int, c client) {
	bound := min(leastBackoff*math.Pow(2, float64(min(c.attempts, 16))), mostBackoff)
	c.attempts++
	if at := now + 1 + int(w.chance.Float64()*bound/step); at < len(w.due) {
		w.due[at] = append(w.due[at], c)
	}
}

// step plays a tenth of a second.
func (w *world) step(now, death int, phase *log) {
	nodes := float64(len(w.alive))
	published := w.poisson(w.rate * step)
	kept := published
	if w.c.Deaths > 0 {
		// Writes to the partitions of dead leaders wait, and come once others lead.
		dead := float64(w.c.Deaths) / (nodes + float64(w.c.Deaths))
		switch {
		case now >= death && now < death+failoverSteps:
			kept -= published * dead
		case now == death+failoverSteps:
			kept += w.d.Published * dead * failover
		}
	}
	w.arrive(now)
	total := 0.0
	for i := range w.alive {
		total += w.alive[i].connections
	}
	for i := range w.alive {
		n := &w.alive[i]
		mine := w.poisson(kept / nodes) // led here
		work := mine * w.f.Publish.CPU
		if w.c.Replicas > 1 {
			work += w.poisson(kept/nodes) * w.f.copy() * float64(w.c.Replicas-1)
		}
		if w.d.Acked > 0 {
			work += mine * float64(w.c.Groups) * w.f.Ack.CPU
		}
		if w.d.Delivered > 0 && w.d.Connections > 0 {
			work += kept * w.c.Readers * n.connections / w.d.Connections * w.f.Delivery.CPU
		} else if w.d.Delivered > 0 {
			work += kept * w.c.Readers / nodes * w.f.Delivery.CPU
		}
		work = work*micro + n.connections*w.f.idleOr().Cores*step
		n.backlog += work
	}
	busiest := 0.0
	room := w.c.Cores * step
	for i := range w.alive {
		n := &w.alive[i]
		done := min(n.backlog, room)
		n.backlog -= done
		phase.sum += done / room / nodes
		busiest = max(busiest, done/room)
		phase.behind = max(phase.behind, n.backlog/w.c.Cores)
	}
	phase.busiest = append(phase.busiest, busiest)
}

// arrive lets clients come whose time it is, each at a node by chance.
func (w *world) arrive(now int) {
	for i := range w.alive {
		n := &w.alive[i]
		n.tokens = min(n.tokens+float64(w.c.Admitted)*step, float64(w.c.Admitted))
	}
	for _, c := range w.due[now] {
		w.out.Attempts++
		n := &w.alive[w.chance.IntN(len(w.alive))]
		if n.tokens < 1 {
			w.out.Refused++
			w.again(now, c)
			continue
		}
		n.tokens--
		n.connections++
		n.backlog += w.f.idleOr().Connect * micro
		if w.d.Delivered > 0 { // what it missed
			away := float64(now)*step - c.away
			n.backlog += away * w.d.Delivered / w.d.Connections * w.f.Delivery.CPU * micro
		}
		w.back++
		since := c.away
		if w.back == (w.out.Clients+1)/2 {
			w.out.Half = float64(now)*step - since
		}
		if w.back == w.out.Clients {
			w.out.All = float64(now)*step - since
		}
	}
	w.due[now] = nil
}

// poisson draws how many of what comes with this mean.
func (w *world) poisson(mean float64) float64 {
	switch {
	case mean <= 0:
		return 0
	case mean > 50:
		return max(0, math.Round(mean+math.Sqrt(mean)*w.chance.NormFloat64()))
	}
	n, p := 0.0, w.chance.Float64()
	for limit := math.Exp(-mean); p > limit; n++ {
		p *= w.chance.Float64()
	}
	return n
}

// phase reads the figures.
func (l *log) phase() Phase {
	if len(l.busiest) == 0 {
		return Phase{}
	}
	slices.Sort(l.busiest)
	n := len(l.busiest)
	return Phase{Seconds: float64(n) * step, Mean: l.sum / float64(n), P99: l.busiest[n*99/100], Behind: l.behind}
}
