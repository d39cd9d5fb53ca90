package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"

	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/vfs"
)

// CorruptError says that the journal lost something that was durable. What lies
// before it is good; what lies behind cannot be trusted.
type CorruptError struct {
	File   string
	Offset int64
	Reason string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("journal is corrupt: %s, byte %d: %s; `tidewire log verify --data %s` shows what is left. Restore the data folder from a backup", e.File, e.Offset, e.Reason, vfs.Home(e.File))
}

// scanned is one file as it was found.
type scanned struct {
	name   string
	seq    uint64 // by its name
	head   head
	err    error // the head is bad
	size   int64
	frames []frame // every good one, wherever it lies
	checks []frame // those with a checkpoint in them
}

// Scan is what a journal folder holds. It is made by reading alone.
type Scan struct {
	fsys    vfs.FS
	dir     string
	storage ident.StorageID

	files []*scanned // from the first one needed to the last, ascending
	old   []*scanned // older ones: all in the segments, free to be used again
	from  Cut        // where replay starts
	end   Cut        // where the journal ends
	chain []link     // the frames in between, in order

	// Corrupt is not nil if something durable is missing. Replay then gives
	// what lies before.
	Corrupt *CorruptError
	// HasCheckpoint says that replay starts with a checkpoint's state.
	HasCheckpoint bool
	checkpoint    []byte
	// TornBytes counts what was cut off behind the end: written, but never synced.
	TornBytes int64
	mark      uint64 // frames below it were durable
}

type link struct {
	file  *scanned
	frame frame
}

// Read scans a folder and changes nothing in it. A missing folder is an empty
// journal. The error is one of reading; damage is in Scan.Corrupt.
func Read(fsys vfs.FS, dir string, storage ident.StorageID) (*Scan, error) {
	s := &Scan{fsys: fsys, dir: dir, storage: storage, mark: 1}
	infos, err := fsys.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var all []*scanned
	for _, info := range infos {
		if seq, ok := parseName(info.Name); ok && !info.IsDir {
			all = append(all, &scanned{name: filepath.Join(dir, info.Name), seq: seq, size: info.Size})
		}
	}
	slices.SortFunc(all, func(a, b *scanned) int { return int(int64(a.seq) - int64(b.seq)) })
	if err := s.choose(all); err != nil {
		return nil, err
	}
	return s, s.findTorn()
}

