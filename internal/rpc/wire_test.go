package rpc

import (
	"bytes"
	"math"
	"reflect"
	"slices"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/rpc/tidewirepb"
)

// whole copies a message together, as the other end gets it.
func whole(m interface{ encode(*encoder) }) []byte {
	var e encoder
	m.encode(&e)
	return slices.Concat(e.message()...)
}

// generated checks that bytes are what the definition of the messages says, and
// gives them as the generated code writes them.
func generated[M proto.Message](t interface{ Fatal(...any) }, b []byte, m M) []byte {
	if err := proto.Unmarshal(b, m); err != nil {
		t.Fatal("the generated code cannot read it: ", err)
	}
	if n := len(m.ProtoReflect().GetUnknown()); n > 0 {
		t.Fatal("fields that are not defined")
	}
	again, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return again
}

var (
	partitions = rapid.Custom(func(t *rapid.T) ident.Partition {
		var p ident.Partition
		copy(p.Topic[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "topic"))
		p.Index = ident.Index(rapid.Uint32().Draw(t, "index"))
		return p
	})
	epochs    = rapid.Custom(func(t *rapid.T) ident.Epoch { return ident.Epoch(rapid.Uint32().Draw(t, "epoch")) })
	offsets   = rapid.Custom(func(t *rapid.T) ident.Offset { return ident.Offset(rapid.Int64Min(0).Draw(t, "offset")) })
	positions = rapid.Custom(func(t *rapid.T) record.Position {
		return record.Position{Offset: offsets.Draw(t, "at"), Voids: rapid.IntRange(0, math.MaxUint32).Draw(t, "voids")}
	})
	// Around the length from which on bytes are not copied, too.
	payloads = rapid.Custom(func(t *rapid.T) []byte {
		n := rapid.OneOf(rapid.IntRange(0, 40), rapid.IntRange(referFrom-2, referFrom+2), rapid.IntRange(40000, 40010)).Draw(t, "bytes")
		if n == 0 {
			return nil
		}
		return bytes.Repeat([]byte{rapid.Byte().Draw(t, "byte")}, n)
	})
)

func TestAppendRequests(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		items := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) appendItem {
			return appendItem{rapid.Uint64().Draw(t, "id"), Append{
				Partition: partitions.Draw(t, "partition"), Epoch: epochs.Draw(t, "epoch"),
				Batch: payloads.Draw(t, "batch"), Acks: Acks(rapid.IntRange(0, int(AcksNone)).Draw(t, "acks")),
			}}
		}), 1, 5).Draw(t, "items")
		sent := appendRequest{items, rapid.Uint64().Draw(t, "received")}
		var e encoder
		sent.encode(&e)
		b := whole(&sent)
		if len(b) != e.len() {
			t.Fatalf("%d bytes, and said to be %d", len(b), e.len())
		}
		for _, b := range [][]byte{b, generated(t, b, &tidewirepb.AppendRequest{})} {
			for _, given := range []bool{true, false} {
				var got appendRequest
				if err := got.decode(bytes.Clone(b), given); err != nil {
					t.Fatal(err)
				}
				same(t, sent, got)
			}
		}
	})
}

// same compares, but takes no bytes for nil.
func same[T any](t *rapid.T, want, got T) {
	if !reflect.DeepEqual(want, got) {
		t.Fatalf("%+v\nbecame\n%+v", want, got)
	}
}

func TestAppendResponses(t *testing.T) {
	results := rapid.Custom(func(t *rapid.T) RecordResult {
		r := RecordResult{Offset: offsets.Draw(t, "offset"), Timestamp: rapid.Int64().Draw(t, "timestamp"), Duplicate: rapid.Bool().Draw(t, "duplicate")}
		if rapid.IntRange(0, 9).Draw(t, "old") == 0 {
			r.Offset = -1
		}
		if rapid.IntRange(0, 3).Draw(t, "fails") == 0 {
			r.Err = faultOf(problemOf(fault.New(fault.OutOfOrderSequence, "no").With("expected", int64(3))))
		}
		return r
	})
	answers := rapid.Custom(func(t *rapid.T) answer {
		a := answer{id: rapid.Uint64().Draw(t, "id")}
		switch rapid.IntRange(0, 2).Draw(t, "what") {
		case 0:
			a.Err = faultOf(problemOf(fault.New(fault.Fenced, "old")))
		case 1:
			a.Records = rapid.SliceOfN(results, 1, 5).Draw(t, "records")
		case 2:
			n, at, ts := rapid.IntRange(1, 300).Draw(t, "n"), ident.Offset(rapid.Int64Range(0, 1<<60).Draw(t, "at")), rapid.Int64().Draw(t, "ts")
			for i := range n {
				a.Records = append(a.Records, RecordResult{Offset: at + ident.Offset(i), Timestamp: ts})
			}
		}
		return a
	})
	rapid.Check(t, func(t *rapid.T) {
		sent := appendResponse{items: rapid.SliceOfN(answers, 1, 5).Draw(t, "answers")}
		b := whole(&sent)
		for _, b := range [][]byte{b, generated(t, b, &tidewirepb.AppendResponse{})} {
			var got appendResponse
			if err := got.decode(b); err != nil {
				t.Fatal(err)
			}
			same(t, sent, got)
		}
	})
}

