package storage

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"tidewire/broker/journal"
	"tidewire/internal/ident"
	"tidewire/internal/vfs"
)

// Open opens a data folder, or founds it, and recovers every log. Nothing is
// written to segments before Run. An error means that nothing can be served; a
// damaged log or a corrupt journal is no such error, see Log.Damage and
// Store.ReadOnly.
func Open(cfg Config) (*Store, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("storage config: %w", err)
	}
	if err := vfs.MkdirAll(cfg.FS, cfg.Dir); err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	lock, err := cfg.FS.Lock(lockPath(cfg.Dir))
	if errors.Is(err, vfs.ErrLocked) {
		return nil, fmt.Errorf("data folder %s is in use by another process", cfg.Dir)
	}
	if err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	s := &Store{
		cfg: cfg, log: cfg.Logger, lock: lock,
		flushKick: make(chan struct{}, 1), checkKick: make(chan struct{}, 1),
		failed: make(chan struct{}), damageNews: make(chan struct{}, 1),
	}
	s.disk.began = time.Now()
	s.disk.asked.Store(-int64(freeEvery) - 1)
	s.Free() // known before anybody is admitted, or is refused by a 0
	s.buffers.New = func() any { return new([]byte) }
	s.forgetLogs()
	if s.next, err = uuid.NewRandom(); err == nil {
		err = s.open()
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return s, nil
}

// forgetLogs leaves nothing of what was known of logs.
func (s *Store) forgetLogs() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.logs, s.gone = map[ident.Partition]*Log{}, map[ident.Partition]fate{}
	s.dirty, s.dirs = map[*Log]time.Time{}, map[string]bool{}
	s.unflushed.Store(0)
	s.uncounted.Store(false)
	s.files = newFileCache(s.cfg.FS, s.cfg.OpenFiles, s.fail, s.oweWhole)
	s.indexes = newIndexCache(s.cfg.IndexCacheBytes)
}

func (s *Store) open() error {
	var err error
	if s.metrics, err = newMetrics(s.cfg.Registerer, s); err != nil {
		return err
	}
	s.meta.file, err = readMeta(s.cfg.FS, s.cfg.Dir)
	if errors.Is(err, ErrNotFound) {
		err = s.found()
	} else if err == nil {
		// A former life may have written it and died before that was durable.
		err = s.cfg.FS.SyncDir(s.cfg.Dir)
	}
	if next := s.meta.file.Renewing; err == nil && next != uuid.Nil {
		s.metrics.corruption.Inc()
		s.log.Warn("the data folder was being begun anew when the node ended; it goes on with that", "next", next.String())
		err = s.renewFolder(next)
	}
	if err != nil {
		return err
	}
	return s.load()
}

// load reads what the folder holds.
func (s *Store) load() error {
	scan, err := journal.Read(s.cfg.FS, journalDir(s.cfg.Dir), s.ID())
	if err != nil {
		return fmt.Errorf("read the journal: %w", err)
	}
	if scan.Empty() && scan.Corrupt == nil {
		scan.Corrupt = &journal.CorruptError{File: journalDir(s.cfg.Dir), Reason: "there is no journal file, although this data folder had one"}
	}
	s.checkpointed, s.torn = scan.HasCheckpoint, scan.TornBytes > 0
	f, err := replay(s.cfg.FS, s.cfg.Dir, scan)
	if err != nil {
		return fmt.Errorf("replay the journal: %w", err)
	}
	strays, err := f.inspectAll(s.cfg.IndexBytes, scan.Corrupt != nil)
	if err != nil {
		return fmt.Errorf("check the segments: %w", err)
	}
	if scan.Corrupt != nil {
		s.readOnly = scan.Corrupt
		s.metrics.corruption.Inc()
		s.log.Error("the journal is corrupt: only what is proven is served, and nothing is written", "err", scan.Corrupt)
		s.adopt(f, scan.Corrupt)
		return nil
	}
	if scan.TornBytes > 0 {
		s.log.Info("the journal's end was torn by a crash; nothing of it was acknowledged", "bytes", scan.TornBytes, "at", scan.End().At.String())
	}
	jcfg := s.cfg.journal()
	jcfg.Storage, jcfg.Observe = s.ID(), s.committed
	if s.journal, err = journal.Open(jcfg, scan); err != nil {
		return fmt.Errorf("open the journal: %w", err)
	}
	if s.rounds != nil {
		s.journal.Hear(s.rounds)
	}
	if err := s.tidy(f, strays); err != nil {
		return fmt.Errorf("tidy the data folder: %w", err)
	}
	s.whole, err = s.cfg.FS.Whole(s.cfg.Dir)
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	s.adopt(f, nil)
	s.lookAgain()
	// A life that was killed early leaves a file with little in it: neither may
	// gather, or each start of a node that dies again and again takes longer.
	if s.journal.Bytes() > s.cfg.CheckpointBytes || s.journal.Files() > maxReplayFiles {
		s.kickCheckpoint()
	}
	return nil
}

