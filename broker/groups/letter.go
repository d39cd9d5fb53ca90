package groups

import (
	"context"
	"slices"
	"strconv"

	"github.com/google/uuid"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
)

// letterRoom is how much larger records of a dead-letter topic may be than those that die:
// they say why.
const letterRoom = 64 << 10

// create makes a dead-letter topic: one partition, and as many replicas as the source has,
// where there are brokers for them.
func (t *undertaker) create(ctx context.Context, name string, source *cluster.Topic) (cluster.Answer, error) {
	partitions, replicas := 1, source.Settings.Replicas
	most := min(source.Settings.MaxMessageBytes+letterRoom, cluster.MaxMessageBytes)
	spec := cluster.TopicSpec{Name: name, Partitions: &partitions}
	spec.Replicas, spec.MaxMessageBytes = &replicas, &most
	for {
		answer, err := t.g.cfg.Coordinator.Propose(ctx, cluster.Change{Create: &cluster.Create{ID: ident.TopicID(uuid.New()), Spec: spec}})
		switch refusal := answer.Refusal; {
		case err != nil:
			return answer, err
		case refusal == nil || refusal.Code == fault.TopicExists.Code():
			return answer, nil
		case refusal.Field == "replicas" && spec.Replicas != nil:
			spec.Replicas = nil
		default:
			return answer, refusal.Fault()
		}
	}
}

// exhume reads the record that died. One that the log holds no more is empty: its number
// is used up all the same.
func exhume(ctx context.Context, p *post, o ident.Offset) (*record.Record, error) {
	var held shelf
	err := held.read(ctx, p, o, minChunk)
	switch {
	case fault.Is(err, fault.OffsetExpired):
		return &record.Record{ContentType: "application/octet-stream"}, nil
	case err != nil:
		return nil, err
	}
	at, ok := held.find(o)
	if !ok {
		return &record.Record{ContentType: "application/octet-stream"}, nil
	}
	it := record.Batch(held.chunks[at.chunk][at.from:at.to]).Entries()
	for it.Next() {
		if e := it.Entry(); !e.Void && at.base+ident.Offset(e.Delta) == o {
			r := e.Record
			r.Headers = slices.Clone(r.Headers)
			return &r, nil
		}
	}
	if err := it.Err(); err != nil {
		return nil, fault.New(fault.Internal, "the batch at offset %d: %w", at.base, err)
	}
	return &record.Record{ContentType: "application/octet-stream"}, nil
}

// address makes a letter of a record: who sends it, and why.
func address(r *record.Record, topic string, group *cluster.Group, from ident.Index, i *cluster.Intent) {
	r.Idempotency = nil // of its first place
	r.Producer, r.Sequence = ident.SystemProducer(group.ID, from), i.Sequence
	for _, h := range []record.HeaderField{
		{Name: "Tidewire-Dead-Reason", Value: i.Reason},
		{Name: "Tidewire-Dead-Topic", Value: topic},
		{Name: "Tidewire-Dead-Partition", Value: strconv.FormatUint(uint64(from), 10)},
		{Name: "Tidewire-Dead-Offset", Value: strconv.FormatInt(int64(i.Offset), 10)},
		{Name: "Tidewire-Dead-Group", Value: group.Name},
		{Name: "Tidewire-Dead-Deliveries", Value: strconv.Itoa(i.Deliveries)},
	} {
		r.Headers = slices.DeleteFunc(r.Headers, func(old record.HeaderField) bool { return old.Name == h.Name })
		r.Headers = append(r.Headers, h)
	}
}

// placeOf is the partition that takes a letter: the one of its key, else the one that was
// intended. It is the same at every try, as long as the topic's layout is.
func placeOf(t *cluster.Topic, r *record.Record, intended ident.Index) (*cluster.Partition, error) {
	var found *cluster.Partition
	for i := range t.Partitions {
		switch p := &t.Partitions[i]; {
		case p.State != cluster.Open && p.State != "":
		case r.Key != nil && p.Range.Contains(ident.KeyHash(r.Key)):
			found = p
		case r.Key == nil && (found == nil || p.Index == intended):
			found = p
		}
	}
	switch {
	case found == nil:
		return nil, fault.New(fault.PartitionNotFound, "no partition of topic %q takes records of that key at the moment", t.Name)
	case found.Leader == (ident.NodeID{}):
		return nil, fault.New(fault.LeaderUnavailable, "partition %d of topic %q has no leader at the moment", found.Index, t.Name)
	}
	return found, nil
}
