package storage

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/testkit/faultfs"
)

// plain is what a log should be: all batches it ever had behind its first place,
// of which those from start on are kept.
type plain struct {
	first   record.Position
	batches []record.Batch
	acked   int             // so many survive a crash
	start   record.Position // not below it after a crash
	most    record.Position // and not above this
	at      ident.Offset    // of the producer state that it was begun with
}

func (m plain) positions() (all []record.Position) {
	p := m.first
	for _, b := range m.batches {
		all = append(all, p)
		p = p.After(b.Header())
	}
	return append(all, p)
}

func (m plain) end() record.Position { all := m.positions(); return all[len(all)-1] }

func (m plain) lastEpoch() (e ident.Epoch) {
	if n := len(m.batches); n > 0 {
		e = m.batches[n-1].Header().Epoch
	}
	return e
}

func (m plain) lastMs() (ms int64) {
	if n := len(m.batches); n > 0 {
		ms = m.batches[n-1].Header().Timestamp
	}
	return ms
}

// cut is the model of TruncateTo.
func (m plain) cut(to record.Position) plain {
	all := m.positions()
	n := len(m.batches)
	for n > 0 && to.Before(all[n]) {
		n--
	}
	m.batches, m.acked = m.batches[:n:n], min(m.acked, n)
	return m
}

// epochEnd is the model of EpochEndPosition.
func (m plain) epochEnd(e ident.Epoch) (last ident.Epoch, end record.Position) {
	end = m.first
	for i, p := range m.positions()[1:] {
		if h := m.batches[i].Header(); h.Epoch <= e {
			last, end = h.Epoch, p
		}
	}
	return last, end
}

// matches holds a log against the model, through the calls that replicas make.
func (m plain) matches(l *Log, r *rand.Rand) error {
	if l.Damage() != nil {
		return l.Damage()
	}
	all, start, end := m.positions(), l.StartPosition(), m.end()
	if start.Before(m.start) || m.most.Before(start) {
		return fmt.Errorf("it starts at %v, not in %v to %v", start, m.start, m.most)
	}
	if got := l.EndPosition(); got != end {
		return fmt.Errorf("it ends at %v, not at %v", got, end)
	}
	if d := l.DurablePosition(); end.Before(d) {
		return fmt.Errorf("durable up to %v, beyond the end %v", d, end)
	}
	first := 0
	for all[first].Before(start) {
		first++
	}
	if all[first] != start {
		return fmt.Errorf("it starts at %v, inside of a batch", start)
	}
	for i := first; i < len(all); {
		maxBytes := r.IntN(400)
		raw, err := l.ReadFrom(all[i], maxBytes)
		if err != nil {
			return fmt.Errorf("read from %v of %v to %v: %w", all[i], start, end, err)
		}
		if len(raw) == 0 {
			if i < len(m.batches) {
				return fmt.Errorf("nothing at %v of %v to %v", all[i], start, end)
			}
			break
		}
		if len(raw) > maxBytes && len(raw) > len(m.batches[i]) {
			return fmt.Errorf("%d bytes at %v, %d were asked for", len(raw), all[i], maxBytes)
		}
		for len(raw) > 0 {
			if i == len(m.batches) || !bytes.HasPrefix(raw, m.batches[i]) {
				return fmt.Errorf("another batch at %v", all[i])
			}
			raw = raw[len(m.batches[i]):]
			i++
		}
	}
	for range 20 { // also from places in the middle, and from none at all
		p := record.Position{Offset: ident.Offset(r.Int64N(int64(end.Offset) + 2)), Voids: max(0, r.IntN(6)-2)}
		raw, err := l.ReadFrom(p, 1)
		n := 0
		for n < len(all)-1 && all[n].Before(p) {
			n++
		}
		switch {
		case p.Before(start):
			if !fault.Is(err, fault.OffsetExpired) {
				return fmt.Errorf("read below the start, from %v: %w", p, err)
			}
		case all[n] != p:
			if !fault.Is(err, fault.OffsetNotFound) {
				return fmt.Errorf("read from %v, which is not between two batches: %w", p, err)
			}
		case err != nil:
			return fmt.Errorf("read from %v: %w", p, err)
		case n < len(m.batches) && !bytes.Equal(raw, m.batches[n]):
			return fmt.Errorf("another batch at %v", p)
		}
	}
	if at, state := l.Recovered(); m.at > end.Offset && (at != m.at || string(state) != fmt.Sprint("producers at ", m.at)) {
		return fmt.Errorf("the producer state is %q of offset %d, the log was begun with that of %d", state, at, m.at)
	}
	for e := ident.Epoch(0); e <= m.lastEpoch()+1; e++ {
		want, wantEnd := m.epochEnd(e)
		got, gotEnd := l.EpochEndPosition(e)
		if got == 0 && gotEnd == start && !start.Before(wantEnd) {
			continue // it went with what lies below the start
		}
		if got != want || gotEnd != wantEnd {
			return fmt.Errorf("epoch %d ended at %v as %d, not at %v as %d; the log is %v to %v", e, gotEnd, got, wantEnd, want, start, end)
		}
	}
	if first < len(m.batches) && l.LastEpoch() != m.lastEpoch() {
		return fmt.Errorf("the last epoch is %d, not %d", l.LastEpoch(), m.lastEpoch())
	}
	return nil
}

