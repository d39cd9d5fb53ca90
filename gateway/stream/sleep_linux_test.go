package stream_test

import (
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestIdleStreamsHaveNoGoroutine has clients listen to nothing, and then one go and one be
// cut by the node: whoever listened to them wakes.
func TestIdleStreamsHaveNoGoroutine(t *testing.T) {
	s, addr := tcp(t, 1, time.Minute)
	all := make([]*reader, 20)
	for i := range all {
		all[i] = dial(t, addr, get(""), false)
	}
	stacks := make([]byte, 4<<20)
	s.await(t, "they listen without a goroutine", func() bool {
		return s.streams.Taken() == len(all) && !strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "stream.(*stream)")
	})
	all[0].conn.Close()
	s.await(t, "one leaves", func() bool { return s.streams.Taken() == len(all)-1 })
	// The others are there when the node ends, which cuts them and waits for them.
}
