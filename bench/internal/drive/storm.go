package drive

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"tidewire/bench/internal/figures"
	"tidewire/bench/internal/plan"
	"tidewire/internal/bench/load"
)

// calm is how long the other gateway is looked at before the restart.
const calm = 6 * time.Second

// storm restarts a gateway of its own process under its subscribers, while publishes go to
// the node that stays.
func (t *tidewire) storm(ctx context.Context, c plan.Case, turn int) (_ figures.Sample, err error) {
	topic := topicName(c, turn)
	stays, err := t.topic(ctx, topic, 1)
	if err != nil {
		return figures.Sample{}, err
	}
	if _, err := t.topic(ctx, topic+"-beside", 1); err != nil {
		return figures.Sample{}, err
	}
	args := append(t.arguments(fmt.Sprintf("gateway%d", turn)), "--roles", "gateway", "--join", t.children[0].Gossip, "--http")
	gateway, err := t.server().Start(ctx, t.world.Hurry, append(args, "127.0.0.1:0")...)
	if err != nil {
		return figures.Sample{}, err
	}
	defer func() { gateway.Stop() }()
	if err := t.alive(ctx, 2); err != nil {
		return figures.Sample{}, err
	}
	away, err := target(ctx, gateway.Addr, []int{gateway.PID})
	if err != nil {
		return figures.Sample{}, err
	}
	var before, during float64
	var beside sync.WaitGroup
	defer beside.Wait()
	var failed error
	w := load.Restart{
		Target: away, Publisher: stays, Topic: topic, Transport: load.WebSocket, Subscribers: c.Subscribers, Bytes: c.Bytes, Rate: 1, Flow: 2 * time.Second,
		Calm: func(ctx context.Context) (err error) {
			before, err = publishP99(ctx, stays, c, topic+"-beside", calm)
			return err
		},
	}
	out, err := w.Run(ctx, quiet{}, func(ctx context.Context) error {
		beside.Go(func() { during, failed = publishP99(ctx, stays, c, topic+"-beside", c.Duration) })
		address := gateway.Addr
		gateway.Stop()
		again, err := t.server().Start(ctx, t.world.Hurry, append(args, address)...)
		if err != nil {
			return err
		}
		gateway = again
		return nil
	})
	beside.Wait()
	if err := errors.Join(err, failed); err != nil {
		return figures.Sample{}, err
	}
	n := float64(c.Subscribers)
	x := figures.Sample{Values: map[plan.Metric]float64{
		plan.AllBack: float64(out.AllBack-out.Down) / 1000, plan.Signal: float64(out.AllBack) / 1000, plan.NotTold: max(0, n-float64(out.Told)) + n - float64(out.Back),
		plan.Lost: float64(out.Lost + out.Duplicates + out.Gaps + out.Outstanding), plan.Crowding: out.Largest * max(1, float64(out.Window)/100),
	}}
	if before > 0 {
		x.Values[plan.Growth] = during / before
	}
	return x, nil
}

// publishP99 publishes at the case's rate for a while; its p99 in µs.
func publishP99(ctx context.Context, at load.Target, c plan.Case, topic string, d time.Duration) (float64, error) {
	out, err := load.Publish{
		Target: at, Records: records(c, topic), Transport: load.WebSocket, Publishers: 4, Window: 512, Rate: c.Rate,
		Plan: load.Plan{Warmup: time.Millisecond, Duration: d, Runs: 1},
	}.Run(ctx, quiet{})
	if err != nil {
		return 0, err
	}
	if out.Runs[0].Latency == nil {
		return 0, errors.New("no publish of the other gateway was answered")
	}
	return out.Runs[0].Latency.P99, nil
}