// foundAs is the one of several models that a log equals after a crash, cut to what
// is there.
func foundAs(l *Log, r *rand.Rand, allowed []plain) (plain, error) {
	var errs []error
	for _, m := range allowed {
		got := m.cut(l.EndPosition())
		if got.acked < m.acked {
			errs = append(errs, fmt.Errorf("%d batches of %d acknowledged ones", got.acked, m.acked))
			continue
		}
		err := got.matches(l, r)
		if err == nil {
			got.acked = len(got.batches)
			got.start, got.most = l.StartPosition(), l.StartPosition()
			return got, nil
		}
		errs = append(errs, err)
	}
	return plain{}, fmt.Errorf("it is none of %d: %v", len(allowed), errs)
}

// TestReplicasLogsEqualAModel takes one log through random appends of several
// epochs, voids, truncations, moves of its start and power cuts, and holds it
// against a plain list.
func TestReplicasLogsEqualAModel(t *testing.T) {
	from, to := seeds(t, 150)
	var reached sync.Map
	for seed := from; seed < to; seed++ {
		synctest.Test(t, func(t *testing.T) {
			g := &replicaWorld{r: seeded(seed), reached: &reached}
			if err := g.run(); err != nil {
				t.Errorf("seed %d: %v\nreplay: TEST_TIDEWIRE_SEED=%d go test -run TestReplicasLogs -count 20 ./broker/storage", seed, err, seed)
			}
		})
		if t.Failed() {
			return
		}
	}
	if to-from >= 100 {
		for _, state := range []string{"truncation in the tail", "truncation in segments", "truncation in voids", "retention", "start in voids", "start moved", "restart", "forgotten", "caught up", "power cut", "kill", "two models"} {
			if _, ok := reached.Load(state); !ok {
				t.Errorf("no seed reached the state %q", state)
			}
		}
	}
}

type replicaWorld struct {
	r       *rand.Rand
	reached *sync.Map
	epoch   ident.Epoch

	mu      sync.Mutex
	allowed []plain // the first one is the log as it is now
	pulled  *faultfs.Memory
	frozen  []plain
}

func (g *replicaWorld) saw(state string) { g.reached.Store(state, true) }

func (g *replicaWorld) run() error {
	pick := func(n ...int64) int64 { return n[g.r.IntN(len(n))] }
	disk := faultfs.New(0)
	g.allowed = []plain{{}}
	g.epoch = 1
	for life := range 2 + g.r.IntN(4) {
		cfg := Config{
			Dir: "/data", JournalFileBytes: pick(12<<10, 64<<10), CheckpointBytes: pick(4<<10, 30<<10),
			FlushBytes: int(pick(1, 700, 8<<10)), FlushAge: time.Duration(pick(5, 500, 20000)) * time.Millisecond,
			IndexBytes: pick(1, 300, 2000), OpenFiles: int(pick(1, 100)), MinFreeBytes: 1, IdleMark: 5 * time.Millisecond,
		}
		fsys := faultfs.Wrap(disk)
		cfg.FS = fsys
		g.pulled = nil
		fuse, power, under := g.r.Int64N(800), g.r.IntN(3) > 0, disk
		var n atomic.Int64
		fsys.SetHook(func(faultfs.Op, string) {
			if n.Add(1) == fuse {
				g.pull(under, power, uint64(fuse))
			}
		})
		if err := g.live(cfg); err != nil {
			return fmt.Errorf("life %d: %w", life, err)
		}
		g.pull(under, power, 0)
		disk, g.allowed = g.pulled, g.frozen
	}
	return nil
}

