package storage

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/testkit/faultfs"
)

// TEST_TIDEWIRE_SEEDS sets how many seeds run, TEST_TIDEWIRE_SEED runs one alone.
func seeds(t *testing.T, usual int) (from, to uint64) {
	number := func(name string) (uint64, bool) {
		text := os.Getenv(name)
		if text == "" {
			return 0, false
		}
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return n, true
	}
	if n, ok := number("TEST_TIDEWIRE_SEED"); ok {
		return n, n + 1
	}
	if n, ok := number("TEST_TIDEWIRE_SEEDS"); ok {
		return 0, n
	}
	if testing.Short() {
		usual /= 10
	}
	return 0, uint64(usual)
}

func seeded(n uint64) *rand.Rand { return rand.New(rand.NewPCG(n, 3)) }

// TestPowerCutsLoseNothingAcknowledged runs random work over several logs,
// cuts the power (or kills the process) before a random operation of the disk,
// and holds what the next start finds against what was acknowledged.
//
// A seed fixes the work and the disk's whims; how goroutines meet is not fixed,
// so run a failing seed with -count until it shows.
func TestPowerCutsLoseNothingAcknowledged(t *testing.T) {
	from, to := seeds(t, 120)
	var reached sync.Map
	for seed := from; seed < to; seed++ {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(seed, &reached)
			if err := w.run(); err != nil {
				t.Errorf("seed %d: %v\nreplay: TEST_TIDEWIRE_SEED=%d go test -run TestPowerCuts -count 20 ./broker/storage", seed, err, seed)
			}
		})
		if t.Failed() {
			return
		}
	}
	if to-from >= 100 {
		for _, state := range []string{"power cut", "kill", "checkpoint found", "torn tail", "retention", "truncation", "deletion", "roll", "snapshot used", "tail replayed", "clean stop", "journal recycled"} {
			if _, ok := reached.Load(state); !ok {
				t.Errorf("no seed reached the state %q: the simulation does not test it", state)
			}
		}
	}
}

// world is one disk and what its clients were promised.
type world struct {
	r       *rand.Rand
	disk    *faultfs.Memory
	life    ident.Epoch
	reached *sync.Map
	cfg     Config

	mu     sync.Mutex
	parts  map[int]*promised
	opened int // parts ever made
	pulled *faultfs.Memory
	frozen map[int]*promised // parts as they were promised when the plug was pulled
}

// promised is what clients know of a partition.
type promised struct {
	epochs  []ident.Epoch // of every acknowledged offset
	start   ident.Offset  // moved there durably
	voids   []voidAt      // acknowledged
	dying   bool          // its deletion has begun
	deleted bool          // and has ended
}

type voidAt struct {
	at  ident.Offset
	seq int64
}

func (p *promised) clone() *promised {
	c := *p
	c.epochs = append([]ident.Epoch(nil), p.epochs...)
	c.voids = append([]voidAt(nil), p.voids...)
	return &c
}

func newWorld(seed uint64, reached *sync.Map) *world {
	r := rand.New(rand.NewPCG(seed, 1))
	w := &world{r: r, disk: faultfs.New(0), reached: reached, parts: map[int]*promised{}}
	pick := func(n ...int64) int64 { return n[r.IntN(len(n))] }
	w.cfg = Config{
		Dir: "/data", JournalFileBytes: pick(12<<10, 24<<10, 64<<10), CheckpointBytes: pick(4<<10, 30<<10),
		FlushBytes: int(pick(1, 700, 8<<10)), FlushAge: time.Duration(pick(5, 50, 2000)) * time.Millisecond,
		IndexBytes: pick(100, 900), OpenFiles: int(pick(1, 3, 100)), MinFreeBytes: 1,
		IdleMark: time.Duration(pick(5, 300)) * time.Millisecond, frameBytes: int(pick(0, 1, 500)),
		syncsAtOnce: int(pick(-1, 1, 100)), // always, often, never
	}
	for range 1 + r.IntN(4) {
		w.newPart()
	}
	return w
}

