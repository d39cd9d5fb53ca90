package e2e_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"tidewire/e2e/harness"
)

// TestANodesTimersAreCoarse looks at what the kernel has for the process, which begins
// once more for it: its threads inherit that.
func TestANodesTimersAreCoarse(t *testing.T) {
	t.Parallel()
	n := harness.Start(t, harness.Options{})
	path := fmt.Sprintf("/proc/%d/timerslack_ns", n.Pid())
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(string(b)); got != "1000000" {
		t.Errorf("%s: %s", path, got)
	}
}