func (g *replicaWorld) pull(disk *faultfs.Memory, power bool, whim uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pulled != nil {
		return
	}
	g.frozen = append([]plain(nil), g.allowed...)
	if len(g.frozen) > 1 {
		g.saw("two models")
	}
	if power {
		g.saw("power cut")
		g.pulled = disk.CrashClone(seeded(whim))
	} else {
		g.saw("kill")
		g.pulled = disk.KillClone()
	}
}

// is sets what the log may be found as.
func (g *replicaWorld) is(models ...plain) { g.mu.Lock(); defer g.mu.Unlock(); g.allowed = models }

func (g *replicaWorld) now() plain { g.mu.Lock(); defer g.mu.Unlock(); return g.allowed[0] }

func (g *replicaWorld) live(cfg Config) error {
	s, err := Open(cfg)
	if err != nil {
		return err
	}
	run := run(s)
	l, err := s.Log(part(1), LogConfig{SegmentBytes: 1 + g.r.Int64N(2500), RetentionBytes: 1500})
	if err == nil {
		err = g.work(l)
	}
	g.pull(cfg.FS.(*faultfs.Faulty).FS.(*faultfs.Memory), true, 1)
	if e := run.close(); err == nil && e != nil {
		err = e
	}
	return err
}

func (g *replicaWorld) work(l *Log) error {
	m, err := foundAs(l, g.r, g.allowed)
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	g.is(m)
	if m.at > 0 && m.at <= m.end().Offset {
		g.saw("caught up")
	}
	l.SetSnapshotter(func() (ident.Offset, []byte) {
		at := max(l.End(), g.now().at)
		return at, fmt.Append(nil, "producers at ", at)
	})
	g.epoch = max(g.epoch, m.lastEpoch())
	for range g.r.IntN(120) {
		g.mu.Lock()
		over := g.pulled != nil
		g.mu.Unlock()
		if over {
			return nil
		}
		if err := g.step(l); err != nil {
			return err
		}
	}
	synctest.Wait()
	if m := g.now(); m.acked != len(m.batches) || l.DurablePosition() != m.end() {
		return fmt.Errorf("%d of %d batches are durable, up to %v of %v", m.acked, len(m.batches), l.DurablePosition(), m.end())
	}
	return g.now().matches(l, g.r)
}

func (g *replicaWorld) step(l *Log) error {
	m := g.now()
	switch k := g.r.IntN(100); {
	case k < 70:
		if g.r.IntN(6) == 0 {
			g.epoch++
		}
		return g.append(l, m)
	case k < 76:
		time.Sleep(time.Duration(g.r.IntN(200)) * time.Millisecond)
		return g.now().matches(l, g.r)
	case k < 79:
		l.store.kickCheckpoint()
	case k < 83:
		return l.flush()
	case k < 86:
		return g.retain(l)
	case k < 88:
		return g.setStart(l)
	case k < 90:
		return g.restart(l)
	case k < 92:
		return g.forget(l)
	default:
		return g.truncate(l)
	}
	return nil
}

func (g *replicaWorld) forget(l *Log) error {
	if m := g.now(); m.at <= m.end().Offset {
		return nil
	}
	g.saw("forgotten")
	g.mu.Lock() // what is under way becomes durable meanwhile
	m := g.allowed[0]
	forgotten := m
	forgotten.at = 0
	g.allowed = []plain{forgotten, m} // it may not be on the disk before the power fails
	g.mu.Unlock()
	if err := l.Forget(func(error) {}); err != nil {
		return err
	}
	if at, state := l.Recovered(); at != l.Start() || len(state) > 0 {
		return fmt.Errorf("%q as of %d was to be forgotten; the log starts at %d", state, at, l.Start())
	}
	return nil
}

func (g *replicaWorld) append(l *Log, m plain) error {
	end, ms := m.end(), m.lastMs()+g.r.Int64N(3)
	b := batch(l.part, g.epoch, end.Offset, ms, 1+g.r.IntN(4), 1+g.r.IntN(60))
	if g.r.IntN(3) == 0 {
		b = voids(l.part, g.epoch, end.Offset, ms, g.r.Int64N(1<<50))
	}
	n := len(m.batches)
	g.mu.Lock()
	g.allowed[0].batches = append(m.batches[:n:n], b)
	g.mu.Unlock()
	return l.Append(b, nil, func(err error) {
		g.mu.Lock()
		defer g.mu.Unlock()
		for i := range g.allowed {
			if a := &g.allowed[i]; err == nil && a.acked == n && len(a.batches) > n && &a.batches[n][0] == &b[0] {
				a.acked = n + 1
			}
		}
	})
}

