package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"tidewire/broker/journal"
	"tidewire/internal/ident"
	"tidewire/internal/record"
)

// Types of journal entries. Their payloads:
//
//	batch       the batch as it is
//	truncate    partition, offset to cut at, what it does to the segments, then voids and
//	            epoch of what is left; an older format ended before those. With that a
//	            producer state goes which is as of a place behind what is left
//	log start   partition, new start, producer snapshot refs, then voids at the start
//	            that are gone, then what is committed; older formats ended before those
//	delete      partition
//	aside       partition: it goes to quarantine
//	restart     partition, new start with its voids, one producer snapshot ref: all before is dropped
//	begin       partition: what was taken out of that name is dead, this is another log
//	checkpoint  cut, then the states of all logs; see encodeCheckpoint
const (
	entryBatch    journal.Type = 2
	entryTruncate journal.Type = 3
	entryLogStart journal.Type = 4
	entryDelete   journal.Type = 5
	entryAside    journal.Type = 6
	entryRestart  journal.Type = 7
	entryBegin    journal.Type = 8
)

var errDecode = errors.New("malformed")

const partitionBytes = 20

// fate is what becomes of the folder of a partition that was taken out.
type fate uint8

const (
	removed fate = iota
	setAside
)

const outBytes = partitionBytes + 1

func appendPartition(b []byte, p ident.Partition) []byte {
	b = append(b, p.Topic[:]...)
	return binary.LittleEndian.AppendUint32(b, uint32(p.Index))
}

// decoder takes numbers off a slice; after the first fault it gives zeros.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) take(n int) []byte {
	if n < 0 || n > len(d.b) {
		d.bad, d.b = true, nil
		return make([]byte, 16) // no caller takes more than that
	}
	out := d.b[:n]
	d.b = d.b[n:]
	return out
}

func (d *decoder) u32() uint32 { return binary.LittleEndian.Uint32(d.take(4)) }
func (d *decoder) u64() uint64 { return binary.LittleEndian.Uint64(d.take(8)) }

func (d *decoder) offset() ident.Offset {
	v := d.u64()
	if int64(v) < 0 {
		d.bad = true
		return 0
	}
	return ident.Offset(v)
}

// voids reads a number of batches.
func (d *decoder) voids() int {
	n := int(d.u32())
	if n > math.MaxInt32 {
		d.bad = true
		return 0
	}
	return n
}

// end checks that nothing is left.
func (d *decoder) end() { d.bad = d.bad || len(d.b) > 0 }

// count reads a length and checks it against what is left.
func (d *decoder) count(each int) int { return d.fits(d.u32(), each) }

func (d *decoder) fits(count uint32, each int) int {
	n := int(count)
	if n*each > len(d.b) {
		d.bad = true
		return 0
	}
	return n
}

func (d *decoder) partition() (p ident.Partition) {
	copy(p.Topic[:], d.take(16))
	p.Index = ident.Index(d.u32())
	return p
}

func (d *decoder) snaps() (refs []snapshotRef) {
	for range d.count(16) {
		refs = append(refs, snapshotRef{d.offset(), d.u32(), d.u32()})
	}
	return refs
}

func encodeTruncate(p ident.Partition, to record.Position, c segmentCut) []byte {
	le := binary.LittleEndian
	b := le.AppendUint64(appendPartition(nil, p), uint64(to.Offset))
	b = le.AppendUint64(b, uint64(c.end.Offset))
	b = le.AppendUint64(b, uint64(c.base))
	b = le.AppendUint64(b, uint64(c.pos))
	b = le.AppendUint64(b, uint64(c.lastMs))
	b = le.AppendUint32(b, uint32(to.Voids))
	b = le.AppendUint32(b, uint32(c.end.Voids))
	return le.AppendUint32(b, uint32(c.epoch))
}

// truncate reads the entry. counted is false for one of the older format, which
// cut all voids at its offset and did not say how many are left before it.
func (d *decoder) truncate() (to record.Position, c segmentCut, counted bool) {
	to.Offset = d.offset()
	c = segmentCut{end: record.At(d.offset()), base: d.offset(), pos: int64(d.offset()), lastMs: int64(d.u64())}
	if len(d.b) == 0 {
		return to, c, false
	}
	to.Voids, c.end.Voids, c.epoch = d.voids(), d.voids(), ident.Epoch(d.u32())
	d.end()
	return to, c, true
}

// encodeStart keeps a start with the producer states that a log has and what is
// committed of it.
func encodeStart(p ident.Partition, start record.Position, snaps []snapshotRef, committed ident.Offset) []byte {
	b := binary.LittleEndian.AppendUint64(appendPartition(nil, p), uint64(start.Offset))
	b = binary.LittleEndian.AppendUint32(appendSnaps(b, snaps), uint32(start.Voids))
	return binary.LittleEndian.AppendUint64(b, uint64(committed))
}

func (d *decoder) logStart() (start record.Position, snaps []snapshotRef, committed ident.Offset) {
	start.Offset, snaps = d.offset(), d.snaps()
	if len(d.b) > 0 {
		start.Voids = d.voids()
	}
	if len(d.b) > 0 {
		committed = d.offset()
	}
	d.end()
	return start, snaps, committed
}

func appendSnaps(b []byte, refs []snapshotRef) []byte {
	le := binary.LittleEndian
	b = le.AppendUint32(b, uint32(len(refs)))
	for _, r := range refs {
		b = le.AppendUint64(b, uint64(r.at))
		b = le.AppendUint32(b, r.bytes)
		b = le.AppendUint32(b, r.sum)
	}
	return b
}

