package state

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"tidewire/coordinator/layout"
	"tidewire/coordinator/placement"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
)

// create makes a topic, or finds the one of that name equal in every setting
// that was given.
func (m *Machine) create(c *cluster.Create) cluster.Answer {
	spec := &c.Spec
	if r := checkSpec(spec); r != nil {
		return cluster.Answer{Refusal: r}
	}
	if t := m.view.Topics[spec.Name]; t != nil {
		return existing(t, spec)
	}
	brokers, open := m.brokers(), m.open()
	if brokers == 0 {
		return cluster.Answer{Refusal: refuse(fault.NotEnoughReplicas, "no broker has registered yet; try again in a moment")}
	}
	s := defaults(&spec.SettingsPatch, brokers)
	if r := checkTogether(s, brokers); r != nil {
		return cluster.Answer{Refusal: r}
	}
	// Brokers that are dead or drain take no new replica. A topic can begin without
	// them as long as it can be written to; the rest comes when they do.
	replicas := min(s.Replicas, len(open))
	if replicas < s.MinInsync {
		return cluster.Answer{Refusal: refuse(fault.NotEnoughReplicas, fmt.Sprintf("%s is %d, and of %d brokers %d are alive and not draining; try again when more are",
			fieldMinInsync, s.MinInsync, brokers, len(open)))}
	}
	n := 1
	set(&n, spec.Partitions)
	if r := m.checkRoom(n); r != nil {
		return cluster.Answer{Refusal: r}
	}
	if r := m.checkID(c.ID); r != nil {
		return cluster.Answer{Refusal: r}
	}

	t := &cluster.Topic{
		ID:         c.ID,
		Name:       spec.Name,
		Settings:   s,
		Generation: layout.First,
		Partitions: make([]cluster.Partition, n),
		Created:    m.time(),
		Modified:   m.view.Index,
	}
	placed := placement.Spread(open, n, replicas)
	for i, r := range layout.Even(n) {
		t.Partitions[i] = cluster.Partition{
			Index:       ident.Index(i),
			Range:       r,
			State:       cluster.Open,
			Replicas:    placed[i],
			ISR:         placed[i],
			Leader:      placed[i][0],
			LeaderEpoch: 1,
			Version:     1,
		}
	}
	m.put(t)
	return cluster.Answer{Created: true, Topic: t}
}

// alter changes settings. A change of min_insync or replicas is part of the
// versioned state of every partition.
func (m *Machine) alter(c *cluster.Alter) cluster.Answer {
	t := m.view.Topics[c.Name]
	if t == nil {
		return cluster.Answer{Refusal: notFound(c.Name)}
	}
	if r := checkPatch(&c.Patch); r != nil {
		return cluster.Answer{Refusal: r}
	}
	s := patched(t.Settings, &c.Patch)
	if s == t.Settings {
		return cluster.Answer{Topic: t}
	}
	if r := checkTogether(s, max(m.brokers(), t.Settings.Replicas)); r != nil {
		return cluster.Answer{Refusal: r}
	}
	if s.Replicas != t.Settings.Replicas || s.MinInsync != t.Settings.MinInsync {
		return m.restate(t, s)
	}
	b := m.begins()
	own := b.own(t)
	settles(own, s)
	for k := range own.Partitions { // unclean may let somebody lead who could not
		if p := &own.Partitions[k]; p.Leader == (ident.NodeID{}) {
			b.edit(own.Ref(p.Index), b.elects)
		}
	}
	b.done()
	return cluster.Answer{Topic: m.view.ByID[t.ID]}
}

// settles gives a topic its settings. Where it was durable by replication, and is to be more,
// what was acknowledged before is as durable as it was.
func settles(t *cluster.Topic, s cluster.Settings) {
	if t.Settings.Durability == cluster.Replicated && s.Durability != cluster.Replicated {
		volatile := slices.Clone(t.Volatile)
		for k := range t.Partitions {
			for _, n := range t.Partitions[k].Replicas {
				if !slices.Contains(volatile, n) {
					volatile = append(volatile, n)
				}
			}
		}
		t.Volatile = volatile
	}
	t.Settings = s
}

// delete ends a topic's life and remembers its id.
func (m *Machine) delete(name string) cluster.Answer {
	t := m.view.Topics[name]
	if t == nil {
		return cluster.Answer{Refusal: notFound(name)}
	}
	m.remove(t)
	return cluster.Answer{}
}

func checkSpec(spec *cluster.TopicSpec) *cluster.Refusal {
	if err := ident.CheckTopicName(spec.Name); err != nil {
		kind := fault.Invalid
		if errors.Is(err, ident.ErrReserved) {
			kind = fault.ReservedName
		}
		r := refuse(kind, "name: "+err.Error())
		r.Field = "name"
		return r
	}
	if v := spec.Partitions; v != nil && (*v < 1 || *v > cluster.MaxPartitions) {
		return outside(fieldPartitions, *v, fmt.Sprintf("1 to %d", cluster.MaxPartitions))
	}
	return checkPatch(&spec.SettingsPatch)
}

func existing(t *cluster.Topic, spec *cluster.TopicSpec) cluster.Answer {
	names, texts := differences(t, spec)
	if len(names) == 0 {
		return cluster.Answer{Topic: t}
	}
	r := refuse(fault.TopicExists, fmt.Sprintf("topic %s exists with other settings: %s", t.Name, strings.Join(texts, "; ")))
	r.Differs = names
	return cluster.Answer{Refusal: r}
}

func (m *Machine) checkRoom(partitions int) *cluster.Refusal {
	if len(m.view.Topics) >= MaxTopics {
		return refuse(fault.Limit, fmt.Sprintf("the cluster holds %d topics, as many as it may; delete one first", MaxTopics))
	}
	if m.partitions+partitions > MaxPartitions {
		return refuse(fault.Limit, fmt.Sprintf("the cluster holds %d partitions and may hold %d: there is no room for %d more", m.partitions, MaxPartitions, partitions))
	}
	return nil
}

// checkID keeps the promise that an id names one life of one topic. A random id
// never fails it.
func (m *Machine) checkID(id ident.TopicID) *cluster.Refusal {
	_, gone := m.view.Deleted[id]
	if id.IsZero() || gone || m.view.ByID[id] != nil {
		return refuse(fault.Internal, fmt.Sprintf("topic id %s is not a new one", id))
	}
	return nil
}

func notFound(name string) *cluster.Refusal {
	return refuse(fault.TopicNotFound, fmt.Sprintf("there is no topic %q", clip(name)))
}

// openPartitions counts the partitions that take records.
func openPartitions(t *cluster.Topic) int {
	n := 0
	for i := range t.Partitions {
		if t.Partitions[i].State == cluster.Open {
			n++
		}
	}
	return n
}