func (g *replicaWorld) truncate(l *Log) error {
	if g.r.IntN(2) == 0 {
		synctest.Wait() // all of it is durable
	}
	m := g.now()
	all := m.positions()
	to := all[len(all)-1-g.r.IntN(min(len(all), 8))]
	if g.r.IntN(4) == 0 {
		to = all[g.r.IntN(len(all))]
	}
	if g.r.IntN(8) == 0 { // perhaps in the middle of a batch
		to = record.Position{Offset: to.Offset + ident.Offset(g.r.IntN(3)), Voids: to.Voids + g.r.IntN(2)}
	}
	if to.Before(m.start) {
		if err := l.TruncateTo(to); err == nil {
			return fmt.Errorf("a truncation to %v, below the start %v, was taken", to, m.start)
		}
		return nil
	}
	l.mu.Lock()
	inSegments := to.Before(l.flushedPos())
	l.mu.Unlock()
	after := m.cut(to)
	if len(after.batches) < len(m.batches) {
		switch {
		case inSegments:
			g.saw("truncation in segments")
		default:
			g.saw("truncation in the tail")
		}
		if after.end().Voids > 0 {
			g.saw("truncation in voids")
		}
	}
	g.mu.Lock()
	cut := g.allowed[0].cut(to)
	if m.end().Offset >= m.at || len(cut.batches) < len(m.batches) { // it is one like any other by now, or lost
		cut.at = 0
	}
	g.allowed = append(g.allowed[:1:1], cut)
	g.mu.Unlock()
	if err := l.TruncateTo(to); err != nil {
		return fmt.Errorf("truncate to %v: %w", to, err)
	}
	g.mu.Lock()
	after = g.allowed[1]
	if len(after.batches) < len(m.batches) {
		after.acked = len(after.batches) // it waited for the journal, and so for all before it
	}
	g.allowed = []plain{after}
	g.mu.Unlock()
	return after.matches(l, g.r)
}

// setStart does what a leader's news of its log start does.
func (g *replicaWorld) setStart(l *Log) error {
	synctest.Wait()
	m := g.now()
	all := m.positions()
	to := all[g.r.IntN(len(all))].Offset
	if to < m.start.Offset {
		return nil
	}
	during := m
	during.most = record.Position{Offset: to, Voids: 1 << 20}
	g.is(during)
	if err := l.SetStart(to, l.End()); err != nil {
		return err
	}
	start := l.StartPosition()
	if start.Offset != to {
		return fmt.Errorf("the start was set to %d and is %v", to, start)
	}
	if m.start.Before(start) {
		g.saw("start moved")
	}
	m.start, m.most = start, start
	g.is(m)
	return m.matches(l, g.r)
}

// restart does what a replica does that lies behind its leader's log start.
func (g *replicaWorld) restart(l *Log) error {
	m := g.now()
	start := m.end()
	switch g.r.IntN(3) {
	case 0:
		start.Voids += 1 + g.r.IntN(2)
	case 1:
		start = record.Position{Offset: start.Offset + ident.Offset(1+g.r.IntN(20)), Voids: g.r.IntN(2)}
	}
	at := start.Offset + ident.Offset(g.r.IntN(15))
	anew := plain{first: start, start: start, most: start, at: at}
	g.mu.Lock()
	g.allowed = append(g.allowed[:1:1], anew)
	g.mu.Unlock()
	if err := l.Restart(start, fmt.Append(nil, "producers at ", at), at); err != nil {
		return fmt.Errorf("restart at %v: %w", start, err)
	}
	g.is(anew)
	g.saw("restart")
	g.epoch = 1 + ident.Epoch(g.r.IntN(3)) // the leader's log may go on with older ones
	return anew.matches(l, g.r)
}

func (g *replicaWorld) retain(l *Log) error {
	synctest.Wait()
	m := g.now()
	during := m
	during.most = m.end()
	g.is(during)
	if g.r.IntN(3) == 0 { // all of it is too old, if it is in segments
		if err := l.flush(); err != nil {
			return err
		}
		l.mu.Lock()
		l.cfg.RetentionAge = time.Millisecond
		l.mu.Unlock()
	}
	if err := l.Retain(time.Now(), m.end().Offset); err != nil {
		return err
	}
	start := l.StartPosition()
	if m.start.Before(start) {
		g.saw("retention")
	}
	if start.Voids > 0 {
		g.saw("start in voids")
	}
	m.start, m.most = start, start
	g.is(m)
	return m.matches(l, g.r)
}
