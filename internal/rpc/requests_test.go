package rpc

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"tidewire/internal/fault"
	"tidewire/internal/inbox"
	"tidewire/internal/record"
	"tidewire/internal/rpc/tidewirepb"
)

// replies answers what is said of them, and notes it.
type replies struct {
	keep    func(to string, r *inbox.Reply) (Handed, error)
	collect func(ctx context.Context, to string, until int64, wait time.Duration) (Collected, error)

	original func(s Sought) (Original, error)
}

func TestTheLeaderIsAskedForAnOriginal(t *testing.T) {
	s := serve(t, ServerConfig{}, "127.0.0.1:0")
	r := toB(t, peersTo(t, s.Addr()))
	asked := Sought{Partition: topic, Key: record.Idempotency{Principal: "ann", Key: "\x00k", Hash: [16]byte{1, 15: 2}}}
	if _, err := r.Original(t.Context(), asked); !fault.Is(err, fault.LeaderUnavailable) {
		t.Error("a node without a broker:", err)
	}
	var got Sought
	var back Original
	var refusal error
	s.Broker(&broker{mail: replies{original: func(s Sought) (Original, error) {
		got = s
		return back, refusal
	}}})
	for _, back = range []Original{{}, {Known: true}, {Known: true, Offset: 7, Timestamp: 1 << 40}} {
		if o, err := r.Original(t.Context(), asked); err != nil || o != back || got != asked {
			t.Errorf("%+v %v, asked for %+v", o, err, got)
		}
	}
	refusal = fault.New(fault.IdempotencyKeyReused, "another body")
	if _, err := r.Original(t.Context(), asked); !fault.Is(err, fault.IdempotencyKeyReused) {
		t.Error(err)
	}
	for _, hash := range [][]byte{nil, make([]byte, 15), make([]byte, 17)} {
		_, err := call(t.Context(), r, fault.LeaderUnavailable, asks, r.broker.Original, &tidewirepb.OriginalRequest{Partition: partitionMessage(topic), Hash: hash})
		if !fault.Is(err, fault.Invalid) {
			t.Errorf("a hash of %d bytes: %v", len(hash), err)
		}
	}
}

func TestRepliesGoToGatewaysAndToLeaders(t *testing.T) {
	s := serve(t, ServerConfig{}, "127.0.0.1:0")
	r := toB(t, peersTo(t, s.Addr()))
	reply := &inbox.Reply{Status: 422, ContentType: "text/plain", Headers: []record.HeaderField{{Name: "a", Value: "1"}}, Value: []byte("no")}
	if _, err := r.HandReply(t.Context(), "x", reply); !fault.Is(err, fault.LeaderUnavailable) {
		t.Error("a node that serves nobody yet:", err)
	}
	var to string
	var got *inbox.Reply
	handed, refusal, gone := HandedOver, error(nil), false
	var until int64
	var wait time.Duration
	var back Collected
	x := replies{
		keep: func(at string, r *inbox.Reply) (Handed, error) {
			to, got = at, r
			return handed, refusal
		},
		collect: func(_ context.Context, at string, u int64, w time.Duration) (Collected, error) {
			to, until, wait = at, u, w
			return back, refusal
		},
	}
	s.Node(&node{replies: x})
	mail := &broker{mail: x}
	s.Broker(mail)
	give := map[string]func() (Handed, error){
		"a gateway": func() (Handed, error) { return r.HandReply(t.Context(), "in", reply) },
		"a leader":  func() (Handed, error) { return r.KeepReply(t.Context(), "in", reply, gone) },
	}
	for name, f := range give {
		for _, handed = range []Handed{HandedOver, HandedNobody, HandedWrongly} {
			to, got = "", nil
			if h, err := f(); h != handed || err != nil || to != "in" || !reflect.DeepEqual(got, reply) {
				t.Errorf("%s: %v %v %q %+v", name, h, err, to, got)
			}
			if name == "a leader" && mail.gone != gone {
				t.Errorf("the gateway is gone: %v, want %v", mail.gone, gone)
			}
			gone = !gone
		}
		refusal = fault.New(fault.Limit, "full").Overload()
		if _, err := f(); !fault.Is(err, fault.Limit) || fault.As(err).Status() != 503 {
			t.Errorf("%s: %v", name, err)
		}
		refusal = nil
	}
	for _, back = range []Collected{{Reply: reply}, {Fate: NotYet}, {Fate: Over}, {Fate: Elsewhere}} {
		if c, err := r.CollectReply(t.Context(), "in", time.Hour); err != nil || !reflect.DeepEqual(c, back) || to != "in" || wait != MaxWait {
			t.Errorf("%+v %v %q %s", c, err, to, wait)
		}
		if c, err := r.KeptReply(t.Context(), "in", 47, time.Second); err != nil || !reflect.DeepEqual(c, back) || until != 47 || wait != time.Second {
			t.Errorf("%+v %v %d %s", c, err, until, wait)
		}
	}
	refusal = errors.New("broken")
	if _, err := r.KeptReply(t.Context(), "in", 47, time.Second); !fault.Is(err, fault.Internal) {
		t.Error(err)
	}
	refusal = nil
	large := &inbox.Reply{ContentType: "text/plain", Value: make([]byte, 16<<20)}
	if _, err := r.HandReply(t.Context(), "in", large); err != nil || len(got.Value) != 16<<20 {
		t.Error("a reply as large as a record may be:", err)
	}
	if _, err := r.HandReply(t.Context(), "in", &inbox.Reply{Status: 200}); !fault.Is(err, fault.Invalid) {
		t.Error("a status that is no failure:", err)
	}
}
