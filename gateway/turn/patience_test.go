package turn

import (
	"testing"
	"time"
)

// TestPatience: any byte that leaves is a sign of life, and nothing else.
func TestPatience(t *testing.T) {
	const slow = 10 * time.Second
	now := time.Now()
	step := func(p *patience, written, queued int) bool {
		now = now.Add(slow / steps)
		return p.over(now, written, queued)
	}
	p := newPatience(slow, now, 256<<10)
	for i := range 1000 { // a byte a step, and the socket takes no write
		if step(&p, 0, 256<<10-i-1) {
			t.Fatalf("over after %d steps of a byte each", i)
		}
	}
	for i := range 10 { // the socket is full again after each
		if step(&p, 100, 256<<10) {
			t.Fatalf("over after %d writes", i)
		}
	}
	for i := range steps - 1 {
		if step(&p, 0, 256<<10) {
			t.Fatalf("over %d steps after the last byte", i+1)
		}
	}
	if !step(&p, 0, 256<<10) {
		t.Error("not over after the timeout")
	}
}
