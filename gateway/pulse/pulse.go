package pulse

import (
	"context"
	"slices"
	"sync"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/sleep"
)

// Touch tells the leading coordinator of signs of life, in one try or a few.
type Touch func(ctx context.Context, signs []cluster.SignOfLife) (cluster.Lost, error)

const (
	// tellEvery is how often signs of life are told, and gather how long one that is
	// asked about waits for others.
	tellEvery = 500 * time.Millisecond
	gather    = 3 * time.Millisecond
	// tellLimit bounds one telling: a coordinator that died has a successor by then.
	tellLimit = time.Second
	// mostSigns go at once.
	mostSigns = 1_000
	// tellPause follows a telling that failed.
	tellPause = 100 * time.Millisecond
)

// Pulse is the signs of life that a gateway has heard. It is safe for concurrent use.
type Pulse struct {
	touch Touch

	mu     sync.Mutex
	heard  map[cluster.MemberLife]*beat // not told yet. Bounded by the members there are
	asking []cluster.MemberLife         // those that are asked about, some perhaps twice
	wake   chan struct{}                // room for one: somebody asks
	err    error                        // of the last telling
}

// beat is the latest sign of a life, and who asks about that.
type beat struct {
	at    time.Time
	asked []*question
}

// question is whether a life still counts.
type question struct {
	answered  chan struct{} // closed when over is known
	over      bool
	withdrawn bool // guarded by the Pulse
}

// New makes a Pulse. It starts nothing.
func New(touch Touch) *Pulse {
	return &Pulse{touch: touch, heard: map[cluster.MemberLife]*beat{}, wake: make(chan struct{}, 1)}
}

// Hear notes a sign of life. Only lives that a snapshot knows are to be noted.
func (p *Pulse) Hear(life cluster.MemberLife) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.noteLocked(life, time.Now())
}

func (p *Pulse) noteLocked(life cluster.MemberLife, at time.Time) *beat {
	b := p.heard[life]
	if b == nil {
		b = &beat{at: at}
		p.heard[life] = b
	}
	if at.After(b.at) {
		b.at = at
	}
	return b
}

// Ask notes a sign of life and waits until the coordinator has said that the life counts;
// one that is over is fault.Fenced. Where no coordinator says anything until ctx ends, the
// error says so.
func (p *Pulse) Ask(ctx context.Context, life cluster.MemberLife) error {
	q := &question{answered: make(chan struct{})}
	p.mu.Lock()
	b := p.noteLocked(life, time.Now())
	b.asked = append(b.asked, q)
	p.asking = append(p.asking, life)
	p.mu.Unlock()
	p.signal()
	select {
	case <-q.answered:
	case <-ctx.Done():
		return p.withdraw(q)
	}
	if q.over {
		return fault.New(fault.Fenced, "the life of member %q is over: its session has ended, or it joined again; join again", life.Member).With("member", life.Member)
	}
	return nil
}

func (p *Pulse) signal() {
	select {
	case p.wake <- struct{}{}:
	default: // Run has yet to look
	}
}

// withdraw takes a question back, and says why it has no answer.
func (p *Pulse) withdraw(q *question) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	q.withdrawn = true
	if p.err != nil {
		return fault.New(fault.CoordinatorUnavailable, "no coordinator could be told that the member lives: ask again in a moment (%w)", p.err)
	}
	return fault.New(fault.CoordinatorUnavailable, "no coordinator has said in time that the member lives: ask again in a moment")
}

// Run tells of signs of life until ctx ends.
func (p *Pulse) Run(ctx context.Context) error {
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	for {
		all := true
		select {
		case <-tick.C:
		case <-p.wake:
			all = false
			if !sleep.For(ctx, gather) {
				return nil
			}
		case <-ctx.Done():
			return nil
		}
		for told := mostSigns; told == mostSigns; {
			var err error
			if told, err = p.tell(ctx, all); err != nil {
				if !sleep.For(ctx, tellPause) {
					return nil
				}
				p.signal() // who asked goes first
			}
		}
	}
}

// tell tells of as many signs as go at once: of all, or of those that are asked about.
func (p *Pulse) tell(ctx context.Context, all bool) (told int, err error) {
	signs, beats := p.take(all)
	if len(signs) == 0 {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, tellLimit)
	lost, err := p.touch(ctx, signs)
	cancel()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err = err; err != nil {
		for i, b := range beats {
			p.putBackLocked(signs[i].MemberLife, b)
		}
		return 0, err
	}
	for _, i := range lost.Lives {
		if i >= 0 && i < len(beats) {
			beats[i].end(true)
			beats[i].asked = nil
		}
	}
	for _, b := range beats {
		b.end(false)
	}
	return len(signs), nil
}

// end answers who asked.
func (b *beat) end(over bool) {
	for _, q := range b.asked {
		q.over = over
		close(q.answered)
	}
}

// take gives what is to be told now, those that are asked about first.
func (p *Pulse) take(all bool) (signs []cluster.SignOfLife, beats []*beat) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	one := func(life cluster.MemberLife) {
		if b := p.heard[life]; b != nil {
			delete(p.heard, life)
			signs, beats = append(signs, cluster.SignOfLife{MemberLife: life, Ago: now.Sub(b.at)}), append(beats, b)
		}
	}
	n := 0
	for ; n < len(p.asking) && len(signs) < mostSigns; n++ {
		one(p.asking[n])
	}
	if p.asking = p.asking[n:]; len(p.asking) == 0 {
		p.asking = nil
	}
	if all {
		for life := range p.heard {
			if len(signs) == mostSigns {
				break
			}
			one(life)
		}
	}
	return signs, beats
}

// putBackLocked keeps what nobody was told.
func (p *Pulse) putBackLocked(life cluster.MemberLife, b *beat) {
	b.asked = slices.DeleteFunc(b.asked, func(q *question) bool { return q.withdrawn })
	now := p.noteLocked(life, b.at)
	if len(b.asked) > 0 {
		now.asked = append(now.asked, b.asked...)
		p.asking = append(p.asking, life)
	}
}
