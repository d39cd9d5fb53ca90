package storage

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/google/uuid"

	"tidewire/broker/journal"
	"tidewire/internal/ident"
	"tidewire/internal/vfs"
)

// Finding is one thing that Verify has to say.
type Finding struct {
	Damage    bool            // something that was kept is not there any more; else it is information
	Partition ident.Partition // zero: the journal, or the folder as a whole
	File      string
	Pos       int64        // byte in the file
	Offset    ident.Offset // in the partition
	Text      string
}

// Summary is what Verify found altogether.
type Summary struct {
	Storage    ident.StorageID
	Live       bool // a process has the folder open
	Journal    JournalSummary
	Partitions []PartitionSummary
	Damaged    int // findings of damage
}

// JournalSummary describes the journal from its last checkpoint on.
type JournalSummary struct {
	Files     int
	Frames    int
	TornBytes int64 // written at the end, but never synced: a crash's ordinary trace
	End       journal.Position
}

// PartitionSummary describes one log.
type PartitionSummary struct {
	Partition ident.Partition
	Start     ident.Offset
	End       ident.Offset
	Segments  int
	Batches   int
	Records   int64
	Bytes     int64 // in segments
	InJournal int   // batches that are in the journal alone yet
	Damaged   bool
}

// verifyTries is how often a folder in use is read again before what looks like
// damage is believed: the journal's files change under the reader.
const verifyTries = 3

// Verify reads a whole data folder: journal, every batch of every segment,
// indexes, producer snapshots. It changes nothing. It may run beside the node
// that has the folder open: whatever was checkpointed is still, and the rest is
// read again if it looks wrong. The error says that the folder could not be
// read at all.
func Verify(fsys vfs.FS, dir string, report func(Finding)) (Summary, error) {
	live := false
	if _, err := fsys.Stat(lockPath(dir)); err == nil {
		lock, err := fsys.Lock(lockPath(dir))
		switch {
		case errors.Is(err, vfs.ErrLocked):
			live = true
		case err != nil:
			return Summary{}, err
		default:
			defer lock.Close() //nolint:errcheck // nothing was written
		}
	}
	for try := 1; ; try++ {
		v := &verifier{fsys: fsys, dir: dir}
		err := v.run()
		if live && try < verifyTries && (err != nil || v.sum.Damaged > 0) {
			continue
		}
		if err != nil {
			return Summary{}, err
		}
		for _, f := range v.findings {
			report(f)
		}
		v.sum.Live = live
		return v.sum, nil
	}
}

type verifier struct {
	fsys     vfs.FS
	dir      string
	sum      Summary
	findings []Finding
}

func (v *verifier) say(f Finding) {
	v.findings = append(v.findings, f)
	if f.Damage {
		v.sum.Damaged++
	}
}

func (v *verifier) run() error {
	m, err := readMeta(v.fsys, v.dir)
	if err != nil {
		return err
	}
	v.sum.Storage = ident.StorageID(m.Storage)
	if m.Renewing != uuid.Nil {
		v.say(Finding{File: metaPath(v.dir), Text: "the folder is being begun anew, and the next start goes on with that; what it held is in " + asideFor(v.dir, m.Renewing) + ", or on its way there"})
		return nil
	}
	scan, err := journal.Read(v.fsys, journalDir(v.dir), v.sum.Storage)
	if err != nil {
		return err
	}
	v.sum.Journal = JournalSummary{scan.Files(), scan.Frames(), scan.TornBytes, scan.End().At}
	switch c := scan.Corrupt; {
	case c != nil:
		v.say(Finding{Damage: true, File: c.File, Pos: c.Offset, Text: c.Reason})
	case scan.Empty():
		v.say(Finding{Damage: true, File: journalDir(v.dir), Text: "there is no journal file, although this data folder had one"})
	case scan.TornBytes > 0:
		v.say(Finding{File: journalDir(v.dir), Pos: scan.End().At.Offset(), Text: fmt.Sprintf("%d bytes at the end were torn by a crash; nothing of them was acknowledged", scan.TornBytes)})
	}
	found, err := replay(v.fsys, v.dir, scan)
	if err != nil {
		return err
	}
	strays, err := found.inspectAll(defaultIndexBytes, scan.Corrupt != nil)
	if err != nil {
		return err
	}
	for _, path := range strays {
		v.say(Finding{File: path, Text: "not known to the journal; the next start sets it aside"})
	}
	logs := make([]*foundLog, 0, len(found.logs))
	for _, l := range found.logs {
		logs = append(logs, l)
	}
	slices.SortFunc(logs, func(a, b *foundLog) int { return comparePartitions(a.part, b.part) })
	for _, l := range logs {
		if err := v.log(l); err != nil {
			return err
		}
	}
	return nil
}

