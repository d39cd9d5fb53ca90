package sim

import (
	"errors"
	"slices"
	"time"

	"tidewire/internal/ident"
	"tidewire/internal/record"
)

// disk is a broker's data folder. Everything goes through one journal: what is queued is
// written to the page cache, and one sync makes durable what was written by then. A
// process that is killed loses what was only queued, a machine that loses power what was
// not synced, but for some first part of it, since a journal is cut at its first bad
// frame (rule A5).
type disk struct {
	w       *World
	p       *process
	storage ident.StorageID // of the folder: a wiped one has another
	boot    int             // of the machine, or of a disk that failed and is not believed any more

	image   *folder     // what is durable
	cache   *folder     // and what is written besides; nil: nobody counts on that
	pending []*op       // what was queued after that
	written int         // of pending, in the page cache
	busy    bool        // the journal is at work
	old     *folder     // a copy that somebody made some time ago
	last    *lastFolder // as it was before it was lost

	full    bool          // appends are refused
	stalled time.Duration // until then no sync ends
	breaks  bool          // the next sync fails
}

// lastFolder is what an operator brings back where nobody else has what was lost.
type lastFolder struct {
	storage ident.StorageID
	image   *folder
}

// folder is the state of all logs at some moment, and what the node noted beside them.
type folder struct {
	logs   []*stored // by partition; nil: none
	noted  ident.BrokerEpoch
	harmed []int // by partition, the life that found and noted damage; 0: none
}

// stored is a partition's log.
type stored struct {
	of      ident.TopicID
	start   record.Position
	startMs int64       // timestamp of the last batch that went
	past    ident.Epoch // that goes on at start; 0: none, or it began there
	kept    []kept
	snaps   []snap // newest first
	ahead   ident.Offset
	// committed is a lower bound of what is, as far as it was noted.
	committed ident.Offset
	bad       int // index of a batch that was flipped; -1: none

	// What the world has found out about it (truth.holds).
	audited bool
	by      *truth
	first   int // batches of the truth before start
	agrees  int
}

// kept is a batch in a log.
type kept struct {
	batch record.Batch
	at    record.Position
	after record.Position
	epoch ident.Epoch
	ms    int64
	span  int
}

// snap is a producer state.
type snap struct {
	at    ident.Offset
	state []byte
}

// rots says whether a log is damaged, found or not.
func (f *folder) rots(part int) bool { return f.logs[part] != nil && f.logs[part].bad >= 0 }

// knows says whether a life has noted a damage that is there still.
func (f *folder) knows(part int) bool { return f.harmed[part] != 0 && f.rots(part) }

func newStored(of ident.TopicID) *stored { return &stored{of: of, bad: -1} }

// op is one entry of the journal.
type op struct {
	part    int
	do      func(*folder)
	log     *log // of an append
	after   record.Position
	cut     bool // truncated away since
	written func(error)
	durable func(error)
}

func (f *folder) clone() *folder {
	c := &folder{logs: slices.Clone(f.logs), noted: f.noted, harmed: slices.Clone(f.harmed)}
	for i, s := range c.logs {
		if s != nil {
			c.logs[i] = s.clone()
		}
	}
	return c
}

func (s *stored) clone() *stored {
	c := *s
	c.kept = slices.Clone(s.kept)
	c.snaps = slices.Clone(s.snaps)
	return &c
}

func newDisk(w *World, p *process, partitions int) *disk {
	d := &disk{w: w, p: p}
	d.wipe(partitions)
	return d
}

// wipe replaces the folder by an empty one.
func (d *disk) wipe(partitions int) {
	d.w.count++
	d.storage = ident.StorageID{0: 7, 14: byte(d.w.count >> 8), 15: byte(d.w.count)}
	d.image = &folder{logs: make([]*stored, partitions), harmed: make([]int, partitions)}
	d.begins()
}

// loses replaces the folder by an older copy, or where there is none by an empty one. What
// there was before the first loss is what can be brought back, until a loss is accepted.
func (d *disk) loses(copy *folder) {
	if b := d.p.broker; !b.lost {
		d.last = &lastFolder{d.storage, d.image}
		b.lost = true
		if n := d.w.council.now().Nodes[b.id]; n != nil {
			b.lostIn = n.BrokerEpoch
		}
	}
	d.image = copy
	if d.begins(); copy == nil {
		d.wipe(d.w.set.Partitions)
	}
}

// restore brings back what was there last.
func (d *disk) restore() {
	d.storage, d.image, d.last = d.last.storage, d.last.image, nil
	d.begins()
}

