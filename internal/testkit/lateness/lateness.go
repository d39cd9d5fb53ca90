// Package lateness tells how much a busy machine keeps a test's process waiting, so that
// a bound of time is one of the code and not of the machine.
package lateness

import (
	"sync"
	"time"
)

// nap is how long the process asks to be left alone at a time.
const nap = 5 * time.Millisecond

// Measure measures from now on by how much this process comes too late, all in all.
// What ends gives, once, is to be added to a bound of time.
func Measure() (ends func() time.Duration) {
	var loop sync.WaitGroup
	var late time.Duration
	stop := make(chan struct{})
	loop.Go(func() {
		for {
			began := time.Now()
			<-time.After(nap)
			late += time.Since(began) - nap
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	return func() time.Duration { close(stop); loop.Wait(); return late }
}
