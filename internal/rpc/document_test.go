package rpc

import (
	"reflect"
	"strings"
	"testing"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/rpc/tidewirepb"
)

// What a newer node adds to a change must not be left out of it.
func TestAChangeIsTakenWholeOrRefused(t *testing.T) {
	s := serve(t, ServerConfig{}, "127.0.0.1:0")
	c := &coordinator{}
	s.Coordinator(c)
	r := toB(t, peersTo(t, s.Addr()))
	request := cluster.RequestID{1}
	propose := func(text string) error {
		_, err := call(t.Context(), r, fault.CoordinatorUnavailable, changes, r.coordinator.Propose, &tidewirepb.ProposeRequest{
			Request: request[:], Change: &tidewirepb.Document{Format: documentFormat, Json: []byte(text)},
		})
		return err
	}
	const node = `"0a000000-0000-0000-0000-000000000000"`
	for text, member := range map[string]string{
		`{"Drain":{"Node":` + node + `,"Cancel":false,"Softly":true}}`: `"Softly"`,
		`{"Drain":{"Node":` + node + `},"Paint":{}}`:                   `"Paint"`,
		`{"Drain":{"Node":` + node + `}} {}`:                           "after the end",
	} {
		err := propose(text)
		if f := fault.As(err); f.Kind != fault.Invalid || !strings.Contains(f.Detail(), member) {
			t.Errorf("%s: %v", text, err)
		}
		if c.change.Count() != 0 {
			t.Fatalf("%s: it was made as %+v", text, c.change)
		}
	}
	want := cluster.Change{Drain: &cluster.Drain{Node: nodeA}}
	if err := propose(`{"Drain":{"Node":` + node + `}}`); err != nil || !reflect.DeepEqual(c.change, want) {
		t.Errorf("a change that is known whole: %v, %+v", err, c.change)
	}
	// An answer may say more than this node understands.
	var a cluster.Answer
	if err := openDocument(&tidewirepb.Document{Format: documentFormat, Json: []byte(`{"Index":7,"Mood":"good"}`)}, &a); err != nil || a.Index != 7 {
		t.Errorf("an answer: %+v, %v", a, err)
	}
}
