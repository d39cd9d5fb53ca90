package consensus

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"tidewire/internal/ident"
)

// tape is the smallest machine there is: it keeps every command.
type tape struct {
	mu    sync.Mutex
	index uint64
	all   []string
}

func (m *tape) Apply(index uint64, command []byte) (any, error) {
	if err := checkTape(command); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.index = index
	m.all = append(m.all, string(command))
	return len(m.all), nil
}

func (m *tape) Capture() io.WriterTo {
	m.mu.Lock()
	defer m.mu.Unlock()
	body := binary.BigEndian.AppendUint64(nil, m.index)
	body = append(body, strings.Join(m.all, "\n")...)
	return bytes.NewReader(binary.BigEndian.AppendUint32(body, crc32.ChecksumIEEE(body)))
}

func (m *tape) Restore(b []byte) error {
	index, err := checkTapeSnapshot(b)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.index = index
	m.all = strings.Split(string(b[8:len(b)-4]), "\n")
	return nil
}

func (m *tape) text() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return strings.Join(m.all, "\n")
}

func checkTape(b []byte) error {
	if !bytes.HasPrefix(b, []byte("say ")) {
		return fmt.Errorf("%q says nothing", b)
	}
	return nil
}

func checkTapeSnapshot(b []byte) (uint64, error) {
	if len(b) < 12 || binary.BigEndian.Uint32(b[len(b)-4:]) != crc32.ChecksumIEEE(b[:len(b)-4]) {
		return 0, errors.New("no tape")
	}
	return binary.BigEndian.Uint64(b), nil
}

func tapeConfig(dir string) (Config, *tape) {
	m := &tape{}
	return Config{
		Dir: dir, Bind: "127.0.0.1:0", ID: ident.NodeID{7}, Machine: m, TrailingLogs: 8,
		Checks: Checks{Command: checkTape, Snapshot: checkTapeSnapshot},
	}, m
}

func say(t *testing.T, n *Node, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		if _, err := n.Apply(t.Context(), Command{Bytes: fmt.Appendf(nil, "say %d %s", i, strings.Repeat("x", i*7%200))}); err != nil {
			t.Fatal(err)
		}
	}
}

// record makes a folder with a compacted log and two snapshots. It gives what
// the machine then holds, and a copy of raft.db from a little earlier.
func record(t *testing.T) (dir, want string, older []byte) {
	t.Helper()
	dir = t.TempDir()
	cfg, m := tapeConfig(dir)
	cfg.Found = true
	n := New(cfg)
	if err := n.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		say(t, n, i*30, i*30+30)
		if err := n.TakeSnapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	say(t, n, 90, 95)
	older, err := os.ReadFile(filepath.Join(dir, folder, dbFile))
	if err != nil {
		t.Fatal(err)
	}
	say(t, n, 95, 100)
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, m.text(), older
}

// reopen opens a copy of the folder and gives what the machine then holds.
func reopen(t *testing.T, dir string) (string, error) {
	t.Helper()
	cfg, m := tapeConfig(dir)
	n := New(cfg)
	if err := n.Open(t.Context()); err != nil {
		return "", err
	}
	if err := n.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	return m.text(), nil
}

func TestALoneNodeLeadsAtOnce(t *testing.T) {
	dir, want, _ := record(t)
	for range 3 {
		began := time.Now()
		got, err := reopen(t, dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("opened, led and closed in %s", time.Since(began))
		if got != want {
			t.Fatal("the state is another after a restart")
		}
	}
}

func TestTheFolderLooksAsItShould(t *testing.T) {
	dir, _, _ := record(t)
	cfg, _ := tapeConfig(dir)
	r, err := Verify(dir, 0, cfg.Checks)
	if err != nil {
		t.Fatal(err)
	}
	if !r.Exists || r.First <= 1 || r.Snapshot == 0 || r.Last < r.Snapshot || r.Term < 2 {
		t.Fatalf("the damage below would not be tested on a compacted log with snapshots: %+v", r)
	}
	if entries, err := os.ReadDir(filepath.Join(dir, folder, snapshotFolder)); err != nil || len(entries) != retained {
		t.Fatalf("%d snapshots, %v", len(entries), err)
	}
	if _, err := Verify(dir, r.Last+1, cfg.Checks); err == nil {
		t.Fatal("a log that ends before what was acted on passed")
	}
	if r, err := Verify(t.TempDir(), 0, cfg.Checks); err != nil || r.Exists {
		t.Fatal(r, err)
	}
}

func TestAnUnfinishedFoundingIsStartedAgain(t *testing.T) {
	dir := t.TempDir()
	left := filepath.Join(dir, foundingFolder)
	if err := os.MkdirAll(left, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(left, dbFile), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, _ := tapeConfig(dir)
	cfg.Found = true
	n := New(cfg)
	if err := n.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	say(t, n, 0, 1)
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Fatal("the half-made folder is still there")
	}
}

func TestACommandThatCannotBeAppliedEndsTheNode(t *testing.T) {
	cfg, _ := tapeConfig(t.TempDir())
	cfg.Found = true
	n := New(cfg)
	if err := n.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() { ended <- n.Run(context.Background()) })
	_, err := n.Apply(t.Context(), Command{Bytes: []byte("mumble")})
	var e *ApplyError
	if !errors.As(err, &e) || e.Outcome != Stopped {
		t.Fatal(err)
	}
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "says nothing") {
		t.Fatal(err)
	}
	wg.Wait()
	if _, err := reopen(t, cfg.Dir); err == nil {
		t.Fatal("a log with a command that cannot be applied was opened")
	}
}
