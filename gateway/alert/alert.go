package alert

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// The alerts there are.
const (
	NodeDown        = "node-down"
	UnderReplicated = "under-replicated"
	ReplicaLag      = "replica-lag"
	CorruptReplica  = "corrupt-replica"
	DiskSpace       = "disk-space"
	GroupPaused     = "group-paused"
)

// Names of all alerts.
func Names() []string {
	return []string{NodeDown, UnderReplicated, ReplicaLag, CorruptReplica, DiskSpace, GroupPaused}
}

// rule is how long a condition has to hold before its alert fires, and how long
// it must not before it resolves.
type rule struct{ fire, resolve time.Duration }

var rules = map[string]rule{
	NodeDown:        {0, time.Second}, // whoever declared it over has waited already
	UnderReplicated: {time.Second, time.Second},
	ReplicaLag:      {time.Second, time.Second},
	CorruptReplica:  {0, time.Second},
	DiskSpace:       {0, 5 * time.Second},
	GroupPaused:     {5 * time.Second, 3 * time.Second}, // a busy one pauses now and then and goes on
}

const (
	// comingTime is how long a node may take from its registration until it counts.
	comingTime = 5 * time.Second
	// MaxAlerts bounds what is known at once; more conditions wait until others
	// are over.
	MaxAlerts = 4096
	// keepResolved is how long an alert that resolved is told of, and mostResolved
	// how many are.
	keepResolved = time.Hour
	mostResolved = 256
)

// Report is what a node says of itself.
type Report struct {
	Free    int64 // bytes on the data disk
	Least   int64 // below which it takes no records; 0: unknown
	Corrupt []ident.Partition
	Paused  []Pause
}

// Pause is a group that is given nothing new on a partition, because too many records are
// not done, as the partition's leader says.
type Pause struct {
	Partition ident.Partition
	Group     string
}

// Input is what is known at one moment.
type Input struct {
	Snapshot *cluster.Snapshot
	Reports  map[ident.NodeID]Report // of nodes that answered
	// Stale says that no coordinator has been heard for a while: the snapshot tells
	// nothing of who lives. Silent are the nodes that were asked last and did not answer.
	Stale  bool
	Silent map[ident.NodeID]bool
}

// Alert is one alert.
type Alert struct {
	Alert     string
	Firing    bool
	Since     time.Time // its condition holds, or held
	Until     time.Time // zero: it still does
	Topic     string    // empty: of none
	Partition ident.Index
	Node      ident.NodeID // zero: of none
	Group     string       // of the topic; empty: of none
	Detail    string
	Advice    string
}

// key tells alerts apart.
type key struct {
	alert string
	part  ident.Partition
	node  ident.NodeID
	group string
}

// entry is an alert and how long it has been what it is.
type entry struct {
	Alert
	fired bool
	over  time.Time // since when the condition does not hold; zero: it does
}

// Machine holds the alerts. It is not safe for concurrent use.
type Machine struct {
	entries  map[key]*entry
	resolved []Alert // oldest first
}

// New makes a machine that knows of nothing.
func New() *Machine { return &Machine{entries: map[key]*entry{}} }

// Observe takes in what is known now, and says when an alert fires or resolves if
// nothing changes but the time; zero: none will.
func (m *Machine) Observe(now time.Time, in Input) (next time.Time) {
	due := func(at time.Time) {
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	found := conditions(in)
	for k, c := range found {
		e := m.entries[k]
		if e == nil {
			if len(m.entries) >= MaxAlerts {
				continue
			}
			e = &entry{Alert: Alert{Alert: k.alert, Since: now}}
			m.entries[k] = e
		}
		e.over = time.Time{}
		e.Topic, e.Partition, e.Node, e.Group, e.Detail, e.Advice = c.topic, k.part.Index, k.node, k.group, c.detail, c.advice
		switch fires := e.Since.Add(max(rules[k.alert].fire, c.patience)); {
		case e.fired:
		case now.Before(fires):
			due(fires)
		default:
			e.fired, e.Firing = true, true
		}
	}
	for k, e := range m.entries {
		if _, holds := found[k]; holds || unsure(in, k) {
			continue
		}
		if e.over.IsZero() {
			e.over = now
		}
		switch resolves := e.over.Add(rules[k.alert].resolve); {
		case !e.fired:
			delete(m.entries, k)
		case now.Before(resolves):
			due(resolves)
		default:
			e.Firing, e.Until = false, e.over
			m.resolved = append(m.resolved, e.Alert)
			delete(m.entries, k)
		}
	}
	m.resolved = slices.DeleteFunc(m.resolved, func(a Alert) bool { return now.Sub(a.Until) > keepResolved })
	if over := len(m.resolved) - mostResolved; over > 0 {
		m.resolved = slices.Delete(m.resolved, 0, over)
	}
	return next
}

// List is the firing alerts and then those that resolved lately, each the newest
// first.
func (m *Machine) List() []Alert {
	var out []Alert
	for _, e := range m.entries {
		if e.fired {
			out = append(out, e.Alert)
		}
	}
	out = append(out, m.resolved...)
	slices.SortFunc(out, func(a, b Alert) int {
		if a.Firing != b.Firing {
			if a.Firing {
				return -1
			}
			return 1
		}
		return cmp.Or(b.Until.Compare(a.Until), b.Since.Compare(a.Since), strings.Compare(a.Alert, b.Alert),
			strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition), strings.Compare(a.Group, b.Group), strings.Compare(a.Node.String(), b.Node.String()))
	})
	return out
}

// Firing counts the firing alerts by name.
func (m *Machine) Firing() map[string]int {
	out := map[string]int{}
	for _, name := range Names() {
		out[name] = 0
	}
	for _, e := range m.entries {
		if e.fired {
			out[e.Alert.Alert]++
		}
	}
	return out
}
