package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// benchSignals gives a context that the first SIGINT or SIGTERM ends, and a channel
// that the second closes: what cleans up then does it without waiting for anybody.
// A third kills the process as usual. A benchmark has more to take back than other
// commands, whose second signal does that: a node, its folder, a topic.
func benchSignals(ctx context.Context) (_ context.Context, hurry <-chan struct{}, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	heard := make(chan os.Signal, 2) // one that nobody takes is dropped: these are all that count
	signal.Notify(heard, os.Interrupt, syscall.SIGTERM)
	second, ended := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer signal.Stop(heard)
		for _, act := range []func(){cancel, func() { close(second) }} {
			select {
			case <-heard:
				act()
			case <-ended:
				return
			}
		}
	})
	return ctx, second, func() {
		close(ended)
		wg.Wait()
		cancel()
	}
}
