package e2e_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"tidewire/e2e/client"
	"tidewire/e2e/harness"
)

// TestACommandsRequestOutlivesItsNode asks with tidewire request through a node that is
// killed while tidewire respond works on it at another.
func TestACommandsRequestOutlivesItsNode(t *testing.T) {
	t.Parallel()
	_, _, through, other := requestCluster(t, "shell")
	dir := t.TempDir()
	running, goOn := filepath.Join(dir, "running"), filepath.Join(dir, "go")
	command := fmt.Sprintf(`echo > %q; until test -e %q; do sleep 0.02; done; echo "$TIDEWIRE_CORRELATION_ID: $(cat)"`, running, goOn)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	start := func(args ...string) (cmd *exec.Cmd, stdout, stderr *strings.Builder) {
		stdout, stderr = &strings.Builder{}, &strings.Builder{}
		cmd = exec.CommandContext(ctx, harness.Binary(t), args...)
		cmd.Stdout, cmd.Stderr = stdout, stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd, stdout, stderr
	}
	responder, said, noted := start("respond", "shell", "--server", other.URL, "--exec", command)
	for _, m := range []*harness.Member{through, other} {
		served(t, client.New(m.URL), "shell")
	}
	asker, reply, tried := start("request", "shell", "hello", "--server", through.URL, "--timeout", "60s", "--correlation-id", "c1")
	harness.Await(t, patience, "the command runs", func() bool {
		_, err := os.Stat(running)
		return err == nil
	})
	through.Kill()
	if err := os.WriteFile(goOn, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := asker.Wait(); err != nil || reply.String() != "c1: hello\n" || !strings.Contains(tried.String(), "asking http://") {
		t.Errorf("the reply is %q, %v:\n%s", reply, err, tried)
	}
	if err := responder.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := responder.Wait(); err != nil || !strings.Contains(said.String(), `{"replied":1,"failed":0,"late":0,"gone":0,"foreign":0}`) {
		t.Errorf("the responder says %q, %v:\n%s", said, err, noted)
	}
}
