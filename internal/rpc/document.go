package rpc

import (
	"encoding/json"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/rpc/tidewirepb"
)

// documentFormat is the format of the JSON in documents. A member that is added
// leaves it; one that means something else raises it. Who reads an answer passes over
// members that it does not know; a change with one is refused.
const documentFormat = 1

func document(v any) (*tidewirepb.Document, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fault.New(fault.Internal, "encode %T: %w", v, err)
	}
	return &tidewirepb.Document{Format: documentFormat, Json: b}, nil
}

func openDocument(d *tidewirepb.Document, v any) error { return openBy(json.Unmarshal, d, v) }

// openChange reads a change whole or not at all: one of a newer version made in part
// would be another change than was asked for.
func openChange(d *tidewirepb.Document) (c cluster.Change, err error) {
	err = openBy(cluster.Strictly, d, &c)
	return c, err
}

func openBy(read func([]byte, any) error, d *tidewirepb.Document, v any) error {
	switch {
	case d == nil:
		return fault.New(fault.Invalid, "a message lacks its document")
	case d.Format != documentFormat:
		return fault.New(fault.Invalid, "a document of format %d, this node reads %d: the nodes run versions that do not go together", d.Format, documentFormat)
	}
	if err := read(d.Json, v); err != nil {
		return fault.New(fault.Invalid, "decode %T: %w", v, err)
	}
	return nil
}

func id16[T ~[16]byte](b []byte) (T, error) {
	if len(b) != 16 {
		return T{}, fault.New(fault.Invalid, "an id of %d bytes; an id has 16", len(b))
	}
	return T(b), nil
}

func lifeOf(l *tidewirepb.Life) (cluster.Life, error) {
	node, err := id16[ident.NodeID](l.GetNode())
	return cluster.Life{Node: node, Epoch: ident.BrokerEpoch(l.GetEpoch())}, err
}

func lifeMessage(l cluster.Life) *tidewirepb.Life {
	return &tidewirepb.Life{Node: l.Node[:], Epoch: uint64(l.Epoch)}
}

func partitionOf(p *tidewirepb.Partition) (ident.Partition, error) {
	topic, err := id16[ident.TopicID](p.GetTopic())
	return ident.Partition{Topic: topic, Index: ident.Index(p.GetIndex())}, err
}

func partitionMessage(p ident.Partition) *tidewirepb.Partition {
	return &tidewirepb.Partition{Topic: p.Topic[:], Index: uint32(p.Index)}
}

func boundsOf(b *tidewirepb.Bounds) Bounds {
	return Bounds{Start: ident.Offset(b.GetStart()), HW: ident.Offset(b.GetHw()), Epoch: ident.Epoch(b.GetEpoch())}
}

func boundsMessage(b Bounds) *tidewirepb.Bounds {
	return &tidewirepb.Bounds{Start: int64(b.Start), Hw: int64(b.HW), Epoch: uint32(b.Epoch)}
}
