package drive_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tidewire/bench/internal/drive"
	"tidewire/bench/internal/figures"
	"tidewire/bench/internal/plan"
)

// TestEverySystemGoesThroughItsCases runs each kind of case for a moment, with real
// processes: TEST_TIDEWIRE_BIN names Tidewire's binary, and the peers' stand beside it.
func TestEverySystemGoesThroughItsCases(t *testing.T) {
	binary := os.Getenv("TEST_TIDEWIRE_BIN")
	if binary == "" {
		t.Fatal("TEST_TIDEWIRE_BIN is not set: make bench-test builds the processes and sets it")
	}
	world := drive.World{Dir: t.TempDir(), Bin: filepath.Dir(binary), Tidewire: binary, Redis: drive.FindRedis(), Hurry: make(chan struct{})}
	cases := []string{"publish-1024-16", "replicated-1024-16", "latency-1000", "fanout-1000-8", "keys-10000", "idle-6000", "requests-64", "groups-100000", "catchup-1000000", "size-1000-16"}
	some, err := plan.Select(plan.All(), "", cases, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	r := figures.Results{}
	for _, s := range plan.Smoke(some) {
		world.Scenario(ctx, s, 1, r, t.Logf)
		for _, c := range s.Cases {
			for _, x := range c.Systems {
				if why := world.Missing(x); why != "" {
					t.Logf("%s on %s is not run: %s", c.Name, x, why)
					continue
				}
				if fails := r.Failures(c.Name, x); len(fails) > 0 || len(r[c.Name][x]) != 1 {
					t.Errorf("%s on %s: %d samples, %v", c.Name, x, len(r[c.Name][x]), fails)
				}
			}
		}
	}
}

func TestTheVersionsAreThoseOfTheModules(t *testing.T) {
	b, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for name, version := range map[string]string{"github.com/nats-io/nats-server/v2": drive.NATSVersion, "github.com/centrifugal/centrifuge": drive.CentrifugeVersion} {
		if !strings.Contains(string(b), name+" "+version+"\n") {
			t.Errorf("go.mod has another version of %s than %s", name, version)
		}
	}
}
