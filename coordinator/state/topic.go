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
func (m *Machine) create(c *Create) Answer {
	spec := &c.Spec
	if r := checkSpec(spec); r != nil {
		return Answer{Refusal: r}
	}
	if t := m.view.Topics[spec.Name]; t != nil {
		return existing(t, spec)
	}
	brokers := m.brokers()
	if len(brokers) == 0 {
		return Answer{Refusal: refuse(fault.NotEnoughReplicas, "no broker has registered yet; try again in a moment")}
	}
	s := defaults(&spec.SettingsPatch, len(brokers))
	if r := checkTogether(s, len(brokers)); r != nil {
		return Answer{Refusal: r}
	}
	n := 1
	set(&n, spec.Partitions)
	if r := m.checkRoom(n); r != nil {
		return Answer{Refusal: r}
	}
	if r := m.checkID(c.ID); r != nil {
		return Answer{Refusal: r}
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
	placed := placement.Spread(brokers, n, s.Replicas)
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
	return Answer{Created: true, Topic: t}
}

// alter changes settings. A change of min_insync or replicas is part of the
// versioned state of every partition.
func (m *Machine) alter(c *Alter) Answer {
	t := m.view.Topics[c.Name]
	if t == nil {
		return Answer{Refusal: notFound(c.Name)}
	}
	if r := checkPatch(&c.Patch); r != nil {
		return Answer{Refusal: r}
	}
	s := patched(t.Settings, &c.Patch)
	if s == t.Settings {
		return Answer{Topic: t}
	}
	if r := checkTogether(s, len(m.brokers())); r != nil {
		return Answer{Refusal: r}
	}
	parts := slices.Clone(t.Partitions)
	if s.Replicas != t.Settings.Replicas {
		if r := m.resize(parts, s); r != nil {
			return Answer{Refusal: r}
		}
	}
	if s.Replicas != t.Settings.Replicas || s.MinInsync != t.Settings.MinInsync {
		for i := range parts {
			parts[i].Version++
		}
	}
	return Answer{Topic: m.edit(t, func(t *cluster.Topic) {
		t.Settings = s
		t.Partitions = parts
	})}
}

// resize gives each partition the number of replicas that s asks for. New ones
// are outside the ISR until they have caught up. The leader stays, and a replica
// goes only where the rest of the ISR is still min_insync.
func (m *Machine) resize(parts []cluster.Partition, s cluster.Settings) *Refusal {
	loads := m.brokers()
	for i := range parts {
		p := &parts[i]
		if more := s.Replicas - len(p.Replicas); more > 0 {
			added := placement.Add(loads, p.Replicas, more)
			p.Replicas = slices.Concat(p.Replicas, added)
			for k := range loads {
				if slices.Contains(added, loads[k].Node) {
					loads[k].Replicas++
				}
			}
			continue
		}
		keep := slices.Clone(p.Replicas)
		for k := len(keep) - 1; k >= 0 && len(keep) > s.Replicas; k-- {
			if keep[k] != p.Leader {
				keep = slices.Delete(keep, k, k+1)
			}
		}
		isr := slices.DeleteFunc(slices.Clone(p.ISR), func(n ident.NodeID) bool { return !slices.Contains(keep, n) })
		if len(isr) < s.MinInsync {
			r := refuse(fault.Invalid, fmt.Sprintf("%s %d would leave partition %d with %d in-sync replicas, fewer than %s %d; wait until its replicas have caught up",
				fieldReplicas, s.Replicas, p.Index, len(isr), fieldMinInsync, s.MinInsync))
			r.Field = fieldReplicas
			return r
		}
		p.Replicas, p.ISR = keep, isr
	}
	return nil
}

// delete ends a topic's life and remembers its id.
func (m *Machine) delete(name string) Answer {
	t := m.view.Topics[name]
	if t == nil {
		return Answer{Refusal: notFound(name)}
	}
	m.remove(t)
	return Answer{}
}

func checkSpec(spec *cluster.TopicSpec) *Refusal {
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

func existing(t *cluster.Topic, spec *cluster.TopicSpec) Answer {
	names, texts := differences(t, spec)
	if len(names) == 0 {
		return Answer{Topic: t}
	}
	r := refuse(fault.TopicExists, fmt.Sprintf("topic %s exists with other settings: %s", t.Name, strings.Join(texts, "; ")))
	r.Differs = names
	return Answer{Refusal: r}
}

func (m *Machine) checkRoom(partitions int) *Refusal {
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
func (m *Machine) checkID(id ident.TopicID) *Refusal {
	_, gone := m.view.Deleted[id]
	if id.IsZero() || gone || m.view.ByID[id] != nil {
		return refuse(fault.Internal, fmt.Sprintf("topic id %s is not a new one", id))
	}
	return nil
}

func notFound(name string) *Refusal {
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
