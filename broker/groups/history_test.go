package groups

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
	"tidewire/internal/sleep"
)

// worker is a member that takes records and does with them what chance says.
type worker struct {
	t     *testing.T
	s     *stage
	g     *cluster.Group
	refs  []ident.Partition
	name  string
	rand  *rand.Rand
	ended chan struct{} // closed when it is to stop
	*ledger
}

// ledger is what all members together were told, and what they hold.
type ledger struct {
	mu    sync.Mutex
	acked map[string]bool
	held  map[string]hold
}

type hold struct {
	member string
	until  time.Time
}

func placed(ref ident.Partition, o ident.Offset) string { return fmt.Sprint(ref.Index, "/", o) }

func (b *ledger) acknowledged(ref ident.Partition, o ident.Offset) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.acked[placed(ref, o)] = true
}

// taken notes leases. In exclusive mode nobody else holds them.
func (w *worker) taken(ref ident.Partition, leases []rpc.Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range leases {
		key := placed(ref, l.Offset)
		if h := w.held[key]; w.g.Settings.Mode == cluster.Exclusive && h.member != w.name && time.Now().Before(h.until) {
			w.t.Errorf("%s was leased to %s, and %s holds it for another %v", key, w.name, h.member, time.Until(h.until))
		}
		if w.acked[key] {
			w.t.Errorf("%s was acknowledged, and leased again", key)
		}
		w.held[key] = hold{w.name, time.Now().Add(l.Left)}
	}
}

// drop lets go of a record, or of all: its life is over.
func (w *worker) drop(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for k, h := range w.held {
		if h.member == w.name && (key == "" || k == key) {
			delete(w.held, k)
		}
	}
}

func (w *worker) join() cluster.MemberLife {
	w.drop("")
	return w.s.join(w.g, w.name)
}

// leader is who leads a partition, as everybody hears it.
func (s *stage) leader(ref ident.Partition) *node {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, _ := s.snap.ByID[ref.Topic].Partition(ref.Index)
	return s.nodes[p.Leader]
}

func (w *worker) run() {
	life := w.join()
	for {
		select {
		case <-w.ended:
			return
		default:
		}
		for _, ref := range w.refs {
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(w.rand.IntN(800)+1)*time.Millisecond)
			taken, err := w.s.leader(ref).Take(ctx, rpc.Take{MemberLife: life, Partitions: []ident.Partition{ref}, Limit: 1 + w.rand.IntN(20), MaxBytes: 1 << 20, Wait: time.Second})
			cancel()
			if err != nil || taken.Of[0].Err != nil {
				if err == nil && fault.Is(taken.Of[0].Err, fault.Fenced) && w.rand.IntN(20) == 0 {
					life = w.join()
				}
				pause(10 * time.Millisecond)
				continue
			}
			holds(w.t, taken.Of[0])
			w.taken(ref, taken.Of[0].Leases)
			w.settle(life, ref, taken.Of[0].Leases)
		}
		if w.rand.IntN(30) == 0 {
			life = w.join()
		}
	}
}

func (w *worker) settle(life cluster.MemberLife, ref ident.Partition, leases []rpc.Lease) {
	of := rpc.SettleOf{Partition: ref, Through: -1}
	said := map[ident.Offset]bool{}
	var let []ident.Offset // what it lets go of
	for _, l := range leases {
		let = append(let, l.Offset)
		switch w.rand.IntN(10) {
		case 0:
			of.Nack = append(of.Nack, rpc.Nack{Offset: l.Offset, Delay: time.Duration(w.rand.IntN(3)-1) * 100 * time.Millisecond})
		case 1:
			of.Reject = append(of.Reject, rpc.Reject{Offset: l.Offset, Reason: "chance"})
		case 2: // lost: it holds it to the end
			let = let[:len(let)-1]
		default:
			of.Ack = append(of.Ack, l.Offset)
			said[l.Offset] = true
		}
	}
	if w.rand.IntN(4) == 0 {
		pause(time.Duration(w.rand.IntN(3000)) * time.Millisecond)
	}
	for _, o := range let {
		w.drop(placed(ref, o))
	}
	done, err := w.s.leader(ref).Settle(context.Background(), rpc.Settle{MemberLife: life, Of: []rpc.SettleOf{of}})
	if err != nil || done.Of[0].Err != nil {
		return
	}
	for _, s := range done.Of[0].Stale {
		delete(said, s.Offset)
	}
	for o := range said {
		w.acknowledged(ref, o)
	}
}

