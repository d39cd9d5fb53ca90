package load

import (
	"context"
	"fmt"
	"sync"
	"time"

	"tidewire/internal/bench/figure"
	"tidewire/internal/bench/sock"
)

const (
	// bystanderBuffer bounds what the kernel takes in for one that does not read.
	bystanderBuffer = 16 << 10
	// slowShare of what there is to read is what a slow one reads.
	slowShare = 100
	// slowEvery is how often it reads.
	slowEvery = 100 * time.Millisecond
	// messageRoom is about what a message has beside its value.
	messageRoom = 160
)

// bystanders are subscribers that do not keep up. What they get is not counted:
// what matters is what they do to the others.
type bystanders struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup
	conns  []*sock.Conn
}

// pairs measures run after run, each without and then with bystanders.
func (f Fanout) pairs(m *meter, p Progress, out *Outcome) (err error) {
	if err := m.wait("warming up", f.Plan.Warmup, p); err != nil {
		return err
	}
	if out.Before, err = f.look(m.crew.ctx, "before"); err != nil {
		return err
	}
	for i := range f.Plan.Runs {
		plain, err := m.one(i+1, f.Plan, p)
		if err != nil {
			return err
		}
		out.Runs = append(out.Runs, plain)
		beside, err := f.beside(m, p, plain)
		if err != nil {
			return err
		}
		out.Beside = append(out.Beside, beside)
	}
	out.After, err = f.look(m.crew.ctx, "after")
	return err
}

func (f Fanout) look(ctx context.Context, what string) (*Snapshot, error) {
	if f.Target.PID == 0 {
		return nil, nil
	}
	s, err := Look(ctx, f.Target, what)
	return &s, err
}

// beside measures one run with bystanders.
func (f Fanout) beside(m *meter, p Progress, plain figure.Run) (figure.Run, error) {
	b, err := f.invite(m.crew, p, plain.PerSecond/float64(f.Subscribers))
	if err != nil {
		return figure.Run{}, fmt.Errorf("subscribers that do not keep up: %w", err)
	}
	defer b.leave()
	return m.one(plain.Run, f.Plan, p)
}

// invite connects them; perSecond is how many messages each could read.
func (f Fanout) invite(crew *crew, p Progress, perSecond float64) (*bystanders, error) {
	ctx, cancel := context.WithCancel(crew.ctx)
	b := &bystanders{cancel: cancel, conns: make([]*sock.Conn, f.Stalled+f.Slow)}
	err := crew.each(len(b.conns), "connecting subscribers that do not keep up", p, func(i int) (err error) {
		b.conns[i], err = f.bystander()
		return err
	})
	if err != nil {
		b.leave()
		return nil, err
	}
	if f.Slow > 0 {
		bytes := perSecond * float64(f.Records.Bytes+messageRoom) / slowShare * slowEvery.Seconds()
		b.wg.Go(func() { trickle(ctx, b.conns[f.Stalled:], bytes) })
	}
	return b, nil
}

func (f Fanout) bystander() (c *sock.Conn, err error) {
	sub, target := subscription{topic: f.Records.Topic}, f.Target
	target.receiveBytes = bystanderBuffer
	if f.Transport == SSE {
		c, _, err = dialEvents(target, sub)
	} else {
		c, err = dialSubscriber(target, sub, MaskKey())
	}
	return c, err
}

// trickle reads so many bytes of each at a time, until ctx ends. A connection
// that the server has ended stays ended.
func trickle(ctx context.Context, conns []*sock.Conn, bytes float64) {
	tick := time.NewTicker(slowEvery)
	defer tick.Stop()
	for saved := 0.0; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		saved += bytes
		for _, c := range conns {
			_, _ = c.Drop(int(saved))
		}
		saved -= float64(int(saved))
	}
}

// leave cuts them.
func (b *bystanders) leave() {
	b.cancel()
	b.wg.Wait()
	for _, c := range b.conns {
		if c != nil {
			c.Cut()
		}
	}
}