func comparePartitions(a, b ident.Partition) int {
	return cmp.Or(slices.Compare(a.Topic[:], b.Topic[:]), cmp.Compare(a.Index, b.Index))
}

// log walks all of a log.
func (v *verifier) log(l *foundLog) error {
	s := PartitionSummary{Partition: l.part, Start: l.start, End: l.next, Segments: len(l.segs), InJournal: len(l.tail)}
	before := v.sum.Damaged
	if n := len(l.salvaged); n > 0 {
		s.End = l.salvaged[n-1].Header().Next()
		v.say(Finding{
			Damage: true, Partition: l.part, Offset: l.next, File: partitionDir(v.dir, l.part),
			Text: fmt.Sprintf("%d batches are in the segments, but not in the journal: it lost them; they are kept", n),
		})
	}
	for i := range l.segs {
		if err := v.segment(l, i, &s); err != nil {
			return err
		}
	}
	// What the walk did not meet itself: a gap in the journal.
	if d := l.damage; d != nil && v.sum.Damaged == before {
		v.say(Finding{true, l.part, d.File, d.Pos, d.Offset, d.Reason})
	}
	for _, it := range l.tail {
		s.Batches++
		s.Records += int64(it.head.Span)
	}
	v.snapshots(l)
	s.Damaged = v.sum.Damaged > before
	v.sum.Partitions = append(v.sum.Partitions, s)
	return nil
}

func (v *verifier) segment(l *foundLog, i int, s *PartitionSummary) error {
	g, path := l.segs[i], partitionDir(v.dir, l.part)
	name := filepath.Join(path, offsetName(g.base, segmentSuffix))
	f, err := v.fsys.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		v.say(Finding{true, l.part, name, 0, g.base, fmt.Sprintf("the file is missing; it held %d bytes", g.bytes)})
		return nil
	}
	if vfs.IsHarmed(err) {
		v.say(Finding{true, l.part, name, 0, g.base, "the segment cannot be read: " + why(err)})
		return nil
	}
	if err != nil {
		return err
	}
	err = v.walk(l, i, f, name, s)
	v.index(l, g, filepath.Join(path, offsetName(g.base, indexSuffix)))
	return errors.Join(err, f.Close())
}

func (v *verifier) walk(l *foundLog, i int, f vfs.File, name string, s *PartitionSummary) error {
	g := l.segs[i]
	w := &walker{f: f, part: l.part, end: g.bytes, next: g.base}
	for {
		b, h, err := w.step()
		var bad *badBatch
		switch {
		case errors.Is(err, io.EOF):
			s.Bytes += g.bytes
			if end := l.segEnd(i); w.next != end {
				v.say(Finding{true, l.part, name, w.pos, w.next, fmt.Sprintf("the segment ends at offset %d, and the log goes on at %d", w.next, end)})
			}
			return nil
		case errors.As(err, &bad):
			s.Bytes += bad.pos
			v.say(Finding{true, l.part, name, bad.pos, bad.offset, bad.err.Error()})
			return nil
		case vfs.IsHarmed(err):
			v.say(Finding{true, l.part, name, w.pos, w.next, "the segment cannot be read: " + why(err)})
			return nil
		case err != nil:
			return err
		}
		s.Batches++
		it := b.Entries()
		for it.Next() {
			if !it.Entry().Void {
				s.Records++
			}
		}
		if it.Err() != nil { // both checksums are right: a writer's fault
			v.say(Finding{true, l.part, name, w.pos - int64(h.Length), h.Base, it.Err().Error()})
		}
	}
}

// index looks at an index file; whatever is wrong with it is made good by itself.
func (v *verifier) index(l *foundLog, g segment, name string) {
	b, err := vfs.ReadFile(v.fsys, name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return // not written yet, or lost: made anew when it is needed
	case err != nil:
		v.say(Finding{Partition: l.part, File: name, Offset: g.base, Text: "the index cannot be read, and is made anew: " + err.Error()})
		return
	}
	if n := len(decodeIndex(b, indexSeed(l.part, g.base), g.base, g.bytes)); n*indexEntryBytes < len(b) {
		v.say(Finding{Partition: l.part, File: name, Pos: int64(n) * indexEntryBytes, Offset: g.base, Text: "the index is not right from here on, and is made anew"})
	}
}

func (v *verifier) snapshots(l *foundLog) {
	for _, ref := range l.snaps {
		if ref.bytes == 0 {
			continue
		}
		name := filepath.Join(partitionDir(v.dir, l.part), offsetName(ref.at, snapshotSuffix))
		b, err := vfs.ReadFile(v.fsys, name)
		if err == nil {
			_, err = decodeSnapshot(b, l.part, ref)
		}
		if err != nil {
			v.say(Finding{Partition: l.part, File: name, Offset: ref.at, Text: "the producer snapshot is not right; an older one or the log is used instead: " + err.Error()})
		}
	}
}
