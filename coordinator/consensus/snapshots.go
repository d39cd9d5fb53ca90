package consensus

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc64"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/raft"
)

// retained is how many snapshots are kept.
const retained = 2

// snapshots is raft's store of snapshots that also remembers, in raft.db, that
// one was made: a folder that lost them all is told from one that never had any.
type snapshots struct {
	raft.SnapshotStore
	store *store
}

// Create notes a snapshot that a leader sends before it comes: it may reach further
// than the log, which else is damage.
func (s *snapshots) Create(version raft.SnapshotVersion, index, term uint64, c raft.Configuration, configIndex uint64, t raft.Transport) (raft.SnapshotSink, error) {
	if index > s.store.mark.get() {
		if err := s.store.SetUint64([]byte(keySnapshotSent), index); err != nil {
			return nil, err
		}
	}
	sink, err := s.SnapshotStore.Create(version, index, term, c, configIndex, t)
	if err != nil {
		return nil, err
	}
	return &sinkWithNote{SnapshotSink: sink, store: s.store, index: index}, nil
}

type sinkWithNote struct {
	raft.SnapshotSink
	store *store
	index uint64
}

// Close finishes the snapshot, then notes it: a crash between the two leaves a
// snapshot newer than the note, which is fine.
func (s *sinkWithNote) Close() error {
	if err := s.SnapshotSink.Close(); err != nil {
		return err
	}
	return s.store.SetUint64([]byte(keySnapshotMade), s.index)
}

type snapshotInfo struct {
	path          string
	index         uint64
	configuration raft.Configuration
}

// snapshotName is a folder's name: raft calls it <term>-<index>-<ms>.
type snapshotName struct {
	name              string
	term, index, msec uint64
}

// snapshotMeta is meta.json as raft's file store writes it.
type snapshotMeta struct {
	raft.SnapshotMeta
	CRC []byte
}

// verifySnapshots reads the latest two snapshots, both of which must be whole,
// and gives the latest. Older ones are on their way out: a crash may have left any
// part of them. Folders that end in .tmp were never finished.
func verifySnapshots(dir string, checks Checks) (snapshotInfo, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return snapshotInfo{}, damaged(dir, "the folder is missing")
	}
	if err != nil {
		return snapshotInfo{}, damaged(dir, "%w", err)
	}
	var names []snapshotName
	for _, e := range entries {
		if !e.IsDir() || strings.HasSuffix(e.Name(), ".tmp") {
			continue // raft looks at neither
		}
		n := snapshotName{name: e.Name()}
		if _, err := fmt.Sscanf(n.name, "%d-%d-%d", &n.term, &n.index, &n.msec); err != nil || n.String() != n.name {
			return snapshotInfo{}, damaged(filepath.Join(dir, n.name), "no snapshot is called that")
		}
		names = append(names, n)
	}
	slices.SortFunc(names, func(a, b snapshotName) int {
		return -cmp.Or(cmp.Compare(a.term, b.term), cmp.Compare(a.index, b.index), cmp.Compare(a.msec, b.msec))
	})
	var latest snapshotInfo
	for i, n := range names {
		path := filepath.Join(dir, n.name)
		meta, err := readSnapshotMeta(path, n)
		if i >= retained && !errors.As(err, new(*contradiction)) {
			continue
		}
		if err != nil {
			return snapshotInfo{}, damaged(filepath.Join(path, "meta.json"), "%w", err)
		}
		if err := verifySnapshotState(path, meta, checks); err != nil {
			return snapshotInfo{}, damaged(filepath.Join(path, "state.bin"), "%w", err)
		}
		if i == 0 {
			latest = snapshotInfo{path: path, index: meta.Index, configuration: meta.Configuration}
		}
	}
	return latest, nil
}

func (n snapshotName) String() string { return fmt.Sprintf("%d-%d-%d", n.term, n.index, n.msec) }

// contradiction is a meta.json that parses and says something else than its
// folder's name. raft believes the file, so it matters however old it is.
type contradiction struct{ error }

func readSnapshotMeta(path string, n snapshotName) (*snapshotMeta, error) {
	b, err := os.ReadFile(filepath.Join(path, "meta.json"))
	if err != nil {
		return nil, err
	}
	var m snapshotMeta
	// As raft reads it: the first JSON value counts.
	if err := json.NewDecoder(bytes.NewReader(b)).Decode(&m); err != nil {
		return nil, fmt.Errorf("it does not parse: %w", err)
	}
	switch {
	case m.ID != n.name || m.Index != n.index || m.Term != n.term:
		return nil, &contradiction{fmt.Errorf("it describes %s, entry %d of term %d", m.ID, m.Index, m.Term)}
	case m.Version != raft.SnapshotVersionMax:
		return nil, fmt.Errorf("it is of version %d", m.Version)
	case !slices.ContainsFunc(m.Configuration.Servers, func(s raft.Server) bool { return s.Suffrage == raft.Voter }):
		return nil, errors.New("it names no coordinator with a vote")
	case m.ConfigurationIndex > m.Index:
		return nil, fmt.Errorf("its configuration is of entry %d", m.ConfigurationIndex)
	}
	return &m, nil
}

func verifySnapshotState(path string, m *snapshotMeta, checks Checks) error {
	b, err := os.ReadFile(filepath.Join(path, "state.bin"))
	if err != nil {
		return err
	}
	if int64(len(b)) != m.Size {
		return fmt.Errorf("it has %d bytes, not %d", len(b), m.Size)
	}
	sum := crc64.New(crc64.MakeTable(crc64.ECMA))
	sum.Write(b)
	if !bytes.Equal(sum.Sum(nil), m.CRC) {
		return errors.New("its checksum is not the one in meta.json: its bytes, or that file's, have changed")
	}
	index, err := checks.Snapshot(b)
	if err != nil {
		return err
	}
	if index > m.Index {
		return fmt.Errorf("it reaches entry %d, meta.json says %d", index, m.Index)
	}
	return nil
}