// findTorn looks whether the frame that should come next was begun. It decides
// nothing; an operator may want to know.
func (s *Scan) findTorn() error {
	for i, f := range s.files {
		off := int64(firstFrame)
		if f.seq == s.end.At.File() {
			off = s.end.At.Offset()
		} else if f.seq < s.end.At.File() {
			continue
		}
		file, err := s.fsys.Open(s.files[i].name)
		if err != nil {
			return err
		}
		b := make([]byte, frameHead)
		_, err = file.ReadAt(b, off)
		if err = errors.Join(ignoreEOF(err), file.Close()); err != nil {
			return err
		}
		if binary.LittleEndian.Uint64(b[8:]) == s.end.Frame {
			s.TornBytes += int64(binary.LittleEndian.Uint32(b))
		}
	}
	return nil
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// Used says whether anything was ever written to a journal: whoever founds one
// over it would lose that. A folder that is missing, or whose founding was cut
// short, is not used.
func Used(fsys vfs.FS, dir string) (used bool, err error) {
	infos, err := fsys.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for _, info := range infos {
		seq, ok := parseName(info.Name)
		if !ok {
			continue
		}
		if seq > 1 {
			return true, nil
		}
		f, err := fsys.Open(filepath.Join(dir, info.Name))
		if err != nil {
			return false, err
		}
		var length [4]byte // of the first frame, never 0 where there is one
		_, err = f.ReadAt(length[:], firstFrame)
		if errors.Is(err, io.EOF) {
			err = nil
		}
		if err = errors.Join(err, f.Close()); err != nil || length != [4]byte{} {
			return true, err
		}
	}
	return false, nil
}

// choose reads files from the newest down until a checkpoint is found that the
// journal reaches, and walks the frames from there.
func (s *Scan) choose(all []*scanned) error {
	first := len(all) // files[first:] are read
	read := func(to int) error {
		for first > to {
			first--
			if err := s.readFile(all[first]); err != nil {
				return err
			}
			for _, f := range all[first].frames {
				s.mark = max(s.mark, f.mark)
			}
		}
		return nil
	}
	index := func(seq uint64) int {
		i, ok := slices.BinarySearchFunc(all, seq, func(f *scanned, q uint64) int { return int(int64(f.seq) - int64(q)) })
		if !ok {
			return -1
		}
		return i
	}
	for i := len(all) - 1; i >= 0; i-- {
		if err := read(i); err != nil {
			return err
		}
		for _, c := range slices.Backward(all[i].checks) {
			payload, cut, err := s.readCheckpoint(all[i], c)
			if err != nil {
				return err
			}
			start := index(cut.At.File())
			if start < 0 || start > i {
				// Its beginning is gone: only a checkpoint that was never
				// durable, or corruption, can be so. The older one tells.
				continue
			}
			if err := read(start); err != nil {
				return err
			}
			s.walk(all[start:], cut)
			if s.end.Frame <= c.seq && s.mark <= c.seq {
				continue // torn away with its group: an older one holds
			}
			s.HasCheckpoint, s.checkpoint = true, payload
			s.old = all[:start]
			return nil
		}
	}
	if len(all) == 0 {
		s.from = Cut{at(1, firstFrame), 1}
		s.end = s.from
		return nil
	}
	// No checkpoint: the journal has to be whole from its first frame on.
	s.walk(all, Cut{at(1, firstFrame), 1})
	if all[0].seq != 1 && s.Corrupt == nil {
		s.Corrupt = &CorruptError{all[0].name, 0, "files before this one are missing, and no checkpoint says that they are not needed"}
	}
	return nil
}

// walk follows the frames from a cut on and decides where they end and what
// that means.
func (s *Scan) walk(files []*scanned, from Cut) {
	s.files, s.from, s.chain, s.Corrupt, s.TornBytes = files, from, nil, nil, 0
	cur, off, seq := 0, from.At.Offset(), from.Frame
	for {
		f := files[cur]
		if fr, ok := f.frameAt(off, seq); ok {
			s.chain = append(s.chain, link{f, fr})
			off, seq = off+fr.bytes, seq+1
			continue
		}
		// A file in between may hold nothing but what was torn off together
		// with the frame that is not here.
		next := slices.IndexFunc(files[cur+1:], func(f *scanned) bool {
			_, ok := f.frameAt(firstFrame, seq)
			return ok
		})
		if next < 0 {
			break
		}
		cur, off = cur+1+next, firstFrame
	}
	s.end = Cut{at(files[cur].seq, off), seq}
	s.Corrupt = s.judge(files, cur, off, seq)
	for _, f := range files[cur:] {
		for _, fr := range f.frames {
			if fr.seq >= seq {
				s.TornBytes += fr.bytes
			}
		}
	}
}

// judge decides between the end of the journal and the loss of something
// durable.
func (s *Scan) judge(files []*scanned, end int, off int64, seq uint64) *CorruptError {
	for i, f := range files {
		if f.err != nil {
			return &CorruptError{f.name, 0, f.err.Error()}
		}
		if f.size < f.head.size {
			return &CorruptError{f.name, f.size, fmt.Sprintf("the file has %d bytes, its head says %d", f.size, f.head.size)}
		}
		if i > 0 && f.seq != files[i-1].seq+1 {
			return &CorruptError{f.name, 0, fmt.Sprintf("file %d before it is missing", f.seq-1)}
		}
	}
	if s.mark > seq {
		return &CorruptError{files[end].name, off, fmt.Sprintf("frame %d is missing or damaged, although all frames below %d were durable", seq, s.mark)}
	}
	return nil
}

func (f *scanned) frameAt(off int64, seq uint64) (frame, bool) {
	i, ok := slices.BinarySearchFunc(f.frames, off, func(fr frame, o int64) int { return int(fr.offset - o) })
	if !ok || f.frames[i].seq != seq {
		return frame{}, false
	}
	return f.frames[i], true
}

// readFile finds every good frame of a file, also behind bad ones.
func (s *Scan) readFile(f *scanned) error {
	data, err := vfs.ReadFile(s.fsys, f.name)
	if err != nil {
		return err
	}
	f.size = int64(len(data))
	if f.head, f.err = decodeHead(data); f.err != nil {
		return nil
	}
	switch {
	case f.head.file != f.seq:
		f.err = fmt.Errorf("its head says file %d", f.head.file)
	case f.head.storage != s.storage:
		f.err = fmt.Errorf("it belongs to another data folder, %s", f.head.storage)
	}
	if f.err != nil {
		return nil
	}
	f.frames, f.checks = findFrames(data, f.head.salt)
	return nil
}

// findFrames walks from frame to frame, and byte by byte where there is none:
// what lies behind a bad frame is evidence, in its marks.
func findFrames(data []byte, s salt) (frames, checks []frame) {
	off := int64(firstFrame)
	known, salted := sums{data: data}, record.Checksum(s[:])
	for off+frameHead <= int64(len(data)) {
		f, sum, ok := parseHead(data[off:])
		if !ok || known.more(salted, off+8, off+f.bytes) != sum {
			off = nextCandidate(data, off+1)
			continue
		}
		f.offset = off
		whole := data[off : off+f.bytes]
		checkpoint := false
		if entries(whole, func(_ int64, t Type, p []byte) error {
			checkpoint = checkpoint || t == Checkpoint && len(p) >= cutBytes
			return nil
		}) != nil {
			off = nextCandidate(data, off+1)
			continue
		}
		frames = append(frames, f)
		if checkpoint {
			checks = append(checks, f)
		}
		off += f.bytes
	}
	return frames, checks
}

// nextCandidate skips bytes that cannot begin a frame: the reserved word and
// the upper halves of small numbers are zero in every real one.
func nextCandidate(data []byte, off int64) int64 {
	le := binary.LittleEndian
	for ; off+frameHead <= int64(len(data)); off++ {
		if le.Uint64(data[off:]) == 0 { // most of a file is zeros, most of the time
			off = max(off, skipZeros(data, off)-3) // a length may begin with zeros of its own
		}
		if off+frameHead > int64(len(data)) {
			break
		}
		if n := le.Uint32(data[off:]); n < frameHead || int64(n) > int64(len(data))-off {
			continue
		}
		if le.Uint32(data[off+28:]) == 0 && le.Uint64(data[off+16:]) <= le.Uint64(data[off+8:]) {
			return off
		}
	}
	return off
}

// skipZeros returns where the first word that is not zero begins, at off or a
// multiple of eight bytes behind it; less than a word from the end there is none.
func skipZeros(data []byte, off int64) int64 {
	for off+8 <= int64(len(data)) && binary.LittleEndian.Uint64(data[off:]) == 0 {
		off += 8
	}
	return off
}

func (s *Scan) readCheckpoint(f *scanned, fr frame) (payload []byte, cut Cut, err error) {
	err = s.eachEntry(link{f, fr}, func(_ Position, t Type, p []byte) error {
		if t == Checkpoint {
			cut, payload, _ = TakeCut(p)
		}
		return nil
	})
	return payload, cut, err
}

func (s *Scan) eachEntry(l link, visit func(Position, Type, []byte) error) error {
	f, err := s.fsys.Open(l.file.name)
	if err != nil {
		return err
	}
	err = readEntries(f, l, visit)
	return errors.Join(err, f.Close())
}

func readEntries(f vfs.File, l link, visit func(Position, Type, []byte) error) error {
	b := make([]byte, l.frame.bytes)
	if _, err := f.ReadAt(b, l.frame.offset); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if again, ok := parseFrame(b, l.file.head.salt); !ok || again.seq != l.frame.seq {
		return fmt.Errorf("%s changed while it was read", l.file.name)
	}
	return entries(b, func(end int64, t Type, p []byte) error {
		return visit(at(l.file.seq, l.frame.offset+end), t, p)
	})
}

// State is the payload of the checkpoint that replay starts from, without its cut.
func (s *Scan) State() []byte { return s.checkpoint }

// From is where replay starts.
func (s *Scan) From() Cut { return s.from }

// End is where the journal ends.
func (s *Scan) End() Cut { return s.end }

// Files is the number of files that are still needed.
func (s *Scan) Files() int { return len(s.files) }

// Frames is the number of frames that replay reads.
func (s *Scan) Frames() int { return len(s.chain) }

// Empty reports that there has never been a journal here.
func (s *Scan) Empty() bool { return len(s.files) == 0 && len(s.old) == 0 }

// Replay visits every entry from the last checkpoint's cut to the end, strictly
// in order. The position is the one behind the entry; payload may be kept.
func (s *Scan) Replay(visit func(end Position, t Type, payload []byte) error) error {
	var open vfs.File
	var name string
	var failed error
	for _, l := range s.chain {
		if l.file.name != name {
			if open != nil {
				failed = open.Close()
			}
			f, err := s.fsys.Open(l.file.name)
			if err = errors.Join(err, failed); err != nil {
				return err
			}
			open, name = f, l.file.name
		}
		if err := readEntries(open, l, visit); err != nil {
			return errors.Join(err, open.Close())
		}
	}
	if open != nil {
		return open.Close()
	}
	return nil
}
