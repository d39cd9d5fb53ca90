package harness

import (
	"runtime"
	"sync"
	"testing"
	"time"
)

// TestAProcessThatHasNoCoreIsStarved has this process ask for more cores than there are.
func TestAProcessThatHasNoCoreIsStarved(t *testing.T) {
	t.Setenv("TEST_TIDEWIRE_SOAK", "")
	starved := Starved()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4 * runtime.NumCPU()))
	over := make(chan struct{})
	var busy sync.WaitGroup
	for range 4 * runtime.NumCPU() {
		busy.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
			}
		})
	}
	Await(t, startTimeout, "it has waited for a core", func() bool { return starved() > 100*time.Millisecond })
	close(over)
	busy.Wait()
	t.Setenv("TEST_TIDEWIRE_SOAK", "1")
	if d := Starved()(); d != 0 {
		t.Errorf("a soak gives %s away", d)
	}
}
