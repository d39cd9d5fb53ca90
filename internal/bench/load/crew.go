package load

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"tidewire/internal/bench/sock"
)

// Target is the server that the load is put on.
type Target struct {
	Addr netip.AddrPort
	Host string // host:port, as requests name it
	PID  int    // of its process; 0: not known
	// Beside are the other nodes of its cluster: clients take turns among all.
	Beside []Beside
	// Processes are further ones whose use counts, and that no client goes to.
	Processes []int
	// Token is shown with every upgrade and request; "": none.
	Token string

	// receiveBytes bounds what the kernel takes in for a connection that does not
	// read; 0: its own bound.
	receiveBytes int
}

// Beside is one more node of a server that is a cluster.
type Beside struct {
	Addr netip.AddrPort
	PID  int
}

// turn is the server as the i-th client dials it.
func (t Target) turn(i int) Target {
	if n := i % (len(t.Beside) + 1); n > 0 {
		t.Addr = t.Beside[n-1].Addr
		t.Host = t.Addr.String()
	}
	return t
}

// PIDs are the processes of all nodes; nil: not known.
func (t Target) PIDs() []int {
	if t.PID == 0 {
		return nil
	}
	all := []int{t.PID}
	for _, b := range t.Beside {
		all = append(all, b.PID)
	}
	return append(all, t.Processes...)
}

// bearer is the header line that shows the token; empty without one.
func (t Target) bearer() string {
	if t.Token == "" {
		return ""
	}
	return "Authorization: Bearer " + t.Token + "\r\n"
}

// authorize shows the token with a request of net/http.
func (t Target) authorize(r *http.Request) {
	if t.Token != "" {
		r.Header.Set("Authorization", "Bearer "+t.Token)
	}
}

func (t Target) dial() (*sock.Conn, error) {
	if t.receiveBytes > 0 {
		return sock.DialNarrow(t.Addr, t.receiveBytes)
	}
	return sock.Dial(t.Addr)
}

// Progress hears how far things are. It is called from one goroutine at a time.
type Progress interface {
	// Phase begins something of so many steps.
	Phase(what string, steps int)
	// Step says how many are done.
	Step(done int)
}

const (
	// dialers connect at the same time.
	dialers = 16
	// mostLoops bounds the goroutines that read.
	mostLoops = 8
	// handshakeTimeout bounds an upgrade and a subscription.
	handshakeTimeout = 30 * time.Second
)

// crew is the loops of a load and everything that runs beside them. The first
// failure ends it.
type crew struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	loops  []*sock.Loop
	wg     sync.WaitGroup
	once   sync.Once
}

// newCrew starts as many loops as there are processors. gather is for loads
// whose rate no single delivery decides; see sock.NewLoop.
func newCrew(ctx context.Context, connections int, gather time.Duration) (*crew, error) {
	c := &crew{}
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	for range max(1, min(runtime.GOMAXPROCS(0), mostLoops, connections)) {
		l, err := sock.NewLoop(gather)
		if err != nil {
			c.stop()
			return nil, err
		}
		c.loops = append(c.loops, l)
	}
	for _, l := range c.loops {
		c.run(func() error { return l.Run(c.ctx) })
	}
	return c, nil
}

// run runs f beside; its failure ends the crew.
func (c *crew) run(f func() error) {
	c.wg.Go(func() {
		if err := f(); err != nil {
			c.fail(err)
		}
	})
}

// fail ends the crew; the first reason counts.
func (c *crew) fail(err error) { c.cancel(err) }

// stop ends everything and cuts the connections.
func (c *crew) stop() {
	c.once.Do(func() {
		c.cancel(context.Canceled)
		c.wg.Wait()
		for _, l := range c.loops {
			l.Close()
		}
	})
}

// each calls open for 0 to n-1, a few at a time.
func (c *crew) each(n int, what string, p Progress, open func(i int) error) error {
	p.Phase(what, n)
	g, ctx := errgroup.WithContext(c.ctx)
	var next, done atomic.Int64
	var shown sync.Mutex
	for range min(dialers, n) {
		g.Go(func() error {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return nil
				}
				if err := patiently(ctx, func() error { return open(i) }); err != nil {
					return fmt.Errorf("connection %d of %d: %w", i+1, n, err)
				}
				if d := done.Add(1); d%50 == 0 && shown.TryLock() {
					p.Step(int(d))
					shown.Unlock()
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if c.ctx.Err() != nil {
		return context.Cause(c.ctx)
	}
	p.Step(n)
	return nil
}

// patiently opens a connection, again where the server is busy and says when.
func patiently(ctx context.Context, open func() error) error {
	for until := time.Now().Add(handshakeTimeout); ; {
		err := open()
		var no *Refusal
		if !errors.As(err, &no) || no.after == 0 || time.Now().Add(no.after).After(until) {
			return err
		}
		pause := time.NewTimer(no.after)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return err
		}
	}
}

// lookEvery is how often a wait looks whether it is over.
const lookEvery = 20 * time.Millisecond

// await waits until over is true, and says why not where it takes too long.
func (c *crew) await(limit time.Duration, over func() bool, late func() error) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	for !over() {
		select {
		case <-c.ctx.Done():
			return context.Cause(c.ctx)
		case <-timeout.C:
			return late()
		case <-tick.C:
		}
	}
	return nil
}
