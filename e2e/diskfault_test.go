package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"tidewire/e2e/client"
	"tidewire/e2e/harness"
	"tidewire/internal/testkit/check"
)

// faulty is a node on a disk that the test can make fail. The binary is built
// with the tag faultfs.
type faulty struct {
	*harness.Node
	socket string
}

func newFaulty(t *testing.T, args ...string) *faulty {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "faults")
	return &faulty{harness.New(t, harness.Options{Tags: []string{"faultfs"}, Args: args, Env: []string{"TIDEWIRE_FAULTS=" + socket}}), socket}
}

func startFaulty(t *testing.T, args ...string) *faulty {
	t.Helper()
	n := newFaulty(t, args...)
	if err := n.Run(); err != nil {
		t.Fatal(err)
	}
	return n
}

// arm sends one command to the disk and returns the rest of its answer.
func (n *faulty) arm(t *testing.T, command string) string {
	t.Helper()
	c, err := net.Dial("unix", n.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := fmt.Fprintln(c, command); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "ok") {
		t.Fatalf("arm %q: %q %v", command, line, err)
	}
	return strings.TrimSpace(strings.TrimPrefix(line, "ok"))
}

func (n *faulty) hits(t *testing.T) int {
	t.Helper()
	hits, err := strconv.Atoi(n.arm(t, "hits"))
	if err != nil {
		t.Fatal(err)
	}
	return hits
}

// publishing runs writers until each has lost the node, and notes when which
// acknowledgement came last.
func publishing(t *testing.T, n *harness.Node, writers []*writer, begun func()) (lastAck time.Time, lost int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	var mu sync.Mutex
	var wg, first sync.WaitGroup
	first.Add(len(writers))
	for _, w := range writers {
		wg.Go(func() {
			once := sync.OnceFunc(first.Done)
			defer once()
			for ctx.Err() == nil {
				a := w.put(ctx)
				switch {
				case a.kept():
					once()
					mu.Lock()
					lastAck = time.Now()
					mu.Unlock()
				case a.full == nil: // no answer at all: the process is gone
					mu.Lock()
					lost++
					mu.Unlock()
					return
				}
			}
		})
	}
	first.Wait()
	begun()
	wg.Wait()
	if ctx.Err() != nil {
		t.Error("the node went on in spite of the fault")
	}
	return lastAck, lost
}

// endsWith waits until the node has ended by itself, as it should after a fault.
func (n *faulty) endsWith(t *testing.T, words ...string) {
	t.Helper()
	select {
	case <-n.Exited():
	case <-time.After(30 * time.Second):
		t.Fatal("the process did not end after the fault")
	}
	if code := n.ExitCode(); code != 1 {
		t.Errorf("exit code %d", code)
	}
	log := n.Log()
	for _, w := range words {
		if !strings.Contains(log, w) {
			t.Errorf("the log does not say %q:\n%s", w, log)
		}
	}
	if strings.Contains(log, "panic:") {
		t.Errorf("a panic:\n%s", log)
	}
}

// failedNow makes the failure that the folder remembers the second one, and a new
// one: the first wait counts from the failure and may be over with the process.
func failedNow(t *testing.T, dir string) {
	t.Helper()
	path := filepath.Join(dir, "last-storage-failure")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("the failure was not remembered: %v", err)
	}
	var marker map[string]any
	if err := json.Unmarshal(b, &marker); err != nil {
		t.Fatal(err)
	}
	if marker["count"] != 1.0 {
		t.Errorf("one failure is remembered as %v", marker["count"])
	}
	marker["at"], marker["count"] = time.Now(), 3
	if b, err = json.Marshal(marker); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// settle repeats what was left open, reads everything and judges.
