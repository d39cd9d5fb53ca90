package proc_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"tidewire/internal/bench/proc"
)

func TestThisProcessCanBeRead(t *testing.T) {
	before, err := proc.Read(proc.Self())
	if err != nil {
		t.Fatal(err)
	}
	// Work that the kernel's clock sees: how long it takes is the machine's affair.
	after := before
	for began := time.Now(); after.CPU == before.CPU && time.Since(began) < 30*time.Second; {
		for n := range 1_000_000 {
			_ = math.Sqrt(float64(n))
		}
		if after, err = proc.Read(proc.Self()); err != nil {
			t.Fatal(err)
		}
	}
	if used := after.Sub(before); used.CPU <= 0 || used.CPU > time.Minute || used.Reads < 1 {
		t.Errorf("used %+v", used)
	}
	m, err := proc.ReadMemory(proc.Self())
	if err != nil || m.RSS < 1<<20 || m.Peak < m.RSS || m.Files < 3 {
		t.Errorf("memory %+v, %v", m, err)
	}
}

func TestAProcessThatIsNotThereIsNamed(t *testing.T) {
	if _, err := proc.Read(1 << 30); err == nil || !strings.Contains(err.Error(), "1073741824") {
		t.Errorf("got %v", err)
	}
}

func TestTooManyConnectionsSayWhatToRaise(t *testing.T) {
	if err := proc.RaiseFiles(16); err != nil {
		t.Error(err)
	}
	if err := proc.RaiseFiles(1 << 40); err == nil || !strings.Contains(err.Error(), "ulimit -Hn") {
		t.Errorf("got %v", err)
	}
}

func TestWhatSeveralProcessesUsedIsAddedUp(t *testing.T) {
	a, b := proc.Sample{CPU: 2, Switches: 3, Reads: 4, Writes: 5}, proc.Sample{CPU: 20, Switches: 30, Reads: 40, Writes: 50}
	if got, want := (proc.Sample{}).Add(a).Add(b), (proc.Sample{CPU: 22, Switches: 33, Reads: 44, Writes: 55}); got != want {
		t.Errorf("%+v", got)
	}
	b.Reads = -1 // not told
	if got := a.Add(b); got.Reads != -1 || got.Writes != -1 || got.CPU != 22 {
		t.Errorf("%+v", got)
	}
}
