package load_test

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"tidewire/internal/bench/load"
	"tidewire/internal/bench/proc"
	"tidewire/internal/bench/sock"
)

// numbers is another system's protocol: eight bytes a record.
type numbers struct{}

func (numbers) Open(t load.Target) (*sock.Conn, error) { return sock.Dial(t.Addr) }

func (numbers) Hear(b []byte, take func(int64) error) (used int, err error) {
	for ; len(b)-used >= 8 && err == nil; used += 8 {
		err = take(int64(binary.BigEndian.Uint64(b[used:])))
	}
	return used, err
}

// serveNumbers sends some numbers to each who connects, and closes then or in the end.
func serveNumbers(t *testing.T, closes bool, all ...uint64) load.Target {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			var b []byte
			for _, n := range all {
				b = binary.BigEndian.AppendUint64(b, n)
			}
			_, _ = c.Write(b)
			if closes {
				_ = c.Close()
			} else {
				t.Cleanup(func() { c.Close() })
			}
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	return load.Target{Addr: netip.MustParseAddrPort(l.Addr().String()), PID: proc.Self()}
}

func TestABacklogIsReadOnceByAll(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	w := load.Backlog{Target: serveNumbers(t, false, 0, 2, 1, 2, 3), Count: 4, Readers: 1, Listen: func(int) load.Ear { return numbers{} }}
	run, err := w.Run(ctx, quiet{})
	if err != nil || run.Messages != 4 || run.Dupes != 1 || run.Server == nil {
		t.Errorf("got %+v, %v", run, err)
	}
}

func TestABacklogThatEndsEarlyOrHasMoreIsAnError(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for want, target := range map[string]load.Target{"EOF": serveNumbers(t, true, 0, 1), "not of the backlog": serveNumbers(t, true, 0, 7)} {
		w := load.Backlog{Target: target, Count: 3, Readers: 1, Listen: func(int) load.Ear { return numbers{} }}
		if _, err := w.Run(ctx, quiet{}); err == nil || errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want one that says %q", err, want)
		}
	}
}
