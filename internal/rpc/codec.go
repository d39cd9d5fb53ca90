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
	case *encoder:
		return v.message(), nil
	case *followRequest:
		var e encoder
		v.encode(&e)
		return e.message(), nil
	case *followResponse:
		var e encoder
		v.encode(&e)
		return e.message(), nil
	case *tidewirepb.ReadResponse:
		return marshalRead(v)
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
	e.begin(len(rest) + 16 + min(len(r.Batches), referFrom))
	e.bytes(1, r.Batches)
	e.b = append(e.b, rest...)
	return e.message(), nil
}

func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	if most := bound(v); data.Len() > most {
		return fmt.Errorf("a message of %d bytes; %d are allowed", data.Len(), most)
	}
	if m, ok := v.(proto.Message); ok {
		buffer := data.MaterializeToBuffer(mem.DefaultBufferPool())
		defer buffer.Free()
		return proto.Unmarshal(buffer.ReadOnlyData(), m)
	}
	b, given := contiguous(data)
	switch v := v.(type) {
	case *appendRequest:
		return v.decode(b, given)
	case *appendResponse:
		return v.decode(b)
	case *followRequest:
		return v.decode(b)
	case *followResponse:
		return v.decode(b, given)
	}
	return fmt.Errorf("%T is no message", v)
}

// contiguous gives a message in one piece: as it lies in the transport's buffer, which
// is used again, or copied together, which is the reader's own.
func contiguous(data mem.BufferSlice) (b []byte, given bool) {
	if len(data) == 1 {
		return data[0].ReadOnlyData(), false
	}
	return data.Materialize(), true
}

func bound(v any) int {
	switch v.(type) {
	case *appendRequest, *followResponse, *tidewirepb.ReadResponse, *tidewirepb.WatchResponse:
		return maxMessageBytes // what is watched comes in parts; one is as long as a topic may be
	case *tidewirepb.ConnectionsResponse:
		return maxListBytes
	case *appendResponse:
		return maxMessageBytes // answers of as many records as a request can hold
	}
	return maxControlBytes
}
