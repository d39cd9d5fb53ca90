package consensus

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
)

const crashDir = "TIDEWIRE_TEST_CRASH_DIR"

// TestMain runs the node that TestKilledNodesStartAgain kills, where that asks
// for it.
func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDir); dir != "" {
		if err := writeUntilKilled(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// writeUntilKilled says each command on stdout once it is acknowledged, and
// makes a snapshot every few.
func writeUntilKilled(dir string) error {
	cfg, m := tapeConfig(dir)
	cfg.Found = true
	n := New(cfg)
	ctx := context.Background()
	if err := n.Open(ctx); err != nil {
		return err
	}
	for i := len(m.all); ; i++ {
		line := fmt.Sprintf("say %d", i)
		if _, err := n.Apply(ctx, Command{Bytes: []byte(line)}); err != nil {
			return err
		}
		fmt.Println(line)
		if i%9 == 8 {
			if err := n.TakeSnapshot(ctx); err != nil {
				return err
			}
		}
	}
}

// TestKilledNodesStartAgain kills a process at any moment of writing, founding
// and making snapshots: each next start finds everything that was acknowledged,
// and takes nothing that a kill leaves behind for damage.
func TestKilledNodesStartAgain(t *testing.T) {
	dir := t.TempDir()
	random := rand.New(rand.NewPCG(5, 6))
	acknowledged := ""
	for range 12 {
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), crashDir+"="+dir)
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		var stderr strings.Builder
		child.Stderr = &stderr
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for left := random.IntN(40); left >= 0 && lines.Scan(); left-- {
			acknowledged = lines.Text()
		}
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() { // what it still said before it died
			acknowledged = lines.Text()
		}
		if err := child.Wait(); err == nil || stderr.Len() > 0 {
			t.Fatalf("the node ended by itself: %v\n%s", err, &stderr)
		}
		got, err := reopen(t, dir)
		if err != nil {
			t.Fatalf("after a kill: %v", err)
		}
		all := strings.Split(got, "\n")
		for i, line := range all {
			if line != fmt.Sprintf("say %d", i) {
				t.Fatalf("command %d is %q", i, line)
			}
		}
		var last int
		if _, err := fmt.Sscanf(acknowledged, "say %d", &last); err != nil {
			t.Fatal(err)
		}
		if last >= len(all) {
			t.Fatalf("command %d was acknowledged and is gone: %d are there", last, len(all))
		}
	}
	t.Logf("last acknowledged: %s", acknowledged)
}