// begins leaves nothing but what is durable.
func (d *disk) begins() {
	d.pending, d.written = nil, 0
	d.caches()
}

// caches makes the page cache what is durable.
func (d *disk) caches() {
	if d.cache = nil; d.w.set.Replicated && d.image != nil {
		d.cache = d.image.clone()
	}
}

// survives is what is left when a process ends and its machine does not.
func (d *disk) survives() *folder {
	if d.cache != nil {
		return d.cache
	}
	return d.image
}

// queue puts an entry into the journal.
func (d *disk) queue(o *op) {
	d.pending = append(d.pending, o)
	d.work()
}

// work writes and syncs what is queued, one group after the other.
func (d *disk) work() {
	if d.busy || len(d.pending) == 0 || !d.p.up {
		return
	}
	d.busy = true
	w := d.w
	w.in(d.p, w.between(w.set.WriteMin, w.set.WriteMax), func() {
		was := d.written
		group := slices.Clone(d.pending[was:])
		d.writes(len(d.pending))
		w.in(d.p, w.between(w.set.SyncMin, w.set.SyncMax), d.synced)
		for _, o := range group {
			if o.written != nil {
				o.written(nil)
			}
		}
	})
}

// writes brings entries of the journal into the page cache.
func (d *disk) writes(n int) {
	for ; d.written < n; d.written++ {
		if d.cache != nil {
			d.pending[d.written].do(d.cache)
		}
	}
}

var errSync = errors.New("input/output error")

// synced is the end of a sync: everything written before it is durable.
func (d *disk) synced() {
	if d.w.now < d.stalled {
		d.w.in(d.p, min(20*time.Millisecond, d.stalled-d.w.now), d.synced)
		return
	}
	d.busy = false
	if d.breaks {
		d.fails()
		return
	}
	d.tell(d.commit(d.written))
	d.work()
}

// fails is a sync that fails: nobody can say what is on the disk, and what the page cache
// says is no evidence. The process tells whoever waits, and ends.
func (d *disk) fails() {
	d.breaks = false
	for _, o := range slices.Clone(d.pending) {
		if o.durable != nil {
			o.durable(errSync)
		}
	}
	d.w.note(d.p.name, "its disk fails")
	d.w.reached.hit("failed sync")
	d.drop(true)
	d.w.stop(d.p, false)
	d.p.broker.reboots()
	p := d.p
	d.w.after(d.w.between(100*time.Millisecond, time.Second), func() {
		if !p.up {
			d.w.start(p)
		}
	})
}

// commit moves entries of the journal into what is durable.
func (d *disk) commit(n int) []*op {
	d.writes(n)
	done := d.pending[:n:n]
	d.pending = slices.Clone(d.pending[n:])
	d.written -= n
	for _, o := range done {
		o.do(d.image)
		if o.log != nil && !o.cut && o.log.durable.Before(o.after) {
			o.log.durable = o.after
		}
	}
	return done
}

// tell lets those who wait for entries know.
func (d *disk) tell(done []*op) {
	for _, o := range done {
		if o.durable != nil {
			o.durable(nil)
		}
	}
}

// await returns once an entry is durable, or the process is no more. The world goes on
// meanwhile; where it waits for too many such things at once, the sync is done here.
func (d *disk) await(o *op) error {
	done := false
	told := o.durable
	o.durable = func(err error) {
		done = err == nil
		if told != nil {
			told(err)
		}
	}
	life := d.p.life
	d.queue(o)
	lives := func() bool { return d.p.up && d.p.life == life }
	if d.w.depth < 3 {
		d.w.while(func() bool { return !done && lives() })
	} else {
		d.tell(d.commit(len(d.pending)))
	}
	if !done {
		return errSync
	}
	return nil
}

// drop loses what was not synced: with the power all but some first part of what was
// written, with the process what had not been written.
func (d *disk) drop(power bool) {
	n := d.written
	if power {
		n = d.w.rng.IntN(d.written + 1)
		if n < d.written {
			d.w.reached.hit("unsynced entries lost with the power")
		}
	} else if n > 0 {
		d.w.reached.hit("killed with unsynced entries in the page cache")
	}
	d.pending, d.busy = slices.Clone(d.pending[:n]), false
	d.written = n
	if power {
		d.commit(n) // what is left is on the platter
		d.caches()
	}
}

// recover is what a new process finds. It is synced before anybody hears of it: what is
// in the page cache after a kill is not durable yet (rule A4).
func (d *disk) recover() *folder {
	d.commit(len(d.pending))
	return d.image.clone()
}
