// Package plan is the table of what is compared: scenarios, their cases, the systems that
// each is put to, and the bars that Tidewire has to clear. It is values alone.
package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// System is one that is measured.
type System string

// The systems. One with a 3 in its name is three processes that keep three copies.
const (
	Tidewire    System = "tidewire"
	Tidewire3   System = "tidewire-3"
	NATSAlways  System = "nats-always"
	NATSDefault System = "nats-default"
	NATSCore    System = "nats-core"
	NATS3Always System = "nats-3-always"
	NATS3       System = "nats-3-default"
	Centrifugo  System = "centrifugo"
	RedisAlways System = "redis-always"
)

// Guarantee is what an answer of a system means, for who reads a row.
func (s System) Guarantee() string {
	switch s {
	case Tidewire:
		return "fsynced before it is acknowledged or delivered"
	case Tidewire3:
		return "fsynced by three replicas before it is acknowledged or delivered"
	case NATSAlways:
		return "JetStream, file store, sync_interval always: fsynced before it is acknowledged"
	case NATSDefault:
		return "JetStream, file store, fsynced every two minutes: a power cut loses what was acknowledged"
	case NATSCore:
		return "core NATS: nothing is kept"
	case NATS3Always:
		return "JetStream R3, sync_interval always: on a quorum"
	case NATS3:
		return "JetStream R3, fsynced every two minutes: on a quorum, in memory of the kernel"
	case Centrifugo:
		return "memory engine, history and recovery on: lost when the process ends"
	case RedisAlways:
		return "stream, appendfsync always: fsynced before it is acknowledged"
	}
	return ""
}

// Kind is what a case does.
type Kind string

// The kinds.
const (
	Publish  Kind = "publish"
	Fanout   Kind = "fanout" // and end to end, with a rate
	Idle     Kind = "idle"
	Requests Kind = "requests"
	Groups   Kind = "groups"
	CatchUp  Kind = "catchup"
	Storm    Kind = "storm"
)

// Case is one load. Each system gets the same.
type Case struct {
	Name    string // unique
	Title   string
	Kind    Kind
	Systems []System

	Bytes       int
	Publishers  int // or requesters
	Window      int // in flight of each, or of a fan-out
	Subscribers int // or connections, responders, members
	Rate        float64
	OwnKeys     bool
	Keys        int
	Topics      int // the load is spread over; 0: one
	Partitions  int // of each
	Records     int // of a backlog

	Warmup, Duration time.Duration
}

// Limit bounds one run of the case, whatever happens. The first of a backlog also
// publishes it.
func (c Case) Limit() time.Duration {
	most := 90 * time.Second
	if c.Kind == Storm {
		most = 150 * time.Second
	}
	return c.Warmup + c.Duration + most + time.Duration(c.Records)*100*time.Microsecond
}

// Seconds is about what all of its runs take on a quiet machine of two cores.
func (c Case) Seconds(repetitions int) float64 {
	one := c.Warmup + c.Duration
	switch c.Kind {
	case Publish:
		one += 200 * time.Millisecond
	case Fanout:
		one += 300*time.Millisecond + time.Duration(c.Subscribers)*500*time.Microsecond
	case Requests:
		one += 300 * time.Millisecond
	case Groups, CatchUp:
		one += time.Duration(c.Records) * 12 * time.Microsecond
	case Storm:
		one += 28 * time.Second
	case Idle:
		return float64(repetitions) * (one.Seconds() + float64(c.Subscribers*len(c.Systems))/2000)
	}
	return float64(repetitions*len(c.Systems)) * one.Seconds()
}

// Scenario is cases that belong together. Its systems run side by side while it lasts.
type Scenario struct {
	Name  string
	Title string
	Note  string
	Cases []Case
}

// Systems are those of all cases, each once.
func (s Scenario) Systems() (all []System) {
	for _, c := range s.Cases {
		for _, x := range c.Systems {
			if !slices.Contains(all, x) {
				all = append(all, x)
			}
		}
	}
	return all
}

// Seconds is about what the scenario takes.
func (s Scenario) Seconds(repetitions int) float64 {
	total := 2 * float64(len(s.Systems()))
	for _, c := range s.Cases {
		total += c.Seconds(repetitions)
	}
	return total
}

// Select leaves the named scenarios ("": all), cases and systems (none: all).
func Select(all []Scenario, names string, cases, systems []string) ([]Scenario, error) {
	if names != "" {
		var some []Scenario
		for name := range strings.SplitSeq(names, ",") {
			i := slices.IndexFunc(all, func(s Scenario) bool { return s.Name == strings.TrimSpace(name) })
			if i < 0 {
				return nil, fmt.Errorf("there is no scenario %q; there are %s", name, strings.Join(Names(all), ", "))
			}
			some = append(some, all[i])
		}
		all = some
	}
	var left []Scenario
	for _, s := range all {
		var some []Case
		for _, c := range s.Cases {
			if len(cases) > 0 && !slices.Contains(cases, c.Name) {
				continue
			}
			if len(systems) > 0 {
				c.Systems = slices.DeleteFunc(slices.Clone(c.Systems), func(x System) bool { return !slices.Contains(systems, string(x)) })
			}
			if len(c.Systems) > 0 {
				some = append(some, c)
			}
		}
		if s.Cases = some; len(some) > 0 {
			left = append(left, s)
		}
	}
	if len(left) == 0 {
		return nil, fmt.Errorf("nothing is left of the plan")
	}
	return left, nil
}

// Names are those of scenarios.
func Names(all []Scenario) []string {
	names := make([]string, len(all))
	for i, s := range all {
		names[i] = s.Name
	}
	return names
}

// Order is in which order systems take their turns in a repetition, counted from 0: forth
// and back, so that none always comes behind the same one.
func Order(systems []System, repetition int) []System {
	turn := slices.Clone(systems)
	if repetition%2 == 1 {
		slices.Reverse(turn)
	}
	return turn
}

// Lasting gives each run another duration.
func Lasting(all []Scenario, d time.Duration) []Scenario {
	return changed(all, func(c *Case) { c.Duration = d })
}

// changed is the plan with other cases; the plan itself stays.
func changed(all []Scenario, change func(*Case)) []Scenario {
	others := make([]Scenario, len(all))
	for i, s := range all {
		s.Cases = slices.Clone(s.Cases)
		for j := range s.Cases {
			change(&s.Cases[j])
		}
		others[i] = s
	}
	return others
}

// Smoke makes everything small and short: it shows that all of it works, and measures
// nothing. A moment is long enough for something to come back on a machine that has much
// else to do.
func Smoke(all []Scenario) []Scenario {
	const few, moment = 50, 600 * time.Millisecond
	return changed(all, func(c *Case) {
		c.Warmup, c.Duration = min(c.Warmup, moment/6), min(c.Duration, moment)
		c.Subscribers, c.Publishers, c.Records = min(c.Subscribers, few), min(c.Publishers, few), min(c.Records, 20*few)
		c.Partitions = min(c.Partitions, few)
	})
}
