package lease

import (
	"maps"
	"slices"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// Config says whose machine it is.
type Config struct {
	Partition ident.Index
	Leader    ident.Epoch // of the partition
	// Alone is from when on nobody else gives leases of this partition: the time of the
	// takeover and what is left of the former leader's lease of a broker, or now, where the
	// machine before was this broker's own. Zero: none ever gave leases of this group.
	Alone time.Time
	// First says that nobody else gave leases under this reset epoch: the group was
	// registered or moved while this broker led. Who speaks of a record that this machine
	// did not lease speaks of what counts no more.
	First bool
	// Letters is the partition of the dead-letter topic that takes what dies here. It has
	// to stay the same as long as the group lives, because the group's producer counts.
	Letters ident.Index
}

// Machine is one group on one partition, under one leader epoch and one reset epoch. It is
// not safe for concurrent use.
type Machine struct {
	cfg   Config
	group *cluster.Group
	base  time.Time
	now   time.Duration // since base; it never goes back
	over  bool

	start, read, high ident.Offset
	// edge is where records begin that nobody else can have leased; 0: nobody has leased
	// any. A new leader shows no less than the former ones did.
	edge   ident.Offset
	window window
	ready  heap // available, by offset, but what is held back
	timers heap // leased and waiting, by time

	// known is done at or above the read position; counts are of records that are not
	// read yet.
	known  spans
	counts map[ident.Offset]int
	// holes lie below the read position and are not known to be committed.
	holes                  spans
	dead, skipped, expired spans

	hands map[string]*hand // live ones, by member
	owner cluster.Owner    // in exclusive mode
	keys  map[uint32]*key  // of records that failed, in exclusive mode
	lost  int              // records leased to hands of before, in exclusive mode
	hold  time.Duration    // nothing is leased before that
	grace time.Duration    // up to then leases of a former leader may be alive

	commits   commits
	letters   []ident.Offset // to be appended to the dead-letter topic, by sequence
	waits     map[Token]*wait
	crowd     map[ident.Offset][]Token // who else waits for a record
	token     Token
	serial    uint64 // of the latest answer with leases
	answers   []Answer
	redeliver int64
	overtaken int64 // records that retention took before they were done, since the group's start
	ranOut    int   // leases, since that was asked
}

// Token stands for a Settle call that waits for a commit.
type Token uint64

// Record is what the machine has to know of a record of the log.
type Record struct {
	Offset ident.Offset
	Hash   uint32 // of its key
	Keyed  bool   // it has one
	Stamp  int64  // ms since 1970
}

// Begin takes over a group with its progress, and the log as it is.
func Begin(now time.Time, cfg Config, g *cluster.Group, p cluster.GroupProgress, start, high ident.Offset) *Machine {
	m := &Machine{
		cfg: cfg, base: now, group: g,
		start: start, read: p.Floor, high: high,
		ready: heap{less: byOffset}, timers: heap{less: byTime},
		skipped: append(spans(nil), p.Skipped...), dead: append(spans(nil), p.Dead...), expired: append(spans(nil), p.Expired...),
		hands: map[string]*hand{}, waits: map[Token]*wait{},
	}
	m.commits.sequence, m.overtaken = p.Sequence, p.Lost
	m.remember(&p)
	m.skip()
	if !cfg.Alone.IsZero() {
		m.grace = cfg.Alone.Sub(now) + g.Settings.Lease
		if !cfg.First {
			m.edge = high
		}
	}
	if g.Reset != p.Reset || g.ID != p.Group {
		m.over = true // the one or the other is older: neither says what counts
	}
	if m.exclusive() {
		m.assign(owner(g, cfg.Partition))
	}
	m.expire(start)
	return m
}

// remember takes in what the coordinator holds above the floor.
func (m *Machine) remember(p *cluster.GroupProgress) {
	for _, all := range [][]cluster.Span{p.Done, p.Dead, p.Skipped, p.Expired} {
		for _, s := range all {
			s.From = max(s.From, p.Floor)
			m.known.add(s)
		}
	}
	for _, c := range p.Counts {
		if m.counts == nil {
			m.counts = map[ident.Offset]int{}
		}
		m.counts[c.Offset] = c.Deliveries
	}
	for _, i := range p.Intents {
		m.window.addAside(entry{
			offset: i.Offset, state: dying, given: int32(i.Deliveries),
			letter: &letter{Intent: i, stage: intended},
		})
		m.letters = append(m.letters, i.Offset)
	}
}

// Over says that the machine does not know any more what the coordinator holds: an epoch
// is not the current one, or a member is gone of whose acknowledgements nobody knows
// whether they count. Nothing comes of it. Begin one anew, with progress that is newer.
func (m *Machine) Over() bool { return m.over }

// End gives up. Whoever waits for a commit is answered that its outcome is unknown.
func (m *Machine) End() {
	m.over = true
	for _, t := range slices.Sorted(maps.Keys(m.waits)) { // the machine does the same each time
		m.answers = append(m.answers, Answer{Token: t, Stale: m.waits[t].stale, Unknown: true})
	}
	clear(m.waits)
}

// Moved tells of the log's start and its high watermark.
func (m *Machine) Moved(now time.Time, start, high ident.Offset) {
	m.tick(now)
	m.high = max(m.high, high)
	if start > m.start {
		m.start = start
		m.expire(start)
	}
}

// former says that somebody else may have leased a record that this machine did not.
func (m *Machine) former(o ident.Offset) bool { return o < m.edge }

func (m *Machine) exclusive() bool { return m.group.Settings.Mode == cluster.Exclusive }

func (m *Machine) since(t time.Time) time.Duration { return t.Sub(m.base) }

// skip moves the read position over what is done.
func (m *Machine) skip() {
	m.read = m.known.end(m.read)
	m.known.cut(m.read)
}
