package proc_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"tidewire/cmd/tidewire/internal/bench/proc"
)

func TestThisProcessCanBeRead(t *testing.T) {
	before, err := proc.Read(proc.Self())
	if err != nil {
		t.Fatal(err)
	}
	for n, began := 0, time.Now(); time.Since(began) < 60*time.Millisecond; n++ { // work that the kernel's clock sees
		_ = math.Sqrt(float64(n))
	}
	after, err := proc.Read(proc.Self())
	if err != nil {
		t.Fatal(err)
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
