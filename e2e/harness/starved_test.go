package harness

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestAProcessThatHasNoCoreIsStarved has this process ask for more cores than there are.
func TestAProcessThatHasNoCoreIsStarved(t *testing.T) {
	t.Setenv("TEST_TIDEWIRE_SOAK", "")
	starved := Starved()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4 * runtime.NumCPU()))
	var over atomic.Bool
	var busy sync.WaitGroup
	for range 4 * runtime.NumCPU() {
		busy.Go(func() {
			for !over.Load() {
				runtime.Gosched()
			}
		})
	}
	Await(t, startTimeout, "it has waited for a core", func() bool { return starved() > 100*time.Millisecond })
	over.Store(true)
	busy.Wait()
	t.Setenv("TEST_TIDEWIRE_SOAK", "1")
	if d := Starved()(); d != 0 {
		t.Errorf("a soak gives %s away", d)
	}
}