func (w *world) newPart() {
	w.parts[w.opened] = &promised{}
	w.opened++
}

func (w *world) saw(state string) { w.reached.Store(state, true) }

func (w *world) run() error {
	for range 2 + w.r.IntN(4) {
		w.life++
		if err := w.live(); err != nil {
			return fmt.Errorf("life %d: %w", w.life, err)
		}
	}
	return nil
}

// live is one life of the process, from its start to its end.
func (w *world) live() error {
	w.pulled = nil
	fsys := faultfs.Wrap(w.disk)
	power := w.r.IntN(3) > 0
	disk := w.disk
	fuse, crash := w.r.IntN(1200), w.r.IntN(5) > 0
	if w.r.IntN(3) == 0 {
		fuse = w.r.IntN(60) // in the middle of the start
	}
	onlySyncs := w.r.IntN(2) == 0 // where most is at stake: written, and not synced yet
	if onlySyncs {
		fuse = w.r.IntN(100)
	}
	whim := rand.New(rand.NewPCG(w.r.Uint64(), 2))
	n := 0
	fsys.SetHook(func(op faultfs.Op, _ string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if onlySyncs && op != faultfs.OpSync && op != faultfs.OpSyncAll {
			return
		}
		if n++; n == fuse && crash {
			w.pull(disk, power, whim)
		}
	})
	cfg := w.cfg
	cfg.FS = fsys
	s, err := Open(cfg)
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	if s.ReadOnly() != nil {
		return fmt.Errorf("start: %w", s.ReadOnly())
	}
	run := run(s)
	err = w.check(s)
	if err == nil {
		err = w.work(s)
	}
	if err == nil && !crash {
		w.saw("clean stop")
		if err = run.close(); err == nil {
			w.mu.Lock()
			w.pull(disk, true, whim) // a clean stop survives a power cut, too
			w.mu.Unlock()
		}
	} else {
		w.mu.Lock()
		w.pull(disk, power, whim)
		w.mu.Unlock()
		if e := run.close(); err == nil && e != nil {
			err = e
		}
	}
	if err != nil {
		return err
	}
	w.disk, w.parts = w.pulled, w.frozen
	return nil
}

// pull takes the disk as it is at this moment, and what was promised by it.
func (w *world) pull(disk *faultfs.Memory, power bool, whim *rand.Rand) {
	if w.pulled != nil {
		return
	}
	w.frozen = map[int]*promised{}
	for n, p := range w.parts {
		w.frozen[n] = p.clone()
	}
	if power {
		w.saw("power cut")
		w.pulled = disk.CrashClone(whim)
	} else {
		w.saw("kill")
		w.pulled = disk.KillClone()
	}
}

// check holds a store that was just opened against the promises, and takes what
// it found beyond them for granted from now on.
func (w *world) check(s *Store) error {
	// Nobody else changes promises now, but the plug may be pulled: work on
	// copies and put them in place at the end.
	parts := map[int]*promised{}
	for n, p := range w.parts {
		parts[n] = p.clone()
	}
	found := map[ident.Partition]bool{}
	for _, p := range s.Found() {
		found[p] = true
	}
	for n, p := range parts {
		if p.deleted && found[part(n)] {
			return fmt.Errorf("partition %d came back from the dead", n)
		}
		if p.dying && !found[part(n)] {
			p.deleted = true
		}
		p.dying = false
		if p.deleted {
			continue
		}
		l, err := s.Log(part(n), LogConfig{})
		if err != nil {
			return err
		}
		if err := w.checkLog(l, p); err != nil {
			return fmt.Errorf("partition %d: %w", n, err)
		}
	}
	w.mu.Lock()
	w.parts = parts
	w.mu.Unlock()
	return nil
}

