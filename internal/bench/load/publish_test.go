package load_test

import (
	"bufio"
	"context"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"tidewire/internal/bench/floor"
	"tidewire/internal/bench/load"
	"tidewire/internal/bench/proc"
)

// quiet is a progress that nobody watches.
type quiet struct{}

func (quiet) Phase(string, int) {}
func (quiet) Step(int)          {}

// serveFloor runs the floors' server in this process.
func serveFloor(t *testing.T) load.Target {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- floor.Serve(ctx, w, 1) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	lines := bufio.NewScanner(r)
	lines.Scan()
	addr := strings.TrimPrefix(lines.Text(), "listening http=")
	go func() { _, _ = io.Copy(io.Discard, r) }()
	t.Cleanup(func() { w.Close() })
	return load.Target{Addr: netip.MustParseAddrPort(addr), Host: addr, PID: proc.Self()}
}

func TestPublishersOverEveryTransport(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	t.Run("", func(t *testing.T) {
		target := serveFloor(t)
		plan := load.Plan{Warmup: 20 * time.Millisecond, Duration: 150 * time.Millisecond, Runs: 2}
		for name, w := range map[string]load.Publish{
			"one in flight": {Transport: load.WebSocket, Publishers: 3, Window: 1},
			"pipelined":     {Transport: load.WebSocket, Publishers: 1, Window: 100},
			"keys":          {Transport: load.WebSocket, Publishers: 2, Window: 2, Records: load.Records{Keys: 10}},
			"http":          {Transport: load.HTTP, Publishers: 3, Window: 1, Records: load.Records{Keys: 10}},
			"lines":         {Transport: load.Lines, Publishers: 2, Window: 1, Records: load.Records{Batch: 7}},
			"at a rate":     {Transport: load.WebSocket, Publishers: 2, Window: 50, Rate: 500},
		} {
			t.Run(name, func(t *testing.T) {
				w.Target, w.Plan = target, plan
				w.Records.Topic, w.Records.Bytes, w.Records.Acks = "t", 200, "all"
				out, err := w.Run(t.Context(), quiet{})
				if err != nil {
					t.Fatal(err)
				}
				if len(out.Runs) != 2 || out.Outstanding != 0 || out.Refusal != nil || out.Sent == 0 {
					t.Errorf("%+v", out)
				}
				var acknowledged int64
				for _, r := range out.Runs {
					acknowledged += r.Messages
					if r.Messages == 0 || r.Latency == nil || r.Server == nil || r.Refused != 0 {
						t.Errorf("run %+v", r)
					}
					if (r.Late != nil) != (w.Rate > 0) {
						t.Errorf("run %d: late %+v at a rate of %g", r.Run, r.Late, w.Rate)
					}
				}
				if w.Transport == load.Lines && acknowledged%7 != 0 {
					t.Errorf("%d records acknowledged, 7 a request", acknowledged)
				}
				if acknowledged > out.Sent {
					t.Errorf("%d acknowledged of %d", acknowledged, out.Sent)
				}
			})
		}
	})
}

func TestALoadEndsWhenItIsAskedTo(t *testing.T) {
	target := serveFloor(t)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	w := load.Publish{
		Target: target, Transport: load.WebSocket, Publishers: 2, Window: 1, Records: load.Records{Topic: "t", Bytes: 64, Acks: "all"},
		Plan: load.Plan{Duration: time.Hour, Runs: 1},
	}
	if _, err := w.Run(ctx, quiet{}); err == nil {
		t.Error("ended without a reason")
	}
}

func TestAServerThatIsNoneIsNamed(t *testing.T) {
	target := serveFloor(t)
	// The floor knows no topics: the stream of events is refused.
	f := load.Fanout{
		Target: target, Transport: load.SSE, Subscribers: 1, Window: 1, Records: load.Records{Topic: "t", Bytes: 64, Acks: "all"},
		Plan: load.Plan{Duration: time.Second, Runs: 1},
	}
	if _, err := f.Run(t.Context(), quiet{}); err == nil || !strings.Contains(err.Error(), "405") && !strings.Contains(err.Error(), "404") {
		t.Errorf("got %v", err)
	}
}

// TestAFanoutOverTheBareFloor: the floor of a fan-out speaks as the server does, and
// loses nothing.
func TestAFanoutOverTheBareFloor(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	t.Run("", func(t *testing.T) {
		f := load.Fanout{
			Target: serveFloor(t), Records: load.Records{Topic: "t", Bytes: 64, Acks: "all"}, Transport: load.WebSocket, Subscribers: 12, Window: 3,
			Plan: load.Plan{Warmup: 20 * time.Millisecond, Duration: 150 * time.Millisecond, Runs: 2},
		}
		out, err := f.Run(t.Context(), quiet{})
		if err != nil || len(out.Runs) != 2 || out.Outstanding != 0 {
			t.Fatalf("%+v, %v", out, err)
		}
		for _, r := range out.Runs {
			if r.Messages == 0 || r.Lost+r.Dupes+r.Refused != 0 || r.Latency == nil {
				t.Errorf("%+v", r)
			}
		}
	})
}
