package harness

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
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
	build, known := builds[strings.Join(tags, ",")]
	if !known {
		t.Fatalf("no test has asked for the tags %v before: name them in builds", tags)
	}
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

// builds are those that tests ask for, by their tags: each is looked after once, however
// many tests ask at the same time.
var builds = map[string]func() (string, error){
	"":        sync.OnceValues(func() (string, error) { return build("") }),
	"faults":  sync.OnceValues(func() (string, error) { return build("faults") }),
	"faultfs": sync.OnceValues(func() (string, error) { return build("faultfs") }),
}

// build is as make build has it, so that both share what the compiler made.
func build(tags string) (bin string, err error) {
	root, err := root()
	if err != nil {
		return "", err
	}
	name := fmt.Sprintf("tidewire-e2e-%08x", record.Checksum([]byte(root+"\n"+tags)))
	bin = filepath.Join(os.TempDir(), name, "tidewire")
	cmd := exec.Command("go", "build", "-trimpath", "-tags", tags, "-o", bin, "./cmd/tidewire")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build tidewire: %w\n%s", err, out)
	}
	return bin, nil
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
	dir, err := root()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("there is no go.mod above the test")
		}
		dir = up
	}
}
