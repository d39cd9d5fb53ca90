package consensus

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"tidewire/coordinator/consensus/boltcheck"
)

// damage is one way to harm a folder.
type damage struct {
	name string
	do   func(t *testing.T, root string)
	must bool // must be refused; else it may also be exactly right
}

// TestDamageIsRefusedOrHarmless is the promise of this package: after any
// harm, the node either refuses, says which file, and has changed nothing, or it
// holds exactly what it held.
func TestDamageIsRefusedOrHarmless(t *testing.T) {
	dir, want, older := record(t)
	random := rand.New(rand.NewPCG(1, 2))
	refused, right := 0, 0
	for _, d := range damages(t, dir, older, random) {
		work := t.TempDir()
		if err := os.CopyFS(work, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		d.do(t, filepath.Join(work, folder))
		before := fingerprint(t, work)
		got, err := reopen(t, work)
		switch {
		case err == nil && d.must:
			t.Errorf("%s: opened", d.name)
		case err == nil && got != want:
			t.Errorf("%s: opened with another state", d.name)
		case err == nil:
			right++
		default:
			refused++
			var e *Damage
			if !errors.As(err, &e) || !strings.HasPrefix(e.File, work) {
				t.Errorf("%s: the error names no file: %v", d.name, err)
			}
			if after := fingerprint(t, work); after != before {
				t.Errorf("%s: refused, but changed the folder:\n%s\n%s", d.name, before, after)
			}
		}
		if err := os.RemoveAll(work); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d refused, %d opened with the right state", refused, right)
}

func damages(t *testing.T, dir string, older []byte, random *rand.Rand) []damage {
	t.Helper()
	root := filepath.Join(dir, folder)
	all := []damage{
		{"delete raft.db", remove(dbFile), true},
		{"delete the snapshots", remove(snapshotFolder), true},
		{"delete raft.db and the snapshots", func(t *testing.T, root string) {
			remove(dbFile)(t, root)
			remove(snapshotFolder)(t, root)
		}, true},
		{"delete all but the folder", func(t *testing.T, root string) {
			for _, f := range []string{dbFile, snapshotFolder, markFile} {
				remove(f)(t, root)
			}
		}, true},
		{"delete the folder", func(t *testing.T, root string) { remove("")(t, root) }, true},
		{"raft.db from a little earlier", overwrite(dbFile, older), true},
		{"raft.db is a folder", func(t *testing.T, root string) {
			remove(dbFile)(t, root)
			if err := os.Mkdir(filepath.Join(root, dbFile), 0o755); err != nil {
				t.Fatal(err)
			}
		}, true},
		{"delete the mark", remove(markFile), false},
		{"garbage in the mark", overwrite(markFile, noise(random, 600)), false},
		{"empty the snapshots folder", func(t *testing.T, root string) {
			for _, s := range list(t, filepath.Join(root, snapshotFolder)) {
				remove(filepath.Join(snapshotFolder, s))(t, root)
			}
		}, true},
		{"an unfinished snapshot", func(t *testing.T, root string) {
			if err := os.Mkdir(filepath.Join(root, snapshotFolder, "9-9-9.tmp"), 0o755); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"the rest of an old snapshot", func(t *testing.T, root string) {
			if err := os.Mkdir(filepath.Join(root, snapshotFolder, "1-1-1"), 0o755); err != nil {
				t.Fatal(err)
			}
		}, false},
	}
	snaps := list(t, filepath.Join(root, snapshotFolder))
	files := []string{dbFile}
	for _, s := range snaps {
		all = append(all, damage{"delete snapshot " + s, remove(filepath.Join(snapshotFolder, s)), false})
		for _, f := range []string{"meta.json", "state.bin"} {
			path := filepath.Join(snapshotFolder, s, f)
			files = append(files, path)
			all = append(all, damage{"delete " + path, remove(path), true})
		}
	}
	for _, f := range files {
		whole, err := os.ReadFile(filepath.Join(root, f))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all,
			damage{"garbage in all of " + f, overwrite(f, noise(random, len(whole))), true},
			damage{"garbage and more of it in " + f, overwrite(f, noise(random, 2*len(whole)+9)), true})
		for _, n := range lengths(random, len(whole)) {
			// The last page of raft.db may be beyond its high-water mark.
			must := f != dbFile && n < len(whole)-1 || n < len(whole)/4
			all = append(all, damage{fmt.Sprintf("cut %s to %d of %d bytes", f, n, len(whole)), overwrite(f, whole[:n]), must})
		}
		for range 8 {
			block := noise(random, 1+random.IntN(min(4096, len(whole))))
			at := random.IntN(len(whole) - len(block) + 1)
			if f == dbFile && random.IntN(2) == 0 {
				block, at = noise(random, 4096), 4096*random.IntN(len(whole)/4096)
			}
			b := bytes.Clone(whole)
			copy(b[at:], block)
			all = append(all, damage{fmt.Sprintf("garbage in %d bytes at %d of %s", len(block), at, f), overwrite(f, b), false})
		}
	}
	return all
}

// TestEveryFlippedBitIsNoticed reads what is left after a flip instead of opening
// it, so that thousands of places are tried: whatever passes must hold the same
// entries and values.
func TestEveryFlippedBitIsNoticed(t *testing.T) {
	dir, _, _ := record(t)
	cfg, _ := tapeConfig(dir)
	random := rand.New(rand.NewPCG(3, 4))
	for _, f := range append([]string{dbFile}, snapshotFiles(t, dir)...) {
		path := filepath.Join(dir, folder, f)
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		want := contents(t, path, f, whole)
		places := random.Perm(len(whole))
		if f == dbFile {
			places = read(t, whole, random) // most of the file is free pages, which mean nothing
		}
		noticed, tries := 0, min(len(places), 200)
		for _, at := range places[:tries] {
			b := bytes.Clone(whole)
			b[at] ^= 1 << random.IntN(8)
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := Verify(dir, 0, cfg.Checks); err != nil {
				noticed++
				continue
			}
			if got := contents(t, path, f, b); got != want {
				t.Errorf("byte %d of %s: the flip passed and changed the content", at, f)
			}
		}
		if noticed == 0 {
			t.Errorf("%s: no flip was noticed", f)
		}
		t.Logf("%s: %d of %d flips noticed", f, noticed, tries)
		if err := os.WriteFile(path, whole, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// read gives, in random order, the places of raft.db that are in use.
func read(t *testing.T, whole []byte, random *rand.Rand) []int {
	t.Helper()
	r := &reads{r: bytes.NewReader(whole), seen: map[int]bool{}}
	if err := boltcheck.Check(r, int64(len(whole)), func(string, []byte, []byte) error { return nil }); err != nil {
		t.Fatal(err)
	}
	places := slices.Sorted(maps.Keys(r.seen))
	random.Shuffle(len(places), func(i, k int) { places[i], places[k] = places[k], places[i] })
	return places
}

type reads struct {
	r    io.ReaderAt
	seen map[int]bool
}

func (r *reads) ReadAt(b []byte, at int64) (int, error) {
	for i := range b {
		r.seen[int(at)+i] = true
	}
	return r.r.ReadAt(b, at)
}

// contents is what a file says to those who read it.
func contents(t *testing.T, path, name string, whole []byte) string {
	t.Helper()
	if name != dbFile {
		if strings.HasSuffix(name, "meta.json") {
			var n snapshotName
			n.name = filepath.Base(filepath.Dir(path))
			if _, err := fmt.Sscanf(n.name, "%d-%d-%d", &n.term, &n.index, &n.msec); err != nil {
				t.Fatal(err)
			}
			m, err := readSnapshotMeta(path[:len(path)-len("/meta.json")], n)
			if err != nil {
				t.Fatal(err)
			}
			// raft uses these; the addresses of a lone voter it does not, nor the peers of old versions.
			return fmt.Sprint(m.ID, m.Index, m.Term, m.CRC, votes(m.Configuration, m.Configuration.Servers[0].ID))
		}
		return string(whole)
	}
	var out strings.Builder
	err := boltcheck.Check(bytes.NewReader(whole), int64(len(whole)), func(bucket string, key, value []byte) error {
		if bucket == "logs" {
			var l raft.Log
			if err := decodeEntry(value, &l); err != nil {
				return err
			}
			// AppendedAt is for people.
			fmt.Fprintf(&out, "%x %d %d %d %q\n", key, l.Index, l.Term, l.Type, l.Data)
			return nil
		}
		fmt.Fprintf(&out, "%s %q %x\n", bucket, key, value)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func snapshotFiles(t *testing.T, dir string) []string {
	t.Helper()
	var files []string
	for _, s := range list(t, filepath.Join(dir, folder, snapshotFolder)) {
		files = append(files, filepath.Join(snapshotFolder, s, "meta.json"), filepath.Join(snapshotFolder, s, "state.bin"))
	}
	return files
}

func list(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func remove(name string) func(*testing.T, string) {
	return func(t *testing.T, root string) {
		if err := os.RemoveAll(filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
}

func overwrite(name string, b []byte) func(*testing.T, string) {
	return func(t *testing.T, root string) {
		if err := os.WriteFile(filepath.Join(root, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func noise(random *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	return b
}

func lengths(random *rand.Rand, n int) []int {
	all := []int{0, 1, 16, 79, min(n-1, 4096), min(n-1, 4097), min(n-1, 8192), n / 2, n - 1}
	for range 3 {
		all = append(all, random.IntN(n))
	}
	for i := range all {
		all[i] = min(all[i], n-1)
	}
	return all
}

// fingerprint names every file with its content.
func fingerprint(t *testing.T, dir string) string {
	t.Helper()
	var lines []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			lines = append(lines, path)
			return err
		}
		b, err := os.ReadFile(path)
		lines = append(lines, fmt.Sprintf("%s %x", path, sha256.Sum256(b)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
