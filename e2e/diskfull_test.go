package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"tidewire/e2e/client"
	"tidewire/e2e/harness"
	"tidewire/internal/testkit/check"
)

// smallDisk mounts a file system of its own for a data folder.
func smallDisk(t *testing.T, size string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := syscall.Mount("tidewire-test", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("NOT TESTED: a full disk needs root rights to mount a tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return dir
}

func freeBytes(t *testing.T, dir string) int64 {
	t.Helper()
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	return int64(st.Bavail) * st.Bsize
}

// hog takes all but some of a disk's free space with a file of its own.
func hog(t *testing.T, path string, leave int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 1<<20)
	for {
		left := freeBytes(t, filepath.Dir(path)) - leave
		if left <= 0 {
			return
		}
		if _, err := f.Write(b[:min(left, int64(len(b)))]); errors.Is(err, syscall.ENOSPC) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// yield makes the disk larger until so much space is left.
func yield(t *testing.T, disk string, leave int64) {
	t.Helper()
	missing := leave - freeBytes(t, disk)
	if missing <= 0 {
		return
	}
	var st syscall.Statfs_t
	if err := syscall.Statfs(disk, &st); err != nil {
		t.Fatal(err)
	}
	size := int64(st.Blocks)*st.Bsize + missing
	if err := syscall.Mount("tmpfs", disk, "tmpfs", syscall.MS_REMOUNT, fmt.Sprintf("size=%d", size)); err != nil {
		t.Fatal(err)
	}
}

// untilFull publishes from all writers until each was refused because the disk
// is full, and says how many records were kept meanwhile.
func untilFull(t *testing.T, writers []*writer) int64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	var kept atomic.Int64
	var wg sync.WaitGroup
	for _, w := range writers {
		wg.Go(func() {
			for ctx.Err() == nil {
				a := w.put(ctx)
				switch {
				case a.kept():
					kept.Add(1)
				case a.code == "disk-full":
					if n, err := strconv.Atoi(a.full.Header.Get("Retry-After")); err != nil || n < 1 || a.full.Status != 503 {
						t.Errorf("%s: %d with Retry-After %q", w.name, a.full.Status, a.full.Header.Get("Retry-After"))
					}
					return
				default:
					t.Errorf("%s: %s %v", w.name, a.code, a.err)
					return
				}
			}
			t.Errorf("%s: the disk did not fill up", w.name)
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return kept.Load()
}

// heals waits until a writer's records are kept again. While the disk is full
// each is refused and nothing else.
func heals(t *testing.T, w *writer, bound time.Duration) time.Duration {
	t.Helper()
	began := time.Now()
	harness.Await(t, bound, "publishing goes on by itself", func() bool {
		a := w.put(t.Context())
		if !a.kept() && a.code != "disk-full" {
			t.Fatalf("%s: %s %v", w.name, a.code, a.err)
		}
		return a.kept()
	})
	return time.Since(began)
}

// reads checks that a topic can be read in every way: all of it by polls, and
// some from its beginning by streams.
func reads(t *testing.T, n *harness.Node, topic string) (records int) {
	t.Helper()
	api := client.New(n.URL)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	for _, p := range api.Topic(t, topic).Layout.Partitions {
		records += len(api.ReadAll(t, topic, p.ID))
	}
	sse, err := client.OpenSSE(ctx, n.URL+"/topics/"+topic+"/events?from=earliest", "")
	if err != nil {
		t.Fatal(err)
	}
	defer sse.Close()
	streamed := min(records, 200)
	for range streamed {
		if e, _, err := sse.NextMessage(); err != nil || e.Name != "message" {
			t.Fatalf("SSE while the disk is full: %s %v", e.Name, err)
		}
	}
	ws, err := client.DialWS(ctx, n.Addr, "")
	if err != nil {
		t.Fatal(err)
	}
	defer ws.Drop()
	if f, err := ws.Call(ctx, 1, `{"op":"subscribe","id":1,"topic":"`+topic+`","from":"earliest"}`); err != nil || f.Op != "subscribed" {
		t.Fatalf("subscribe while the disk is full: %s %v", f.Raw, err)
	}
	for got := 0; got < streamed; {
		f, err := ws.Next(ctx)
		if err != nil {
			t.Fatalf("WebSocket while the disk is full, after %d messages: %v", got, err)
		}
		if f.Op == "message" {
			got++
		}
	}
	return records
}

// tail keeps a live subscription open and counts what it gets.
type tailing struct {
	got  atomic.Int64
	stop context.CancelFunc
	wg   sync.WaitGroup
	err  error
}

func follow(t *testing.T, n *harness.Node, topic string) *tailing {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &tailing{stop: cancel}
	ws, err := client.DialWS(ctx, n.Addr, "")
	if err != nil {
		t.Fatal(err)
	}
	if f, err := ws.Call(ctx, 1, `{"op":"subscribe","id":1,"topic":"`+topic+`","from":"latest"}`); err != nil || f.Op != "subscribed" {
		t.Fatalf("subscribe: %s %v", f.Raw, err)
	}
	l.wg.Go(func() {
		defer ws.Drop()
		for {
			f, err := ws.Next(ctx)
			if err != nil {
				l.err = err
				return
			}
			if f.Op == "message" {
				l.got.Add(1)
			}
		}
	})
	t.Cleanup(func() { cancel(); l.wg.Wait() })
	return l
}

// TestFullDiskRefusesAndHealsByItself fills the disk twice: by a foreign file
// and by records. Publishing is refused clearly, reading and following go on,
// and once there is space, publishing does as well, with no restart. In
// between the node is killed with not a byte free, and starts.
func TestFullDiskRefusesAndHealsByItself(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t, "256m")
	n := harness.Start(t, harness.Options{Dir: filepath.Join(disk, "data"), Args: []string{"--min-free-bytes", "8MiB"}})
	// Small segments, so that a lower retention can free some of them.
	client.New(n.URL).CreateTopic(t, "filling", `"partitions":4,"retention":{"bytes":41943040}`)
	rec := check.NewRecorder()
	writers := newWriters(n, rec, "filling", 4, 8, 64<<10)
	live := follow(t, n, "filling")
	for _, w := range writers {
		for range 10 {
			w.mustPut(t)
		}
	}

	// Records that are over while there is no byte to note it with.
	client.New(n.URL).CreateTopic(t, "aging", `"retention":{"age":"2s"}`)
	aging := newWriters(n, check.NewRecorder(), "aging", 1, 1, 10)[0]
	for range 5 {
		aging.mustPut(t)
	}
	over := time.After(4 * time.Second)
	foreign := filepath.Join(disk, "foreign")
	hog(t, foreign, 0)
	kept := untilFull(t, writers)
	t.Logf("a foreign file took the disk to %d bytes free: %d more records were kept, then every publish was refused", freeBytes(t, disk), kept)
	if n := reads(t, n, "filling"); n < 80 {
		t.Errorf("only %d records can be read while the disk is full", n)
	}
	<-over
	if err := os.Remove(foreign); err != nil {
		t.Fatal(err)
	}
	harness.Await(t, 20*time.Second, "retention goes on by itself", func() bool {
		p := client.New(n.URL).Topic(t, "aging").Layout.Partitions[0]
		return p.Earliest == 5 && p.HW == 5
	})
	t.Logf("the foreign file is gone: publishing again after %s", heals(t, writers[0], 30*time.Second).Round(time.Millisecond))

	kept = untilFull(t, writers)
	t.Logf("records took the disk to %d bytes free: %d were kept", freeBytes(t, disk), kept)
	if free := freeBytes(t, disk); free > 48<<20 || free < 1<<20 {
		t.Errorf("publishing stopped with %d bytes free where 8 MiB are to be left", free)
	}
	t.Logf("%d records read while the disk is full", reads(t, n, "filling"))
	sent := int64(0)
	for _, w := range writers {
		sent += int64(w.acknowledged())
	}
	harness.Await(t, 20*time.Second, "the subscription from before has all", func() bool { return live.got.Load() >= sent })

	// Not a byte left, and the power fails.
	hog(t, foreign, 0)
	n.Kill()
	hog(t, foreign, 0)
	before := harness.Sums(t, filepath.Join(n.Dir(), "topics"))
	if free := freeBytes(t, disk); free > 0 {
		t.Fatalf("%d bytes are free: the disk is not full", free)
	}
	if err := n.Run(); err != nil {
		t.Fatalf("start with %d bytes free: %v", freeBytes(t, disk), err)
	}
	if !strings.Contains(n.Log(), "the space that was kept for a start is given up") {
		t.Errorf("the start on a full disk says nothing of it:\n%s", n.Log())
	}
	t.Logf("ready after %s with %d bytes free", n.ReadyAfter().Round(time.Millisecond), freeBytes(t, disk))
	for name, sum := range harness.Sums(t, filepath.Join(n.Dir(), "topics")) {
		if old, ok := before[name]; ok && old != sum && filepath.Ext(name) == ".log" {
			t.Logf("note: %s was written to by the start", name)
		}
	}
	for _, w := range writers {
		w.api = client.New(n.URL)
	}
	untilFull(t, writers)
	t.Logf("%d records read after the kill", reads(t, n, "filling"))

	// Space comes back from the node's own retention, asked for while there is none.
	api := client.New(n.URL)
	lower := func() client.Answer {
		ans, err := api.Do(t.Context(), "PATCH", "/topics/filling", "application/json", `{"retention":{"bytes":8388608}}`)
		if err != nil {
			t.Fatalf("lower the retention with %d bytes free: %v", freeBytes(t, disk), err)
		}
		return ans
	}
	full := lower()
	if full.Status != 200 {
		if p, err := full.Problem(); err != nil || p.Code != "disk-full" {
			t.Errorf("lowering the retention on a full disk: %s %v", full.Body, err)
		}
	}
	<-time.After(2500 * time.Millisecond) // retention looks once a second; it must not end the node
	ready := api.Must(t, 200, "GET", "/readyz", "", "")
	t.Logf("lowering the retention with no byte free: %d; then /readyz %d, %d bytes free", full.Status, ready.Status, freeBytes(t, disk))
	if full.Status != 200 {
		// Enough for that call, and still too little to publish.
		if err := os.Remove(foreign); err != nil {
			t.Fatal(err)
		}
		hog(t, foreign, 6<<20)
		// The node may have asked for its free space while the file grew, a tenth of a second ago.
		harness.Await(t, 10*time.Second, "publishing to be refused again", func() bool {
			a := writers[1].put(t.Context())
			if !a.kept() && a.code != "disk-full" {
				t.Fatalf("publish with %d bytes free: %s %v", freeBytes(t, disk), a.code, a.err)
			}
			return !a.kept()
		})
		// The node may be writing what it could not write before; what that
		// takes is given once more.
		harness.Await(t, 60*time.Second, "the retention to be lowered with little space", func() bool {
			yield(t, disk, 6<<20)
			return lower().Status == 200
		})
	}
	t.Logf("retention was lowered: publishing again after %s, %d bytes free", heals(t, writers[1], 60*time.Second).Round(time.Millisecond), freeBytes(t, disk))

	for _, w := range writers {
		if w.producer != "" { // what was left open is settled by a repeat
			w.mustPut(t)
		}
	}
	if err := n.Stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	if err := n.Run(); err != nil {
		t.Fatal(err)
	}
	records := keepLogs(t, n, rec, "filling")
	judge(t, rec)
	t.Logf("%d records in the end", records)
}