func (w *world) checkLog(l *Log, p *promised) error {
	if err := l.Damage(); err != nil {
		return err
	}
	start, end := l.Start(), l.End()
	if int(end) < len(p.epochs) {
		return fmt.Errorf("lost: the log ends at %d, acknowledged are %d", end, len(p.epochs))
	}
	if start < p.start {
		return fmt.Errorf("the start fell from %d to %d", p.start, start)
	}
	if next, err := readAll(l, 700); err != nil {
		return fmt.Errorf("read at %d of [%d,%d): %w", next, start, end, err)
	}
	seen := make([]ident.Epoch, start, end)
	var last record.Header
	voids := map[voidAt]bool{}
	err := l.Fold(start, func(b record.Batch) error {
		h := b.Header()
		if h.Epoch < last.Epoch || h.Timestamp < last.Timestamp {
			return fmt.Errorf("epoch or time falls at %d", h.Base)
		}
		last = h
		for range h.Span {
			seen = append(seen, h.Epoch)
		}
		if h.Span == 0 {
			it := b.Entries()
			it.Next()
			voids[voidAt{h.Base, it.Entry().Sequence}] = true
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("fold: %w", err)
	}
	for o := int(start); o < len(p.epochs); o++ {
		if seen[o] != p.epochs[o] {
			return fmt.Errorf("wrong: offset %d is of epoch %d, acknowledged was epoch %d", o, seen[o], p.epochs[o])
		}
	}
	for _, v := range p.voids {
		if v.at > start && !voids[v] {
			return fmt.Errorf("lost: the void of sequence %d at %d", v.seq, v.at)
		}
	}
	// Indexes and history agree with a plain scan.
	for o := start; o < end; o++ {
		if _, e := l.EpochEnd(seen[o]); e <= o {
			return fmt.Errorf("epoch %d ends at %d, but offset %d is of it", seen[o], e, o)
		}
	}
	if at, state := l.Recovered(); state != nil {
		if at < start || at > end || len(state) > 0 && ident.Offset(binary.LittleEndian.Uint64(state)) != at {
			return fmt.Errorf("the snapshot at %d of [%d,%d) holds %x", at, start, end, state)
		}
		w.saw("snapshot used")
	}
	copy(seen, p.epochs[:min(len(p.epochs), int(start))])
	p.epochs, p.start = seen, start
	l.mu.Lock()
	if len(l.tail) > 0 {
		w.saw("tail replayed")
	}
	if len(l.segs) > 1 {
		w.saw("roll")
	}
	l.mu.Unlock()
	if l.store.checkpointed {
		w.saw("checkpoint found")
	}
	if l.store.torn {
		w.saw("torn tail")
	}
	if l.store.journal.Recycled() > 0 {
		w.saw("journal recycled")
	}
	return nil
}

// work does random things.
func (w *world) work(s *Store) error {
	logs := map[int]*Log{}
	open := func(n int) (*Log, error) {
		if l := logs[n]; l != nil {
			return l, nil
		}
		l, err := s.Log(part(n), LogConfig{SegmentBytes: 1 + w.r.Int64N(3000), RetentionBytes: 2000 + w.r.Int64N(4000)})
		if err != nil {
			return nil, err
		}
		l.SetSnapshotter(func() (ident.Offset, []byte) {
			end := l.End()
			if w.life%2 == 0 && end%3 == 0 {
				return end, nil
			}
			return end, binary.LittleEndian.AppendUint64(nil, uint64(end))
		})
		logs[n] = l
		return l, nil
	}
	for range w.r.IntN(250) {
		w.mu.Lock()
		pulled := w.pulled != nil
		n := w.r.IntN(w.opened)
		p := w.parts[n]
		deleted := p == nil || p.deleted // or made after the plug was pulled in the last life
		w.mu.Unlock()
		if pulled {
			return nil
		}
		if deleted {
			continue
		}
		l, err := open(n)
		if err != nil {
			return err
		}
		if err := w.step(s, l, p, n); err != nil {
			return fmt.Errorf("partition %d: %w", n, err)
		}
	}
	return nil
}

func (w *world) step(s *Store, l *Log, p *promised, n int) error {
	switch k := w.r.IntN(100); {
	case k < 60:
		w.append(l, p)
	case k < 66:
		time.Sleep(time.Duration(w.r.IntN(400)) * time.Millisecond)
	case k < 80:
		return w.read(l)
	case k < 85:
		w.mu.Lock()
		hw := ident.Offset(len(p.epochs))
		w.mu.Unlock()
		before := l.Start()
		drop := func() error { return l.Retain(time.Now(), hw) }
		if below := before + 1; below <= hw && w.r.IntN(2) == 0 {
			below += ident.Offset(w.r.Int64N(int64(hw-below) + 1))
			drop = func() error { return l.Purge(below, hw) }
			w.saw("purge")
		}
		if err := drop(); err != nil {
			return nil // the plug was pulled, and the store is going down
		}
		w.mu.Lock()
		p.start = l.Start()
		w.mu.Unlock()
		if l.Start() > before {
			w.saw("retention")
		}
		if l.Start() > hw {
			return fmt.Errorf("retention passed hw %d: start %d", hw, l.Start())
		}
	case k < 88:
		synctest.Wait() // nothing of this log is in flight
		to := l.Start() + ident.Offset(w.r.Int64N(int64(l.End()-l.Start())+1))
		begin := w.batchStart(l, to)
		w.mu.Lock()
		p.epochs = p.epochs[:min(len(p.epochs), begin)]
		keep := p.voids[:0]
		for _, v := range p.voids {
			if int(v.at) < len(p.epochs) {
				keep = append(keep, v)
			}
		}
		p.voids = keep
		w.mu.Unlock()
		if err := l.TruncateTo(record.At(to)); err != nil {
			return err
		}
		w.saw("truncation")
	case k < 90 && w.r.IntN(4) == 0:
		w.mu.Lock()
		p.dying = true
		p.epochs, p.voids = nil, nil // it may be gone at any moment, or whole
		w.mu.Unlock()
		if err := s.Delete(part(n)); err != nil {
			return err
		}
		w.mu.Lock()
		p.deleted = true
		w.newPart()
		w.mu.Unlock()
		w.saw("deletion")
	default:
		s.kickCheckpoint()
	}
	return nil
}

// batchStart is the offset at which the batch that holds to begins.
func (w *world) batchStart(l *Log, to ident.Offset) int {
	if to >= l.End() {
		return int(to)
	}
	raw, err := l.Read(to, l.End(), 1)
	if err != nil {
		return int(l.Start())
	}
	return int(record.Batch(raw).Header().Base)
}

func (w *world) append(l *Log, p *promised) {
	size := 1 + w.r.IntN(120)
	ms := max(l.LastTimestamp(), time.Now().UnixMilli())
	base := l.End()
	if w.r.IntN(10) == 0 {
		seq := int64(w.r.Uint64() >> 12)
		w.take(l, voids(l.part, w.life, base, ms, seq), func(err error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if err == nil && !p.dying {
				p.voids = append(p.voids, voidAt{base, seq})
			}
		})
		return
	}
	count := 1 + w.r.IntN(6)
	epoch := w.life
	w.take(l, batch(l.part, epoch, base, ms, count, size), func(err error) {
		if err != nil {
			return
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if p.dying {
			return // nothing is promised any more
		}
		if int(base) != len(p.epochs) {
			panic(fmt.Sprintf("offset %d is acknowledged after offset %d", base, len(p.epochs)))
		}
		for range count {
			p.epochs = append(p.epochs, epoch)
		}
	})
}

// take appends; a refusal can only mean that the store is going down.
func (w *world) take(l *Log, b record.Batch, done func(error)) {
	if err := l.Append(b, nil, done); err != nil {
		done(err)
	}
}

func (w *world) read(l *Log) error {
	start, end := l.Start(), l.End()
	from := start + ident.Offset(w.r.Int64N(int64(end-start)+1))
	raw, err := l.Read(from, end, w.r.IntN(2000))
	if fault.Is(err, fault.OffsetExpired) && l.Start() > from {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read at %d of [%d,%d): %w", from, start, end, err)
	}
	next, err := checkBatches(raw, l.part, from)
	if err == nil && next == from && from < end {
		err = fmt.Errorf("nothing to read at %d of [%d,%d)", from, start, end)
	}
	return err
}
