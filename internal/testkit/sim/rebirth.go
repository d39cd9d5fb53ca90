package sim

import (
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
)

// topicName names the one topic there is at a time. It may be deleted, and another of the
// same name come after it: to everybody that is another topic (rule A7).
const topicName = "orders"

func topicID(life int) ident.TopicID { return ident.TopicID{0: 0x7e, 15: byte(life)} }

// ref names a partition of the topic that there is, or was last.
func (w *World) ref(part int) ident.Partition {
	return ident.Partition{Topic: w.topic, Index: ident.Index(part)}
}

// ref names a partition of the topic whose replicas the broker has.
func (b *broker) ref(part int) ident.Partition {
	return ident.Partition{Topic: b.topic, Index: ident.Index(part)}
}

// creation makes a topic, as the setup has it.
func (s *Setup) creation(id ident.TopicID) cluster.Change {
	return cluster.Change{Create: &cluster.Create{ID: id, Spec: cluster.TopicSpec{
		Name: topicName, Partitions: &s.Partitions,
		SettingsPatch: cluster.SettingsPatch{
			Replicas: &s.Replicas, MinInsync: &s.MinInsync, Unclean: &s.Unclean, Durability: new(s.durability()), MaxMessageBytes: new(maxMessageBytes),
		},
	}}}
}

// deletes ends the topic, whatever is under way there.
func (w *World) deletes(f *Fault) {
	w.gap, w.deleting = f.For/8, true
	w.council.propose(w.edge, cluster.Change{Delete: &cluster.Delete{Name: topicName}}, func(cluster.Answer, error) {})
}

// creates makes the topic that comes after it, and goes on until it is there.
func (w *World) creates() {
	w.council.propose(w.edge, w.set.creation(topicID(w.lives+1)), func(cluster.Answer, error) {
		if !w.there() {
			w.after(100*time.Millisecond, w.creates)
		}
	})
}

// there says whether there is a topic.
func (w *World) there() bool { return w.council.now().Topics[topicName] != nil }

// reborn takes in that a topic was created: nothing is true of it yet.
func (w *World) reborn(t *cluster.Topic) {
	w.lives, w.topic, w.deleting = w.lives+1, t.ID, false
	if w.lives > 1 {
		w.note("council", "another topic of the same name: %s", t.ID)
		w.reached.hit("topic deleted and created again")
	}
	for i := range w.truth {
		w.truth[i] = newTruth(i)
	}
	w.recheck = true
}

// current says whether what a broker has is of the topic that there is.
func (b *broker) current() bool { return b.w.there() && b.topic == b.w.topic }

// becomes drops what is of another topic than the one that the coordinator knows.
func (b *broker) becomes(id ident.TopicID) {
	if b.topic == id {
		return
	}
	for i, h := range b.replicas {
		if h != nil {
			h.replica.Stop(fault.New(fault.TopicNotFound, "deleted"))
			b.setAside(i)
		}
		b.disclaimed[i] = false
	}
	b.topic = id
}

// sweeps drops a log that a former life kept of a topic that is no more.
func (b *broker) sweeps(i int, id ident.TopicID) {
	if s := b.folder.logs[i]; s != nil && s.of != id {
		b.w.reached.hit("log of a deleted topic swept")
		b.clears(i)
	}
}

// of says whether a log is of a topic.
func (f *folder) of(part int, id ident.TopicID) *stored {
	if s := f.logs[part]; s != nil && s.of == id {
		return s
	}
	return nil
}
