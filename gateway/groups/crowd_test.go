package groups

import (
	"testing"

	"tidewire/internal/ident"
)

func TestCallsThatWaitAtANodeAreBounded(t *testing.T) {
	var c crowd
	a, b := ident.NodeID{1}, ident.NodeID{2}
	var leave []func()
	for range mostWaits {
		leave = append(leave, c.enter(a))
	}
	if c.enter(a) != nil {
		t.Error("one too many")
	}
	c.enter(b)()
	leave[0]()
	if out := c.enter(a); out == nil {
		t.Error("there is room again")
	} else {
		out()
	}
	for _, out := range leave[1:] {
		out()
	}
	if len(c.at) > 0 {
		t.Error(c.at)
	}
}
