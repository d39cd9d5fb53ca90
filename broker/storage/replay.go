package storage

import (
	"fmt"

	"tidewire/broker/journal"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/vfs"
)

// found is what a data folder says about its logs. It is made by reading alone.
type found struct {
	fsys vfs.FS
	dir  string
	logs map[ident.Partition]*foundLog
	out  map[ident.Partition]fate // taken out: they never come back
}

// foundLog is a log as checkpoint and journal describe it.
type foundLog struct {
	state
	part      ident.Partition
	tail      []*item
	truncated bool // a truncation was replayed: files may be longer than the state says
	uncounted bool // an older format left open how many voids stand at flushed and where epochs begin
	damage    *Damage

	tidied    bool         // its folder was changed at the start
	files     folder       // what its folder holds
	index     []indexEntry // of the active segment, found by checking it
	indexLast indexEntry
	indexAny  bool
	indexed   int
	salvaged  []record.Batch // in segments, but not in the journal
}

// replay rebuilds the logs from the last checkpoint and the journal after it,
// strictly in order.
func replay(fsys vfs.FS, dir string, scan *journal.Scan) (*found, error) {
	r := &found{fsys: fsys, dir: dir, logs: map[ident.Partition]*foundLog{}, out: map[ident.Partition]fate{}}
	if scan.HasCheckpoint {
		states, counted, out, err := decodeCheckpoint(scan.State())
		if err != nil {
			return nil, err
		}
		for p, s := range states {
			if _, left := out[p]; !left {
				r.logs[p] = &foundLog{state: *s, part: p, uncounted: !counted}
			}
		}
		r.out = out
	}
	return r, scan.Replay(r.apply)
}

func (r *found) isOut(p ident.Partition) bool { _, out := r.out[p]; return out }

// apply takes in one entry.
func (r *found) apply(end journal.Position, t journal.Type, payload []byte) error {
	if t == journal.Checkpoint {
		return nil
	}
	var p ident.Partition
	d := &decoder{b: payload}
	var head record.Header
	if t == entryBatch {
		h, err := record.ParseHeader(payload)
		if err != nil {
			return fmt.Errorf("journal entry at %s: %w", end, err)
		}
		p, head = h.Partition, h
	} else {
		p = d.partition()
	}
	if _, out := r.out[p]; out && t != entryBegin {
		return nil // a dead partition stays dead, until its owner wants another one of that name
	}
	delete(r.out, p)
	l := r.logs[p]
	if l == nil {
		l = &foundLog{part: p}
		r.logs[p] = l
	}
	if end <= l.applied {
		return nil
	}
	switch t {
	case entryBatch:
		l.takeIn(end, head, payload)
	case entryTruncate:
		to, cut, counted := d.truncate()
		if !d.bad {
			l.replayTruncate(to, cut, counted, end)
		}
	case entryLogStart:
		start, snaps, committed := d.logStart()
		if !d.bad {
			l.replayStart(start, snaps, committed)
		}
	case entryRestart:
		start, ref := d.restart()
		if !d.bad {
			l.tail, l.truncated, l.uncounted, l.damage = nil, true, false, nil
			l.begin(start, ref)
			l.applied = end
		}
	case entryBegin:
	case entryDelete, entryAside:
		r.out[p] = removed
		if t == entryAside {
			r.out[p] = setAside
		}
		delete(r.logs, p)
	default:
		return fmt.Errorf("journal entry at %s is of type %d, which this program does not know", end, t)
	}
	if d.bad {
		return fmt.Errorf("journal entry at %s: %w", end, errDecode)
	}
	return nil
}

// takeIn puts a batch behind the tail.
func (l *foundLog) takeIn(end journal.Position, h record.Header, payload []byte) {
	if l.damage != nil {
		return
	}
	if h.Base != l.next || h.Length != len(payload) || h.Epoch < l.epoch {
		l.damage = &Damage{
			Offset: l.next, File: "journal", Pos: end.Offset(),
			Reason: fmt.Sprintf("the journal goes on at offset %d, epoch %d at %s", h.Base, h.Epoch, end),
		}
		return
	}
	// The payload shares a buffer with its whole frame: keep only the batch.
	b := append(record.Batch(nil), payload...)
	l.tail = append(l.tail, &item{batch: b, head: h, at: l.nextPos(), end: end})
	l.extend(h)
}

func (l *foundLog) replayStart(start record.Position, snaps []snapshotRef, committed ident.Offset) {
	if l.nextPos().Before(start) { // everything was dropped
		l.tail = nil
		l.setFlushed(start)
		l.setNext(start)
	}
	for len(l.tail) > 0 && !start.Before(l.tail[0].after()) {
		// Only what is in segments is dropped, so these were written to one
		// that is gone again, or whose beginning is.
		it := l.tail[0]
		l.setFlushed(it.after())
		l.applied, l.startMs = it.end, it.head.Timestamp
		l.tail = l.tail[1:]
	}
	l.advance(start)
	l.committed = max(l.committed, committed)
	l.addSnaps(snaps...) // the checkpoint before may be newer than the entry
}

func (l *foundLog) replayTruncate(to record.Position, cut segmentCut, counted bool, end journal.Position) {
	l.truncated = true
	for n := len(l.tail); n > 0 && to.Before(l.tail[n-1].after()); n-- {
		l.tail = l.tail[:n-1]
	}
	before := l.flushedPos()
	l.cutSegments(cut)
	l.uncounted = l.uncounted || !counted && l.flushedPos() != before
	l.settle(cut, lastOf(l.tail))
	if len(l.tail) == 0 {
		l.applied = end
	}
}

func lastOf(tail []*item) *item {
	if len(tail) == 0 {
		return nil
	}
	return tail[len(tail)-1]
}

// settle corrects what depends on the end of a log after it was cut.
func (s *state) settle(c segmentCut, last *item) {
	// A producer state that the log was begun with is one like any other by now, or it is
	// of records that an unclean election has undone: what is committed is not cut.
	s.ahead = 0
	if last != nil {
		s.setNext(last.after())
		s.lastMs = last.head.Timestamp
		s.cutEpochs(last.head.Epoch)
	} else {
		s.setNext(s.flushedPos())
		s.lastMs = s.startMs
		if n := len(s.segs); n > 0 {
			s.lastMs = s.segs[n-1].lastMs
		}
		s.cutEpochs(c.epoch)
	}
	s.cutSnaps()
}