func TestFollowMessages(t *testing.T) {
	standings := rapid.Custom(func(t *rapid.T) Standing {
		return Standing{partitions.Draw(t, "p"), epochs.Draw(t, "e"), positions.Draw(t, "end"), epochs.Draw(t, "last"), rapid.Uint64().Draw(t, "version")}
	})
	held := rapid.Custom(func(t *rapid.T) Held {
		return Held{partitions.Draw(t, "p"), epochs.Draw(t, "e"), positions.Draw(t, "durable"), rapid.Bool().Draw(t, "watched")}
	})
	divergences := rapid.Custom(func(t *rapid.T) Divergence {
		return Divergence{
			partitions.Draw(t, "p"), epochs.Draw(t, "e"), rapid.Bool().Draw(t, "agreed"), epochs.Draw(t, "last"),
			positions.Draw(t, "end"), offsets.Draw(t, "start"), payloads.Draw(t, "producers"), offsets.Draw(t, "at"),
			positions.Draw(t, "of"), epochs.Draw(t, "ofLast"),
		}
	})
	pushes := rapid.Custom(func(t *rapid.T) Push {
		return Push{
			partitions.Draw(t, "p"), epochs.Draw(t, "e"), positions.Draw(t, "prev"), epochs.Draw(t, "prevEpoch"),
			offsets.Draw(t, "hw"), offsets.Draw(t, "start"), payloads.Draw(t, "batches"),
		}
	})
	refused := rapid.Custom(func(t *rapid.T) Refused { return Refused{partitions.Draw(t, "p"), epochs.Draw(t, "e")} })
	rapid.Check(t, func(t *rapid.T) {
		from := FromFollower{rapid.SliceOfN(standings, 1, 4).Draw(t, "standings"), rapid.SliceOfN(held, 1, 4).Draw(t, "held")}
		b := whole(&followRequest{from: &from})
		for _, b := range [][]byte{b, generated(t, b, &tidewirepb.FollowRequest{})} {
			got := followRequest{from: &FromFollower{}}
			if err := got.decode(b); err != nil || got.opening != nil {
				t.Fatal(err, got.opening)
			}
			same(t, from, *got.from)
		}
		lives := func(name string) (l cluster.Life) {
			copy(l.Node[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, name))
			l.Epoch = ident.BrokerEpoch(rapid.Uint64().Draw(t, "life"))
			return l
		}
		opening := Follow{lives("follower"), lives("leader")}
		b = whole(&followRequest{opening: &opening})
		for _, b := range [][]byte{b, generated(t, b, &tidewirepb.FollowRequest{})} {
			got := followRequest{from: &FromFollower{}}
			if err := got.decode(b); err != nil {
				t.Fatal(err)
			}
			same(t, opening, *got.opening)
		}
		leader := FromLeader{
			rapid.SliceOfN(divergences, 1, 3).Draw(t, "divergences"), rapid.SliceOfN(pushes, 1, 3).Draw(t, "pushes"), rapid.SliceOfN(refused, 1, 3).Draw(t, "refused"),
		}
		b = whole(&followResponse{&leader})
		for _, b := range [][]byte{b, generated(t, b, &tidewirepb.FollowResponse{})} {
			for _, given := range []bool{true, false} {
				got := followResponse{&FromLeader{}}
				if err := got.decode(bytes.Clone(b), given); err != nil {
					t.Fatal(err)
				}
				same(t, leader, *got.from)
			}
		}
	})
}

