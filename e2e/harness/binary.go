package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"tidewire/internal/record"
)

// Binary is the path of the built binary: the one that TEST_TIDEWIRE_BIN names
// where no build tags are asked for, else one that is built here (again only
// when something changed).
func Binary(t testing.TB, tags ...string) string {
	t.Helper()
	if bin := os.Getenv("TEST_TIDEWIRE_BIN"); bin != "" && len(tags) == 0 {
		return bin
	}
	key := strings.Join(tags, ",")
	name := fmt.Sprintf("tidewire-e2e-%08x", record.Checksum([]byte(Root(t)+"\n"+key)))
	bin := filepath.Join(os.TempDir(), name, "tidewire")
	cmd := exec.Command("go", "build", "-tags", key, "-o", bin, "./cmd/tidewire")
	cmd.Dir = Root(t)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build tidewire: %v\n%s", err, out)
	}
	return bin
}

// Soak reports that the long forms are asked for, as `make soak` does.
func Soak() bool { return os.Getenv("TEST_TIDEWIRE_SOAK") != "" }

// Data is a file of real events. They are no part of the repository; where the
// folder shared/data beside it is missing, the test is skipped, aloud.
func Data(t testing.TB, name string) string {
	t.Helper()
	dir := os.Getenv("TEST_TIDEWIRE_DATA")
	if dir == "" {
		dir = filepath.Join(Root(t), "..", "shared", "data")
	}
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("NOT TESTED: the real events of shared/data are missing (%v); TEST_TIDEWIRE_DATA can name their folder", err)
	}
	return path
}

// Root is the folder of the repository.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("there is no go.mod above the test")
		}
		dir = up
	}
}