// Whatever fails: what was acknowledged is processed, and every record ends in one way, dead
// ones in the dead-letter topic once. TEST_TIDEWIRE_SEEDS sets how many histories are played.
func TestEveryRecordEndsOnce(t *testing.T) {
	seeds := uint64(2)
	if text := os.Getenv("TEST_TIDEWIRE_SEEDS"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seeds = n
	}
	for seed := range seeds {
		for _, mode := range []cluster.GroupMode{cluster.Exclusive, cluster.Shared} {
			t.Run(fmt.Sprint(mode, seed), func(t *testing.T) {
				play(t, func(t *testing.T, s *stage) { history(t, s, mode, rand.New(rand.NewPCG(seed, 1))) })
			})
		}
	}
}

// pause lets the bubble's time pass.
func pause(d time.Duration) { sleep.For(context.Background(), d) }

func history(t *testing.T, s *stage, mode cluster.GroupMode, chance *rand.Rand) {
	topic := s.topic("orders", 2)
	g := s.group(topic, "billing", func(s *cluster.GroupSettings) {
		s.Mode, s.Lease, s.Backoff, s.MaxInFlight = mode, 2*time.Second, 100*time.Millisecond, 40
	})
	refs := []ident.Partition{topic.Ref(0), topic.Ref(1)}
	b := &ledger{acked: map[string]bool{}, held: map[string]hold{}}
	ended := make(chan struct{})
	var members sync.WaitGroup
	for i := range 3 {
		w := &worker{t: t, s: s, g: g, refs: refs, name: fmt.Sprint("m", i), rand: rand.New(rand.NewPCG(chance.Uint64(), 2)), ended: ended, ledger: b}
		members.Go(w.run)
	}
	const rounds = 60
	for range rounds {
		ref := refs[chance.IntN(2)]
		for range chance.IntN(5) {
			s.log.Append(ref, "a", "", "b", "c")
		}
		switch chance.IntN(10) {
		case 0:
			s.lead(ref, []ident.NodeID{n1, n2}[chance.IntN(2)])
		case 1:
			s.set(func(s *stage) { s.down = !s.down })
		case 2:
			s.set(func(s *stage) { s.deaf = !s.deaf })
		case 3:
			s.set(func(s *stage) { s.delay = time.Duration(chance.IntN(200)) * time.Millisecond })
		case 4:
			s.set(func(s *stage) {
				if s.refuse = nil; chance.IntN(2) == 0 {
					s.refuse = fault.New(fault.DiskFull, "full")
				}
			})
		case 6:
			s.lapse(g, fmt.Sprint("m", chance.IntN(3)), "")
		case 7:
			s.alter(g, func(g *cluster.Group) {
				if o := g.Owner(ref.Index); o != nil && o.Member != "" && len(g.Members) > 0 {
					if next := g.Members[chance.IntN(len(g.Members))].ID; next != o.Member {
						o.Next, o.Notice = next, g.Modified
					}
				}
			})
		case 5:
			n := s.leader(ref)
			n.mu.Lock()
			n.unsure = !n.unsure
			n.mu.Unlock()
		}
		pause(time.Duration(chance.IntN(1500)) * time.Millisecond)
	}
	s.set(func(s *stage) { s.down, s.deaf, s.delay, s.refuse = false, false, 0, nil })
	for _, n := range s.nodes {
		n.mu.Lock()
		n.unsure = false
		n.mu.Unlock()
	}
	pause(2 * time.Minute)
	close(ended)
	members.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	dead := 0
	for _, ref := range refs {
		bounds, err := s.log.Bounds(context.Background(), ref)
		if err != nil {
			t.Fatal(err)
		}
		all := s.progress[g.ID][ref.Index]
		if all.floor != bounds.HW || len(all.intents) > 0 {
			t.Errorf("partition %d: floor %d of %d, intents %v", ref.Index, all.floor, bounds.HW, all.intents)
		}
		for o := range bounds.HW {
			switch key := placed(ref, o); all.done[o] {
			case "processed":
			case "dead":
				if dead++; b.acked[key] {
					t.Errorf("%s was acknowledged, and is dead", key)
				}
			default:
				t.Errorf("%s is %q", key, all.done[o])
			}
		}
	}
	if n := len(s.appended["billing.dlq"]); n != dead {
		t.Errorf("%d letters of %d dead records", n, dead)
	}
	if len(b.acked) == 0 || dead == 0 {
		t.Errorf("%d acknowledged, %d dead", len(b.acked), dead)
	}
}
