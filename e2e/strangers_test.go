package e2e_test

import (
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tidewire/e2e/client"
	"tidewire/e2e/harness"
)

// TestStrangersOnTheNodesPortsTakeNothing opens more connections to each port
// that nobody needs in this version than the process may have files, and lets
// them idle: the node goes on writing, and the connections end.
func TestStrangersOnTheNodesPortsTakeNothing(t *testing.T) {
	t.Parallel()
	const files, flood = 300, 400
	for port, hello := range map[string]string{
		"raft": "\x00", "gossip": "", "rpc": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
	} {
		t.Run(port, func(t *testing.T) {
			t.Parallel()
			n := harness.Start(t, harness.Options{OpenFiles: files, Args: []string{"--log-level", "warn"}})
			api := client.New(n.URL)
			api.CreateTopic(t, "dry", `"partitions":64`)
			var held []net.Conn
			for range flood {
				c, err := tryDial(n.Listeners[port])
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = c.Close() })
				_, _ = io.WriteString(c, hello) // it may be closed already
				held = append(held, c)
			}
			wetEach(t, n, api)
			deadline := time.Now().Add(40 * time.Second)
			for i, c := range held {
				_ = c.SetReadDeadline(deadline)
				if _, err := io.Copy(io.Discard, c); os.IsTimeout(err) {
					t.Fatalf("connection %d idles and is kept", i)
				}
			}
			stillServes(t, n, "dry")
			if log := n.Log(); strings.Contains(log, "too many open files") {
				t.Errorf("files were lacking: %s", log)
			}
		})
	}
}

// TestTooFewOpenFilesAreRefusedAtTheStart names the number that is needed.
func TestTooFewOpenFilesAreRefusedAtTheStart(t *testing.T) {
	t.Parallel()
	n := harness.New(t, harness.Options{OpenFiles: 64})
	if err := n.Run(); err == nil || !strings.Contains(n.Log(), "ulimit -n, LimitNOFILE=) to 256 or more") {
		t.Fatalf("%v: %s", err, n.Log())
	}
}

// TestALostPartitionFolderIsOnePartitionsDamage: the folder has a segment, the
// journal newer records, and somebody removes the folder. The other topic lives.
func TestALostPartitionFolderIsOnePartitionsDamage(t *testing.T) {
	t.Parallel()
	n := harness.Start(t, harness.Options{})
	api := client.New(n.URL)
	for _, topic := range []string{"a", "b"} {
		api.CreateTopic(t, topic, `"partitions":1`)
	}
	publish := func(topic string) int {
		ans, err := client.New(n.URL).Do(t.Context(), http.MethodPost, "/topics/"+topic, "text/plain", "here")
		if err != nil {
			t.Fatal(err)
		}
		return ans.Status
	}
	publish("a")
	harness.Await(t, 20*time.Second, "a segment is there", func() bool {
		return len(harness.Files(t, filepath.Join(n.Dir(), "topics"), ".log")) == 1
	})
	segment := harness.Files(t, filepath.Join(n.Dir(), "topics"), ".log")[0]
	if err := n.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := n.Run(); err != nil {
		t.Fatal(err)
	}
	publish("a")
	publish("b")
	n.Kill()
	if err := os.RemoveAll(filepath.Dir(segment)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := n.Run(); err != nil {
			t.Fatalf("the node does not start: %v", err)
		}
		if status := publish("a"); status != http.StatusServiceUnavailable {
			t.Errorf("the damaged topic answers %d", status)
		}
		if status := publish("b"); status != http.StatusCreated {
			t.Errorf("the other topic answers %d", status)
		}
		if err := n.Stop(); err != nil { // every log is flushed and checkpointed
			t.Fatal(err)
		}
	}
}

// TestLackOfOpenFilesPasses takes the open files away from a running node and
// gives them back: what was acknowledged meanwhile is there.
func TestLackOfOpenFilesPasses(t *testing.T) {
	t.Parallel()
	const partitions = 8
	n := harness.Start(t, harness.Options{OpenFiles: 300})
	api := client.New(n.URL)
	api.CreateTopic(t, "dry", `"partitions":`+strconv.Itoa(partitions))
	limit := func(files uint64) {
		t.Helper()
		if err := unix.Prlimit(n.Pid(), unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: files, Max: 300}, nil); err != nil {
			t.Fatal(err)
		}
	}
	limit(1)
	kept, later := 0, []int(nil)
	publish := func(p int) int {
		t.Helper()
		ans, err := api.Do(t.Context(), http.MethodPost, "/topics/dry?partition="+strconv.Itoa(p)+"&timeout=5s", "text/plain", "wet")
		if err != nil || ans.Status != 201 && ans.Status != 429 {
			t.Fatalf("partition %d without open files: %d %s %v", p, ans.Status, ans.Body, err)
		}
		return ans.Status
	}
	for p := range partitions {
		if publish(p) == 201 {
			kept++
		} else {
			later = append(later, p)
		}
	}
	if kept == 0 {
		t.Error("nothing was kept, although the journal had room")
	}
	harness.Await(t, 20*time.Second, "the node says what it lacks", func() bool {
		return strings.Contains(n.Log(), "disk space or open files are lacking")
	})
	limit(300)
	for _, p := range later {
		harness.Await(t, 20*time.Second, "what was refused is taken", func() bool { return publish(p) == 201 })
	}
	harness.Await(t, 20*time.Second, "every record is in a segment", func() bool {
		return len(harness.Files(t, filepath.Join(n.Dir(), "topics"), ".log")) == partitions
	})
	if strings.Contains(n.Log(), "data folder failed") {
		t.Error(n.Log())
	}
	n.Kill()
	if err := n.Run(); err != nil {
		t.Fatal(err)
	}
	for p := range partitions {
		if got := len(client.New(n.URL).ReadAll(t, "dry", p)); got != 1 {
			t.Errorf("partition %d has %d records", p, got)
		}
	}
}