// maxReplayFiles is how many journal files a start leaves as they are.
const maxReplayFiles = 3

// inspectors is how many logs are checked at once: it is mostly waiting.
const inspectors = 8

// inspectAll checks every log's folder. It returns the folders of partitions
// that neither checkpoint nor journal knows.
func (f *found) inspectAll(indexBytes int64, corrupt bool) (strays []string, err error) {
	unknown, strays, err := f.strangers()
	if err != nil {
		return nil, err
	}
	for _, l := range unknown {
		f.logs[l.part] = l
	}
	var g errgroup.Group
	g.SetLimit(inspectors)
	for _, l := range f.logs {
		g.Go(func() error { return l.inspect(f.fsys, f.dir, indexBytes) })
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	for _, l := range unknown {
		// What nothing proves to be ours is set aside, never deleted.
		if len(l.salvaged) == 0 && !corrupt {
			delete(f.logs, l.part)
			strays = append(strays, l.files.path)
		}
	}
	return strays, nil
}

// strangers lists folders that the journal does not know, as logs with nothing
// in them, and names under topics/ that are no partition's.
func (f *found) strangers() (unknown []*foundLog, strays []string, err error) {
	root := topicsDir(f.dir)
	if _, err := f.fsys.Stat(root); err != nil {
		return nil, nil, ignoreMissing(err)
	}
	topics, err := f.fsys.ReadDir(root)
	if err != nil {
		return nil, nil, err
	}
	for _, t := range topics {
		path := filepath.Join(root, t.Name)
		if !t.IsDir {
			strays = append(strays, path)
			continue
		}
		parts, err := f.fsys.ReadDir(path)
		if vfs.IsHarmed(err) {
			continue // whatever is known to be in it meets that itself
		}
		if err != nil {
			return nil, nil, err
		}
		for _, i := range parts {
			p, ok := parsePartition(t.Name, i.Name)
			switch {
			case !ok || !i.IsDir:
				strays = append(strays, filepath.Join(path, i.Name))
			case f.logs[p] == nil && !f.isOut(p):
				unknown = append(unknown, &foundLog{part: p})
			}
		}
	}
	return unknown, strays, nil
}

// adopt makes logs of what was found.
func (s *Store) adopt(f *found, corrupt *journal.CorruptError) {
	if corrupt != nil {
		s.gone = f.out
	}
	for p, fl := range f.logs {
		l := s.newLog(p)
		l.state = fl.state
		l.tail, l.durableTail = fl.tail, len(fl.tail)
		for _, it := range l.tail {
			it.log = l
			l.tailBytes += int64(len(it.batch))
		}
		l.readyBytes = l.tailBytes
		l.index.entries, l.index.last, l.index.any = fl.index, fl.indexLast, fl.indexAny
		l.indexed = fl.indexed
		l.dirMade = len(fl.segs) > 0 && fl.files.path != "" // then a checkpoint knows of the folder, and it is durable
		l.damage = fl.damage
		if len(l.tail) > 0 || fl.truncated || fl.tidied {
			l.changes++
		}
		if fl.uncounted {
			s.uncounted.Store(true)
		}
		if fl.truncated && len(l.segs) > 0 {
			l.unsynced.segment(l.segs[len(l.segs)-1].base)
		}
		if fl.files.path != "" && (fl.tidied || fl.truncated) {
			l.unsynced.folder()
		}
		s.logs[p] = l
		s.unflushed.Add(l.tailBytes)
		s.adoptSalvage(l, fl, corrupt)
		if l.damage != nil {
			s.metrics.corruption.Inc()
			s.damageFound()
			s.log.Error("a log is damaged", "partition", p.String(), "offset", int64(l.damage.Offset), "err", l.damage.Error())
		}
		if corrupt == nil && len(l.tail) > 0 {
			l.waiting = true
			s.flushSoon(l, false)
		}
	}
}

// adoptSalvage takes in batches that segments hold and the journal does not:
// segments only ever get what was durable, so these were acknowledged.
func (s *Store) adoptSalvage(l *Log, fl *foundLog, corrupt *journal.CorruptError) {
	for _, b := range fl.salvaged {
		if corrupt == nil {
			if err := l.Append(b, nil, func(error) {}); err != nil {
				s.log.Error("a salvaged batch was not taken", "partition", l.part.String(), "offset", int64(b.Header().Base), "err", err)
				break
			}
			continue
		}
		h := b.Header()
		l.tail = append(l.tail, &item{log: l, batch: b, head: h, at: l.nextPos()})
		l.durableTail++
		l.tailBytes += int64(len(b))
		l.extend(h)
	}
	if len(fl.salvaged) > 0 {
		s.log.Error("the journal lost batches that were acknowledged; they were found in the segments and are kept",
			"partition", l.part.String(), "batches", len(fl.salvaged), "offset", int64(l.next))
	}
	if corrupt != nil && l.damage == nil {
		l.damage = &Damage{Offset: l.next, File: corrupt.File, Pos: corrupt.Offset, Reason: "the journal is corrupt, so the log may have gone on: " + corrupt.Reason}
	}
}

// tidy removes what is provably left over from this store's own work, and sets
// aside what is not explained.
func (s *Store) tidy(f *found, strays []string) error {
	if err := vfs.MkdirAll(s.cfg.FS, topicsDir(s.cfg.Dir)); err != nil {
		return err
	}
	for p, fate := range f.out {
		err := s.putAway(partitionDir(s.cfg.Dir, p), fate)
		if vfs.IsHarmed(err) {
			s.linger(p, fate, err)
		} else if err != nil {
			return err
		}
	}
	for _, path := range strays {
		if err := s.setAside(path); vfs.IsHarmed(err) {
			s.log.Error("what is not known here cannot be set aside", "path", path, "err", err)
		} else if err != nil {
			return err
		}
	}
	for _, l := range f.logs {
		if err := s.tidyLog(l); vfs.IsHarmed(err) {
			l.damaged(&Damage{Offset: l.next, File: l.files.path, Reason: "the folder cannot be changed: " + why(err)})
		} else if err != nil {
			return fmt.Errorf("%s: %w", l.part, err)
		}
	}
	return nil
}

// tidyLog removes segments that the log's state does not name any more, and
// cuts what a truncation cut.
func (s *Store) tidyLog(l *foundLog) error {
	if l.damage != nil || l.files.path == "" {
		return nil // touch nothing of a damaged log
	}
	named := func(base ident.Offset) bool {
		return slices.ContainsFunc(l.segs, func(g segment) bool { return g.base == base })
	}
	for base := range l.files.segments {
		if named(base) || len(l.salvaged) > 0 {
			continue
		}
		l.tidied = true
		name := filepath.Join(l.files.path, offsetName(base, segmentSuffix))
		if base >= l.flushed || base < l.start {
			// Retention, a truncation or a crash before a checkpoint left it;
			// whatever of it counts is in the tail.
			if err := s.cfg.FS.Remove(name); err != nil {
				return err
			}
			continue
		}
		if err := s.setAside(name); err != nil {
			return err
		}
	}
	if n := len(l.segs); l.truncated && n > 0 && l.files.segments[l.segs[n-1].base] > l.segs[n-1].bytes {
		f, err := s.cfg.FS.OpenWrite(filepath.Join(l.files.path, offsetName(l.segs[n-1].base, segmentSuffix)))
		if err != nil {
			return err
		}
		if err := errors.Join(f.Truncate(l.segs[n-1].bytes), f.Sync(), f.Close()); err != nil {
			return err
		}
	}
	for base, size := range l.files.indexes {
		name := filepath.Join(l.files.path, offsetName(base, indexSuffix))
		active := len(l.segs) > 0 && l.segs[len(l.segs)-1].base == base
		switch {
		case !named(base) || active && l.indexed == 0:
			if err := s.cfg.FS.Remove(name); err != nil {
				return err
			}
		case active && size != int64(l.indexed)*indexEntryBytes:
			// Entries of what a crash or a truncation took: once the segment has
			// grown over their places they would look right.
			if err := writeIndex(s.cfg.FS, name, 0, l.indexed, nil); err != nil {
				return err
			}
		}
	}
	return nil
}