// What a reader keeps of a message must not change when the transport uses its
// buffer again.
func TestBatchesOutliveTheBuffer(t *testing.T) {
	b := whole(&appendRequest{items: []appendItem{{1, Append{Batch: []byte("batch")}}}})
	var m appendRequest
	if err := m.decode(b, false); err != nil {
		t.Fatal(err)
	}
	push := whole(&followResponse{&FromLeader{Pushes: []Push{{Batches: []byte("batch")}}, Divergences: []Divergence{{Producers: []byte("batch")}}}})
	var from FromLeader
	if err := (&followResponse{&from}).decode(push, false); err != nil {
		t.Fatal(err)
	}
	clear(b)
	clear(push)
	for _, got := range [][]byte{m.items[0].Batch, from.Pushes[0].Batches, from.Divergences[0].Producers} {
		if string(got) != "batch" {
			t.Errorf("became %q", got)
		}
	}
}

func TestReadResponsesReferToTheirBatches(t *testing.T) {
	batches := bytes.Repeat([]byte("b"), 100000)
	sent := &tidewirepb.ReadResponse{Batches: batches, Bounds: &tidewirepb.Bounds{Hw: 9}, Problem: problemOf(fault.New(fault.OffsetExpired, "gone"))}
	parts, err := codec{}.Marshal(sent)
	if err != nil {
		t.Fatal(err)
	}
	shared := false
	for _, p := range parts {
		shared = shared || len(p.ReadOnlyData()) > 0 && &p.ReadOnlyData()[0] == &batches[0]
	}
	if !shared {
		t.Error("the batches were copied")
	}
	var got tidewirepb.ReadResponse
	if err := (codec{}).Unmarshal(parts, &got); err != nil || !proto.Equal(sent, &got) {
		t.Errorf("%v %v", &got, err)
	}
}

func TestMessagesAreBoundedByWhatTheyAre(t *testing.T) {
	long := mem.BufferSlice{mem.SliceBuffer(make([]byte, maxControlBytes+1))}
	for _, v := range []any{&tidewirepb.ProposeRequest{}, &tidewirepb.BoundsRequest{}} {
		if err := (codec{}).Unmarshal(long, v); err == nil {
			t.Errorf("%T of %d bytes was read", v, long.Len())
		}
	}
	if _, err := (codec{}).Marshal(7); err == nil {
		t.Error("7 is a message")
	}
	if err := (codec{}).Unmarshal(nil, 7); err == nil {
		t.Error("7 is a message")
	}
}

// A few bytes must not become very much.
func TestAnAnswerCannotClaimRecordsWithoutEnd(t *testing.T) {
	many, err := proto.Marshal(&tidewirepb.AppendResponse{Items: []*tidewirepb.AppendResponse_Item{{Run: &tidewirepb.AppendResponse_Run{Count: maxRun + 1}}}})
	if err != nil {
		t.Fatal(err)
	}
	item := &tidewirepb.AppendResponse_Item{Run: &tidewirepb.AppendResponse_Run{Count: maxRun}}
	items := &tidewirepb.AppendResponse{}
	for range maxRecords/maxRun + 1 {
		items.Items = append(items.Items, item)
	}
	again, err := proto.Marshal(items)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range [][]byte{many, again} {
		var m appendResponse
		if err := m.decode(b); err == nil {
			t.Errorf("%d bytes gave %d answers", len(b), len(m.items))
		}
	}
}

func FuzzDecoders(f *testing.F) {
	f.Add(whole(&appendRequest{items: []appendItem{{1, Append{Batch: []byte("batch")}}}, received: 3}))
	f.Add(whole(&appendResponse{items: []answer{{1, Appended{Err: fault.New(fault.Fenced, "x")}}, {2, Appended{Records: []RecordResult{{Offset: 1}, {Offset: -1}}}}}}))
	f.Add(whole(&followRequest{opening: &Follow{}}))
	f.Add(whole(&followRequest{from: &FromFollower{Standings: []Standing{{Epoch: 1}}, Held: []Held{{Epoch: 1}}}}))
	f.Add(whole(&followResponse{&FromLeader{[]Divergence{{Last: 1}}, []Push{{Batches: []byte("b")}}, []Refused{{}}}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		// Ours reads what the generated code reads, unless an id is not 16 bytes long
		// or too much is claimed.
		var q appendRequest
		if q.decode(b, false) == nil && proto.Unmarshal(b, &tidewirepb.AppendRequest{}) == nil {
			var again appendRequest
			if err := again.decode(whole(&q), true); err != nil {
				t.Fatal(err)
			}
		}
		var a appendResponse
		_ = a.decode(b)
		fq := followRequest{from: &FromFollower{}}
		_ = fq.decode(b)
		fa := followResponse{&FromLeader{}}
		if fa.decode(b, false) == nil {
			if err := (&followResponse{&FromLeader{}}).decode(whole(&fa), false); err != nil {
				t.Fatal(err)
			}
		}
	})
}
