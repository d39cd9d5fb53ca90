// Package drive starts the systems and puts the cases of the plan to them, by the load
// generator of internal/bench: what differs from system to system is how a connection
// publishes and hears, and nothing else.
package drive

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"tidewire/bench/internal/figures"
	"tidewire/bench/internal/plan"
	"tidewire/bench/internal/report"
	"tidewire/internal/bench/child"
	"tidewire/internal/bench/figure"
	"tidewire/internal/bench/load"
	"tidewire/internal/bench/proc"
	"tidewire/internal/bench/sock"
)

// World is where systems run.
type World struct {
	Dir      string // data goes below it; on the disk that is measured
	Bin      string // has the peers' servers
	Tidewire string // the binary
	Redis    string // the binary; "": there is none here
	Hurry    <-chan struct{}
}

// system is one that runs. Its methods are called by one goroutine.
type system interface {
	start(ctx context.Context) error
	// measure puts a case to it, in a turn of its own.
	measure(ctx context.Context, c plan.Case, turn int) (figures.Sample, error)
	// hold opens idle connections.
	hold(ctx context.Context, c plan.Case, turn int) (*load.Held, error)
	processes() []*child.Process
	stop()
}

// make makes a system, which is not started.
func (w World) make(s plan.System) system {
	dir := filepath.Join(w.Dir, string(s))
	switch s {
	case plan.Tidewire:
		return &tidewire{world: w, dir: dir, nodes: 1}
	case plan.Tidewire3:
		return &tidewire{world: w, dir: dir, nodes: 3}
	case plan.NATSAlways:
		return &natsServer{world: w, dir: dir, nodes: 1, store: true, always: true}
	case plan.NATSDefault:
		return &natsServer{world: w, dir: dir, nodes: 1, store: true}
	case plan.NATS3Always:
		return &natsServer{world: w, dir: dir, nodes: 3, store: true, always: true}
	case plan.NATS3:
		return &natsServer{world: w, dir: dir, nodes: 3, store: true}
	case plan.NATSCore:
		return &natsServer{world: w, dir: dir, nodes: 1}
	case plan.Centrifugo:
		return &centrifugoServer{world: w}
	}
	return &redisServer{world: w, dir: dir}
}

// Missing says why a system cannot run here; "": it can.
func (w World) Missing(s plan.System) string {
	if s == plan.RedisAlways && w.Redis == "" {
		return "redis-server is not installed (apt-get install redis-server)"
	}
	return ""
}

// FindRedis is the path of redis-server; "": there is none.
func FindRedis() string {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return ""
	}
	return path
}

var errKind = errors.New("this system has no such thing")

// children are the processes of a system.
type children []*child.Process

func (c children) pids() (all []int) {
	for _, p := range c {
		all = append(all, p.PID)
	}
	return all
}

// stop ends them, and what they kept.
func (c *children) stop(dir string) {
	for _, p := range *c {
		_ = p.Signal(syscall.SIGTERM) // together; Stop waits for each
	}
	for _, p := range *c {
		p.Stop()
	}
	*c = nil
	if dir != "" {
		_ = os.RemoveAll(dir) // the world's folder goes in the end
	}
}

// target is where clients of an address go; what the processes use counts.
func target(ctx context.Context, hostport string, pids []int) (load.Target, error) {
	addr, err := sock.Resolve(ctx, hostport)
	if err != nil {
		return load.Target{}, fmt.Errorf("the address %q: %w", hostport, err)
	}
	return load.Target{Addr: addr, Host: hostport, PID: pids[0], Processes: pids[1:]}, nil
}

// freePorts asks the system for ports that nobody has.
func freePorts(n int) (ports []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		ports = append(ports, strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
	}
	return ports, nil
}

func loadPlan(c plan.Case) load.Plan {
	return load.Plan{Warmup: c.Warmup, Duration: c.Duration, Runs: 1}
}

func records(c plan.Case, topic string) load.Records {
	return load.Records{Topic: topic, Bytes: c.Bytes, Acks: "all", Keys: c.Keys}
}

// topicName is the topic, stream or channel of a turn.
func topicName(c plan.Case, turn int) string { return fmt.Sprintf("%s-turn%d", c.Name, turn) }

// sample is a run by the plan's metrics. What was not answered or delivered is lost too.
func sample(r figure.Run, more int64, pids []int) (figures.Sample, error) {
	if r.Messages == 0 {
		return figures.Sample{}, errors.New("nothing came back")
	}
	x := figures.Sample{Values: map[plan.Metric]float64{
		plan.Rate: r.PerSecond, plan.Lost: float64(r.Lost + r.Dupes + r.Refused + more),
	}}
	if r.Latency != nil {
		x.Values[plan.P50], x.Values[plan.P99] = r.Latency.P50, r.Latency.P99
	}
	if r.Server != nil {
		x.Values[plan.CPU] = r.Server.CPU
	}
	x.Values[report.Memory] = float64(resident(pids)) / 1e6
	return x, nil
}

func outcome(out load.Outcome, err error, pids []int) (figures.Sample, error) {
	if err != nil {
		return figures.Sample{}, err
	}
	if out.Refusal != nil {
		return figures.Sample{}, fmt.Errorf("refused: %w", out.Refusal)
	}
	return sample(out.Runs[0], out.Outstanding, pids)
}

// resident is what processes hold in memory, in bytes.
func resident(pids []int) (sum int64) {
	for _, pid := range pids {
		if m, err := proc.ReadMemory(pid); err == nil {
			sum += m.RSS
		}
	}
	return sum
}

// quiet is a progress that nobody watches.
type quiet struct{}

// Phase does nothing.
func (quiet) Phase(string, int) {}

// Step does nothing.
func (quiet) Step(int) {}
