package harness

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

// CopyDir copies a folder. Holes stay holes: a copy of files that are mostly
// zeros costs no more than they do.
func CopyDir(t testing.TB, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		if d.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		return copyFile(path, target)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// copyFile leaves out what is zero, a piece at a time.
func copyFile(from, to string) (err error) {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	piece, zeros, size := make([]byte, 256<<10), make([]byte, 256<<10), int64(0)
	for {
		n, err := io.ReadFull(src, piece)
		if n > 0 && !bytes.Equal(piece[:n], zeros[:n]) {
			if _, err := dst.WriteAt(piece[:n], size); err != nil {
				return err
			}
		}
		size += int64(n)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return dst.Truncate(size)
		case err != nil:
			return err
		}
	}
}

// Sums has the SHA-256 of every file below a folder, by path. A folder that is
// not there has none.
func Sums(t testing.TB, dir string) map[string][32]byte {
	t.Helper()
	sums := map[string][32]byte{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if os.IsNotExist(err) && path == dir {
			return nil
		}
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		sums[rel] = sha256.Sum256(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sums
}

// SameSums names the first file that differs between two folders' sums; "" if
// there is none.
func SameSums(a, b map[string][32]byte) string {
	for _, name := range slices.Sorted(maps.Keys(a)) {
		if sum, ok := b[name]; !ok || sum != a[name] {
			return name
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b)) {
		if _, ok := a[name]; !ok {
			return name
		}
	}
	return ""
}

// DiskBytes is the space that the files below a data folder take on the disk,
// and how many they are. The journal and the reserve are left out: a node has
// them once, whatever it holds.
func DiskBytes(t testing.TB, dir string) (bytes int64, files int) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch rel, _ := filepath.Rel(dir, path); rel {
		case "journal":
			return filepath.SkipDir
		case "reserve":
			return nil
		}
		info, err := d.Info()
		if os.IsNotExist(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			bytes += st.Blocks * 512
		}
		if !d.IsDir() {
			files++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return bytes, files
}

// Files lists the files below a folder whose name ends in a suffix, sorted.
func Files(t testing.TB, dir, suffix string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && filepath.Ext(path) == suffix {
			all = append(all, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}
