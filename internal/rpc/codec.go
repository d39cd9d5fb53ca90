package rpc

import (
	"fmt"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"tidewire/internal/record"
	"tidewire/internal/rpc/tidewirepb"
)

// Bounds of messages. What a peer sends is bounded before it is read, and again by
// what it is: a message of small things is not as long as one of batches.
const (
	maxMessageBytes = record.MaxBatchBytes + 1<<20 // of a request, and of batches in an answer
	maxControlBytes = 4 << 20                      // of anything that holds no batches
	maxListBytes    = 64 << 20                     // of a list of connections
)

// MaxSendBytes bounds the batches of one FromLeader, and leaves room for a batch of
// any size.
const MaxSendBytes = record.MaxBatchBytes

// codec writes messages in protobuf's wire format. Those with batches it writes and
// reads itself: see encoder. The others are left to the generated code.
type codec struct{}

// Name makes it protobuf to whoever looks at a connection.
func (codec) Name() string { return "proto" }

func (codec) Marshal(v any) (mem.BufferSlice, error) {
	switch v := v.(type) {
	case *tidewirepb.ReadResponse:
		return marshalRead(v)
	case *tidewirepb.TakeResponse:
		return marshalTake(v)
	case proto.Message:
		b, err := proto.Marshal(v)
		return mem.BufferSlice{mem.SliceBuffer(b)}, err
	}
	return nil, fmt.Errorf("%T is no message", v)
}

// marshalRead refers to the batches instead of copying them.
func marshalRead(r *tidewirepb.ReadResponse) (mem.BufferSlice, error) {
	rest, err := proto.Marshal(&tidewirepb.ReadResponse{Bounds: r.Bounds, Problem: r.Problem})
	if err != nil {
		return nil, err
	}
	var e encoder
	e.begin()
	e.bytes(1, r.Batches)
	e.b = append(e.b, rest...)
	return pieces(&e), nil
}

// pieces are the message as the library wants it.
func pieces(e *encoder) (out mem.BufferSlice) {
	for _, piece := range e.message() {
		out = append(out, mem.SliceBuffer(piece))
	}
	return out
}

// marshalTake refers to the batches as well.
func marshalTake(r *tidewirepb.TakeResponse) (mem.BufferSlice, error) {
	rests := make([][]byte, len(r.Items))
	for i, it := range r.Items {
		var err error
		rests[i], err = proto.Marshal(&tidewirepb.TakeResponse_Item{Partition: it.Partition, Leases: it.Leases, Problem: it.Problem})
		if err != nil {
			return nil, err
		}
	}
	var e encoder
	e.begin()
	for i, it := range r.Items {
		o := e.open(1)
		e.bytes(2, it.Batches)
		e.b = append(e.b, rests[i]...)
		e.close(o)
	}
	e.bool(2, r.More)
	e.varint(3, uint64(r.Held))
	return pieces(&e), nil
}

func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	if most := bound(v); data.Len() > most {
		return fmt.Errorf("a message of %d bytes; %d are allowed", data.Len(), most)
	}
	m, ok := v.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is no message", v)
	}
	buffer := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buffer.Free()
	return proto.Unmarshal(buffer.ReadOnlyData(), m)
}

func bound(v any) int {
	switch v.(type) {
	case *tidewirepb.ReadResponse, *tidewirepb.TakeResponse, *tidewirepb.WatchResponse, *tidewirepb.ProgressResponse:
		return maxMessageBytes // what is watched comes in parts; one is as long as a topic may be, and what groups have done likewise
	case *tidewirepb.ConnectionsResponse, *tidewirepb.RecordStatusResponse:
		return maxListBytes // the latter is as long as a topic may have groups
	case *tidewirepb.SettleResponse:
		return maxMessageBytes // answers of as many records as a request can hold
	case *tidewirepb.HandReplyRequest, *tidewirepb.CollectReplyResponse:
		return maxMessageBytes // a reply is as large as a record may be
	}
	return maxControlBytes
}
