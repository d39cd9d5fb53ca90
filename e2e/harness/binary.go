package harness

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// binaries are built once a test process, by build tags.
var binaries sync.Map // tags → func() (string, error)

// Binary builds tidewire with build tags and returns its path. The environment
// variable TIDEWIRE_BIN names one that is built already (without tags).
func Binary(t testing.TB, tags ...string) string {
	t.Helper()
	if bin := os.Getenv("TIDEWIRE_BIN"); bin != "" && len(tags) == 0 {
		return bin
	}
	key := strings.Join(tags, ",")
	build, _ := binaries.LoadOrStore(key, sync.OnceValues(func() (string, error) {
		dir, err := os.MkdirTemp("", "tidewire-e2e-")
		if err != nil {
			return "", err
		}
		bin := filepath.Join(dir, "tidewire")
		cmd := exec.Command("go", "build", "-tags", key, "-o", bin, "tidewire/cmd/tidewire")
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", &buildError{string(out), err}
		}
		return bin, nil
	}))
	bin, err := build.(func() (string, error))()
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

type buildError struct {
	output string
	err    error
}

func (e *buildError) Error() string { return "build tidewire: " + e.err.Error() + "\n" + e.output }

// Data is a file of real events; the test is skipped, aloud, where they are
// missing. They are no part of the repository.
func Data(t testing.TB, name string) string {
	t.Helper()
	dir := os.Getenv("TIDEWIRE_TEST_DATA")
	if dir == "" {
		dir = filepath.Join(Root(t), "..", "shared", "data")
	}
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("REAL EVENTS MISSING, NOT TESTED: %v (set TIDEWIRE_TEST_DATA to the folder that holds them)", err)
	}
	return path
}

// Root is the folder of the repository.
func Root(t testing.TB) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}
