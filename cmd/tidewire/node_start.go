package main

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"

	"tidewire/gateway"
	"tidewire/internal/fault"
	"tidewire/internal/membership"
	"tidewire/internal/obs"
	"tidewire/internal/run"
)

// start is what the start of a node is doing at the moment, for those who ask it.
type start struct {
	mu    sync.Mutex
	step  string
	waits func() string // for whom; nil: for nobody. Called at any time, also too late.
}

// enter begins a step.
func (p *start) enter(step string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.step, p.waits = step, nil
}

// awaits says for whom the step waits from now on.
func (p *start) awaits(whom func() string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waits = whom
}

// String is for those who ask.
func (p *start) String() string {
	p.mu.Lock()
	step, waits := p.step, p.waits
	p.mu.Unlock()
	if waits != nil {
		return waits()
	}
	return fmt.Sprintf("the step %q is under way", step)
}

// told has each step say that it begins.
func (p *start) told(steps []run.Step) []run.Step {
	for i, step := range steps {
		if step.Start == nil {
			continue
		}
		steps[i].Start = func(ctx context.Context) error {
			p.enter(step.Name)
			return step.Start(ctx)
		}
	}
	return steps
}

// answerMeanwhile answers clients on the bound listener until there is a gateway.
func (n *node) answerMeanwhile(l *net.TCPListener) {
	n.meanwhile = gateway.NewStarting(gateway.StartingConfig{
		Listener: l, OpenFiles: n.files.Connections, AllowedOrigins: n.cfg.AllowedOrigins, Advertised: n.cfg.AdvertiseHTTP, Logger: n.log.With(obs.Component, "gateway"),
		Why: func() []error {
			switch {
			case n.stopping.Load():
				return []error{isStopping()}
			case n.ready.Load():
				return []error{fault.New(fault.Draining, "the node has just started: ask again, over another connection")}
			}
			return []error{fault.New(fault.Draining, "the node is starting: %s", &n.start)}
		},
	})
}

func (n *node) runHTTP(ctx context.Context) error {
	if n.meanwhile != nil {
		if err := n.meanwhile.Run(ctx); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return nil
}

// foundingWaits says whom a node waits for that is to found a cluster, or to join one.
func (n *node) foundingWaits() string {
	d, to := n.membership.Decision(n.cfg.BootstrapExpect), "found a cluster with others"
	if d.Do == membership.Join {
		to = "join a cluster"
	}
	return fmt.Sprintf("it waits to %s: %s, %s; look which coordinators run, and whether an address of join leads to one", to, d.Why, n.seesCoordinators())
}

// clusterWaits says whom a node waits for that follows no cluster yet.
func (n *node) clusterWaits() string {
	return "it waits until the coordinators of its cluster have a leader that it hears, " + n.seesCoordinators()
}

// seesCoordinators names the other coordinators that gossip knows to be there.
func (n *node) seesCoordinators() string {
	var names []string
	for _, other := range n.membership.View().Nodes {
		if other.Coordinator() && other.ID != n.id {
			names = append(names, fmt.Sprintf("%s at %s", other.Name, other.Addresses.Gossip))
		}
	}
	if len(names) == 0 {
		return "and sees no other coordinator"
	}
	return "and sees " + strings.Join(names, ", ")
}
