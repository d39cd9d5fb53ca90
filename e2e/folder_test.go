package e2e_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/uuid"

	"tidewire/broker/partition"
	"tidewire/broker/storage"
	"tidewire/e2e/client"
	"tidewire/internal/ident"
	batches "tidewire/internal/record"
)

// image is a data folder in memory: a file's bytes without the zeros at its
// end, by path, and how long the file is. Folders end in a slash.
type image map[string]imageFile

type imageFile struct {
	data []byte
	size int64
}

// takeImage reads a folder that no process uses.
func takeImage(t testing.TB, dir string) image {
	t.Helper()
	img := image{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			img[rel+"/"] = imageFile{}
			return nil
		}
		data, err := os.ReadFile(path)
		img[rel] = imageFile{bytes.TrimRight(data, "\x00"), int64(len(data))}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// write lays the image out in a folder, which is emptied first.
func (img image) write(t testing.TB, dir string) {
	t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	for name, f := range img {
		path := filepath.Join(dir, name)
		if strings.HasSuffix(name, "/") {
			if err := os.MkdirAll(path, 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f.data[:min(int64(len(f.data)), f.size)], 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, f.size); err != nil {
			t.Fatal(err)
		}
	}
}

// with is the image with one file changed: cut at size, or other bytes.
func (img image) with(name string, f imageFile) image {
	out := maps.Clone(img)
	out[name] = f
	return out
}

func (img image) without(name string) image {
	out := maps.Clone(img)
	delete(out, name)
	return out
}

// withoutFolder is the image without a folder and all that is in it.
func (img image) withoutFolder(folder string) image {
	out := maps.Clone(img)
	maps.DeleteFunc(out, func(name string, _ imageFile) bool { return strings.HasPrefix(name, folder+"/") })
	return out
}

// cut ends a file at a byte; zeros instead keeps its length and clears the rest.
func (img image) cut(name string, at int64) image {
	return img.with(name, imageFile{img[name].data[:min(at, int64(len(img[name].data)))], at})
}

func (img image) zeros(name string, from int64) image {
	return img.with(name, imageFile{img[name].data[:min(from, int64(len(img[name].data)))], img[name].size})
}

func (img image) flip(name string, at int64, bits byte) image {
	data := append(slices.Clone(img[name].data), make([]byte, max(0, at+1-int64(len(img[name].data))))...)
	data[at] ^= bits
	return img.with(name, imageFile{data, img[name].size})
}

func (img image) names(suffix string) []string {
	var names []string
	for name := range img {
		if strings.HasSuffix(name, suffix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// journalFrames finds the newest journal file that was written to, and where
// its frames begin and end. Frames lie back to back from byte 4096, each with
// its length first; a length of 0 is the end.
func (img image) journalFrames(t testing.TB) (name string, bounds []int64) {
	t.Helper()
	for _, n := range slices.Backward(img.names(".journal")) {
		b, off := img[n].data, int64(4096)
		bounds = nil
		for off+4 <= int64(len(b)) {
			length := int64(binary.LittleEndian.Uint32(b[off:]))
			if length == 0 {
				break
			}
			bounds = append(bounds, off)
			off += length
		}
		if len(bounds) > 0 {
			return n, append(bounds, off)
		}
	}
	t.Fatal("no journal file holds a frame")
	return "", nil
}

// batches finds where the batches of a segment file begin and end.
func (img image) batches(t testing.TB, name string) (bounds []int64) {
	t.Helper()
	rest := img[name].data
	rest = append(slices.Clone(rest), make([]byte, img[name].size-int64(len(rest)))...)
	off := int64(0)
	for len(rest) > 0 {
		b, r, err := batches.Cut(rest)
		if err != nil {
			break
		}
		bounds = append(bounds, off)
		off, rest = off+int64(len(b)), r
	}
	return append(bounds, off)
}

// truth is what was acknowledged: the values of each partition by offset.
type truth map[ident.Partition][]string

// truthOf reads topics over HTTP. partitions without a record are left out.
func truthOf(t testing.TB, api *client.API, topics ...string) truth {
	t.Helper()
	all := truth{}
	for _, topic := range topics {
		info := api.Topic(t, topic)
		id, err := uuid.Parse(info.ID)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range info.Layout.Partitions {
			var values []string
			for i, m := range api.ReadAll(t, topic, p.ID) {
				if m.Offset != int64(i) {
					t.Fatalf("%s/%d: offset %d at place %d", topic, p.ID, m.Offset, i)
				}
				values = append(values, string(m.Bytes()))
			}
			if len(values) > 0 {
				all[ident.Partition{Topic: ident.TopicID(id), Index: ident.Index(p.ID)}] = values
			}
		}
	}
	return all
}

// of is what a partition should hold.
func (tr truth) of(t testing.TB, topic string, partition int) []string {
	t.Helper()
	id, err := uuid.Parse(topic)
	if err != nil {
		t.Fatal(err)
	}
	return tr[ident.Partition{Topic: ident.TopicID(id), Index: ident.Index(partition)}]
}

func (tr truth) records() (n int) {
	for _, values := range tr {
		n += len(values)
	}
	return n
}

// recovered is what the storage makes of a folder.
type recovered struct {
	logs      truth
	producers map[ident.Partition]string // the producer windows, encoded
	report    string                     // what it says is wrong; "" is nothing
	log       string
}

// recoverFolder opens a folder as a node does, reads everything and closes it in order.
func recoverFolder(t testing.TB, dir string) (r recovered) {
	t.Helper()
	// Tests beside this one start processes. One that is being started holds,
	// until it is another program, what is open here: also the folder's lock,
	// which then would outlive the close.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	var log bytes.Buffer
	reports := []string{}
	r = recovered{logs: truth{}, producers: map[ident.Partition]string{}}
	defer func() { r.report, r.log = strings.Join(reports, "\n"), log.String() }()

	s, err := storage.Open(storage.Config{Dir: dir, JournalFileBytes: 1 << 20, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		reports = append(reports, err.Error())
		return r
	}
	if err := s.ReadOnly(); err != nil {
		reports = append(reports, err.Error())
	}
	for _, p := range s.Found() {
		l, err := s.Log(p, storage.LogConfig{})
		if err != nil {
			t.Fatal(err)
		}
		values, err := readLog(l)
		if err != nil {
			reports = append(reports, err.Error())
		}
		if err := l.Damage(); err != nil {
			reports = append(reports, err.Error())
		}
		if len(values) > 0 {
			r.logs[p] = values
		}
		r.producers[p] = producersOf(t, l)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Run(ctx); err != nil {
		t.Errorf("close the folder: %v", err)
	}
	return r
}

func readLog(l *storage.Log) (values []string, err error) {
	for next := l.Start(); next < l.End(); {
		raw, err := l.Read(next, l.End(), 1<<20)
		if err != nil {
			return values, err
		}
		if len(raw) == 0 {
			return values, fmt.Errorf("nothing is read at offset %d below the end %d", next, l.End())
		}
		for len(raw) > 0 {
			b, rest, err := batches.Cut(raw)
			if err != nil {
				return values, err
			}
			it := b.Entries()
			for it.Next() {
				if e := it.Entry(); !e.Void {
					values = append(values, string(e.Value))
				}
			}
			if err := it.Err(); err != nil {
				return values, err
			}
			next, raw = b.Header().Next(), rest
		}
	}
	return values, nil
}

// producersOf rebuilds what a partition remembers of its producers, as a node
// does at its start.
func producersOf(t testing.TB, l *storage.Log) string {
	t.Helper()
	at, state := l.Recovered()
	m, err := partition.Restore(state, at)
	if err != nil {
		t.Errorf("%s: the storage vouched for a producer snapshot that is none: %v", l.Partition(), err)
		return ""
	}
	rules := partition.Rules{Range: ident.HashRange{Hi: 1 << 32}, MaxMessageBytes: 1 << 20, IdempotencyWindow: 1 << 40}
	if err := l.Fold(at, func(b batches.Batch) error { return m.Fold(b, rules) }); err != nil && l.Damage() == nil {
		t.Errorf("%s: fold: %v", l.Partition(), err)
	}
	return string(m.Snapshot())
}

// compare says what is wrong with what was recovered, given what is true. lost
// is how many records are missing.
func (tr truth) compare(got truth) (lost int, wrong string) {
	for p, values := range got {
		want := tr[p]
		for i, v := range values {
			if i >= len(want) || v != want[i] {
				return 0, fmt.Sprintf("partition %s: offset %d holds %.60q", p, i, v)
			}
		}
	}
	for p, want := range tr {
		lost += len(want) - len(got[p])
	}
	return lost, ""
}