func settle(t *testing.T, n *harness.Node, rec *check.Recorder, topic string, writers []*writer) {
	t.Helper()
	for _, w := range writers {
		w.api = client.New(n.URL)
		w.mustPut(t)
		w.mustPut(t)
	}
	records := keepLogs(t, n, rec, topic)
	judge(t, rec)
	t.Logf("%d records after the restart, ready after %s", records, n.ReadyAfter().Round(time.Millisecond))
}

// TestNothingIsAcknowledgedAfterAFailedSync lets a sync of the journal fail
// under 16 publishers. Nothing written since the last good one may be
// acknowledged, then or later; the process ends, says why, backs off, and
// everything acknowledged is there.
func TestNothingIsAcknowledgedAfterAFailedSync(t *testing.T) {
	t.Parallel()
	n := startFaulty(t)
	client.New(n.URL).CreateTopic(t, "kept", `"partitions":4`)
	rec := check.NewRecorder()
	writers := newWriters(n.Node, rec, "kept", 4, 16, 100)
	var armed time.Time
	lastAck, lost := publishing(t, n.Node, writers, func() {
		n.arm(t, "sync .journal 20 EIO")
		armed = time.Now()
	})
	n.endsWith(t, "input/output error", "journal")
	if lost != len(writers) {
		t.Errorf("%d of %d publishers lost the node", lost, len(writers))
	}
	t.Logf("armed, then acknowledgements for %s more, then none; %d publishers cut off", lastAck.Sub(armed).Round(time.Millisecond), lost)

	failedNow(t, n.Dir())
	if err := n.Run(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(n.Log(), "waiting before it is opened") || n.ReadyAfter() < 500*time.Millisecond {
		t.Errorf("restarted in %s without waiting:\n%s", n.ReadyAfter(), n.Log())
	}
	settle(t, n.Node, rec, "kept", writers)
}

// TestAFailedSyncOfASegmentEndsTheNode is the same for the segments, which are
// synced when the node stops or checkpoints.
func TestAFailedSyncOfASegmentEndsTheNode(t *testing.T) {
	t.Parallel()
	n := startFaulty(t)
	client.New(n.URL).CreateTopic(t, "kept", `"partitions":2`)
	rec := check.NewRecorder()
	writers := newWriters(n.Node, rec, "kept", 2, 4, 1000)
	for _, w := range writers {
		for range 20 {
			w.mustPut(t)
		}
	}
	n.arm(t, "sync .log 1 EIO always")
	err := n.Stop() // flushes and checkpoints
	if n.ExitCode() != 1 || err == nil {
		t.Errorf("a stop that could not make the segments durable ended with exit code %d", n.ExitCode())
	}
	if !strings.Contains(n.Log(), "input/output error") {
		t.Errorf("the log does not name the error:\n%s", n.Log())
	}
	if err := n.Run(); err != nil {
		t.Fatal(err)
	}
	settle(t, n.Node, rec, "kept", writers)
}

// TestAFailedWriteEndsTheNode: a write error other than a lack of space leaves
// the file unknown, like a failed sync.
func TestAFailedWriteEndsTheNode(t *testing.T) {
	t.Parallel()
	for _, path := range []string{".journal", ".log"} {
		t.Run(strings.TrimPrefix(path, "."), func(t *testing.T) {
			t.Parallel()
			n := startFaulty(t)
			client.New(n.URL).CreateTopic(t, "kept", `"partitions":2`)
			rec := check.NewRecorder()
			writers := newWriters(n.Node, rec, "kept", 2, 8, 1000)
			_, lost := publishing(t, n.Node, writers, func() { n.arm(t, "write "+path+" 5 EIO") })
			n.endsWith(t, "input/output error")
			if err := n.Run(); err != nil {
				t.Fatal(err)
			}
			t.Logf("%d publishers cut off", lost)
			settle(t, n.Node, rec, "kept", writers)
		})
	}
}

// TestAFailedReadIsNeverTakenForTheEnd lets a read of a segment fail. The read
// is refused, the disk counts as failing, and the process ends: what can be
// read again is found at the next start.
func TestAFailedReadIsNeverTakenForTheEnd(t *testing.T) {
	t.Parallel()
	n := startFaulty(t)
	api := client.New(n.URL)
	api.CreateTopic(t, "kept", `"partitions":2`)
	rec := check.NewRecorder()
	writers := newWriters(n.Node, rec, "kept", 2, 4, 4000)
	for _, w := range writers {
		for range 25 {
			w.mustPut(t)
		}
	}
	// Only what is in a segment is read from one.
	if err := n.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := n.Run(); err != nil {
		t.Fatal(err)
	}
	api = client.New(n.URL)
	whole := len(api.ReadAll(t, "kept", 0))
	n.arm(t, "read .log 1 EIO")
	p, err := api.Poll(t.Context(), "kept", "partition", "0", "offset", "earliest")
	switch {
	case err != nil:
		t.Logf("the poll had no answer: %v", err)
	case p.Status == 200: // read again, and proven right by its checksums
		for i, m := range p.Messages {
			if m.Offset != int64(i) {
				t.Errorf("offset %d at place %d", m.Offset, i)
			}
		}
		if len(p.Messages) != whole {
			t.Errorf("%d of %d messages, and no word of the fault", len(p.Messages), whole)
		}
	case p.Problem.Code != "leader-unavailable" && p.Problem.Code != "draining":
		t.Errorf("the poll was refused with %s", p.Body)
	default:
		t.Logf("the poll was refused: %s", p.Problem.Detail)
	}
	n.endsWith(t, "input/output error")
	if err := n.Run(); err != nil {
		t.Fatal(err)
	}
	if got := len(client.New(n.URL).ReadAll(t, "kept", 0)); got != whole {
		t.Errorf("%d records after the restart, %d before", got, whole)
	}
	settle(t, n.Node, rec, "kept", writers)
}

// TestASlowDiskOnlyDelays: a slow sync delays answers, and none is lost or
// doubled.
func TestASlowDiskOnlyDelays(t *testing.T) {
	t.Parallel()
	n := startFaulty(t)
	client.New(n.URL).CreateTopic(t, "kept", `"partitions":2`)
	rec := check.NewRecorder()
	writers := newWriters(n.Node, rec, "kept", 2, 8, 100)
	n.arm(t, "sync .journal 1 200ms always")
	var wg sync.WaitGroup
	began := time.Now()
	for _, w := range writers {
		wg.Go(func() {
			for range 3 {
				w.put(t.Context())
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	if took < 600*time.Millisecond {
		t.Errorf("three rounds of acknowledgements in %s although a sync takes 200ms", took)
	}
	for _, w := range writers {
		if w.acknowledged() != 3 {
			t.Errorf("%s: %d of 3 acknowledged", w.name, w.acknowledged())
		}
	}
	if n.hits(t) == 0 {
		t.Error("no sync was slow")
	}
	n.arm(t, "clear")
	t.Logf("24 records in %s on a disk that takes 200ms a sync", took.Round(time.Millisecond))
	settle(t, n.Node, rec, "kept", writers)
}

// TestOnlyATestBinaryHasAFaultyDisk: the binary that people run refuses the
// variable like any other that it does not know.
func TestOnlyATestBinaryHasAFaultyDisk(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "faults")
	n := harness.New(t, harness.Options{Env: []string{"TIDEWIRE_FAULTS=" + socket}})
	if err := n.Run(); err == nil {
		t.Fatal("the node started with TIDEWIRE_FAULTS")
	}
	if code := n.ExitCode(); code != 2 && code != 1 {
		t.Errorf("exit code %d", code)
	}
	if !strings.Contains(n.Log(), "TIDEWIRE_FAULTS") {
		t.Errorf("the refusal does not name the variable:\n%s", n.Log())
	}
	if _, err := net.Dial("unix", socket); err == nil {
		t.Error("the node listens on the socket")
	}
}