func appendState(b []byte, p ident.Partition, s *state) []byte {
	le := binary.LittleEndian
	b = appendPartition(b, p)
	b = le.AppendUint64(b, uint64(s.applied))
	b = le.AppendUint64(b, uint64(s.start))
	b = le.AppendUint64(b, uint64(s.flushed))
	b = le.AppendUint32(b, uint32(s.epoch))
	b = le.AppendUint64(b, uint64(s.lastMs))
	b = le.AppendUint32(b, uint32(s.startVoids))
	b = le.AppendUint32(b, uint32(s.flushedVoids))
	b = le.AppendUint64(b, uint64(s.startMs))
	b = le.AppendUint64(b, uint64(s.ahead))
	b = le.AppendUint64(b, uint64(s.committed))
	b = le.AppendUint32(b, uint32(len(s.segs)))
	for i := range s.segs {
		b = le.AppendUint64(b, uint64(s.segs[i].base))
		b = le.AppendUint64(b, uint64(s.segs[i].bytes))
		b = le.AppendUint64(b, uint64(s.segs[i].firstMs))
		b = le.AppendUint64(b, uint64(s.segs[i].lastMs))
	}
	b = le.AppendUint32(b, uint32(len(s.epochs)))
	for _, e := range s.epochs {
		b = le.AppendUint32(b, uint32(e.epoch))
		b = le.AppendUint64(b, uint64(e.at.Offset))
		b = le.AppendUint32(b, uint32(e.at.Voids))
	}
	return appendSnaps(b, s.snaps)
}

// state reads what appendState wrote. A state that is not counted is of the oldest
// format, in which epochs, starts and ends were offsets alone; the one after it did not
// say what is committed.
func (d *decoder) state(counted, committed bool) (ident.Partition, *state) {
	p := d.partition()
	s := &state{applied: journal.Position(d.u64()), start: d.offset(), flushed: d.offset(), epoch: ident.Epoch(d.u32()), lastMs: int64(d.u64())}
	if counted {
		s.startVoids, s.flushedVoids, s.startMs, s.ahead = d.voids(), d.voids(), int64(d.u64()), d.offset()
		if committed {
			s.committed = d.offset()
		}
	}
	s.setNext(s.flushedPos())
	at := ident.Offset(-1)
	for range d.count(32) {
		g := segment{d.offset(), int64(d.u64()), int64(d.u64()), int64(d.u64())}
		if g.bytes < 0 || g.base <= at {
			d.bad = true
		}
		at = g.base
		s.segs = append(s.segs, g)
	}
	if !counted && len(s.segs) == 0 {
		s.startMs = s.lastMs
	}
	if at > s.flushed || s.flushedPos().Before(s.startPos()) {
		d.bad = true
	}
	for range d.count(12) {
		e := epochStart{ident.Epoch(d.u32()), record.At(d.offset()), !counted}
		if counted {
			e.at.Voids = d.voids()
		}
		s.epochs = append(s.epochs, e)
	}
	s.snaps = d.snaps()
	return p, s
}

// encodeCheckpoint makes the payload of a checkpoint:
//
//	16 bytes the cut that replay starts from
//	4 bytes  number of logs, and the bits that say that their voids are counted, and
//	         that they say what is committed; then each: partition 20, applied 8, start
//	         8, end 8, epoch 4, timestamp 8, voids at the start 4 and at the end 4,
//	         timestamp before the start 8, offset of a producer state that is ahead 8,
//	         committed 8, segments, epochs, snapshots
//	4 bytes  number of partitions taken out whose folder may still be there,
//	         then each: partition 20, fate 1
//
// The frame around it carries the checksum.
func encodeCheckpoint(cut journal.Cut, marks []logMark, out map[ident.Partition]fate) []byte {
	le := binary.LittleEndian
	count, size := uint32(0), 0
	for _, m := range marks {
		if m.state != nil {
			count++
			size += len(m.state)
		}
	}
	b := journal.AppendCut(make([]byte, 0, 32+size+outBytes*len(out)), cut)
	b = le.AppendUint32(b, count|countedStates|committedStates)
	for _, m := range marks {
		b = append(b, m.state...)
	}
	b = le.AppendUint32(b, uint32(len(out)))
	for p, f := range out {
		b = append(appendPartition(b, p), byte(f))
	}
	return b
}

// countedStates marks a checkpoint whose states count voids, committedStates one whose
// states say what is committed as well.
const (
	countedStates   = 1 << 31
	committedStates = 1 << 30
)

// decodeCheckpoint reads what encodeCheckpoint wrote, without the cut.
func decodeCheckpoint(b []byte) (logs map[ident.Partition]*state, counted bool, out map[ident.Partition]fate, err error) {
	d := &decoder{b: b}
	number := d.u32()
	counted = number&countedStates != 0
	n := d.fits(number&^(countedStates|committedStates), partitionBytes+36)
	logs = make(map[ident.Partition]*state, n)
	for range n {
		p, s := d.state(counted, number&committedStates != 0)
		if _, twice := logs[p]; twice || d.bad {
			return nil, false, nil, fmt.Errorf("checkpoint: %w", errDecode)
		}
		logs[p] = s
	}
	n = d.count(outBytes)
	out = make(map[ident.Partition]fate, n)
	for range n {
		p := d.partition()
		out[p] = fate(d.take(1)[0])
		d.bad = d.bad || out[p] > setAside
	}
	if d.bad || len(d.b) > 0 || len(out) != n {
		return nil, false, nil, fmt.Errorf("checkpoint: %w", errDecode)
	}
	return logs, counted, out, nil
}
