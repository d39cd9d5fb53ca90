package deliver

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"tidewire/internal/ident"
)

// guest is a reader as the parking is to see it.
type guest struct {
	part   part
	filter Filter
	owned  ident.HashRange
	parked bool
	ahead  bool
	next   ident.Offset
}

func (g *guest) wants(key string) bool {
	switch {
	case g.ahead:
		return true
	case key == "":
		return g.filter.Keys == nil && g.filter.KeyPrefix == ""
	case g.filter.KeyPrefix != "":
		return strings.HasPrefix(key, g.filter.KeyPrefix)
	case len(g.filter.Keys) > 1: // one that is named alone is not hashed
		return slices.Contains(g.filter.Keys, key) && g.owned.Contains(ident.KeyHash(key))
	case g.filter.Keys != nil:
		return g.filter.Keys[0] == key
	}
	return true
}

// TestTheParkingIsAListAndAFilter holds the parking against a list of readers
// that are each asked.
func TestTheParkingIsAListAndAFilter(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	rnd := rand.New(rand.NewPCG(seed, 2))
	defer func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	}()
	keys := []string{"a", "ab", "abc", "abcd", "b", "ba", "bb", "c", "ca", "d"}
	key := func() string { return keys[rnd.IntN(len(keys))] }
	var g parking
	var spare []*part
	var guests []*guest
	end, epoch, taken := ident.Offset(0), ident.Epoch(1), 0
	compare := func(woken []*part, wanted func(*guest) bool, from stand) {
		t.Helper()
		got := map[*part]bool{}
		for _, p := range woken {
			if got[p] {
				t.Fatal("woken twice")
			}
			got[p] = true
		}
		for _, q := range guests {
			want := q.parked && wanted(q)
			if want != got[&q.part] {
				t.Fatalf("%+v (parked %v, ahead %v) woken: %v", q.filter, q.parked, q.ahead, got[&q.part])
			}
			if !want {
				continue
			}
			if !q.ahead { // it has passed all up to the block
				q.next = max(q.next, from.next)
			}
			if q.parked = false; q.part.offset() != q.next {
				t.Fatalf("%+v woken at %d, it is to go on at %d", q.filter, q.part.offset(), q.next)
			}
			taken++
		}
		clear(woken)
		spare = woken[:0]
	}
	for range 20_000 {
		switch rnd.IntN(10) {
		case 0:
			if len(guests) > 40 {
				continue
			}
			q := &guest{owned: ident.FullRange}
			switch rnd.IntN(5) {
			case 0:
			case 1:
				q.filter.KeyPrefix = key()
			case 2:
				q.filter.Keys = []string{key()}
			default:
				for range 2 + rnd.IntN(4) {
					q.filter.Keys = append(q.filter.Keys, key())
				}
				if rnd.IntN(2) == 0 {
					q.owned = ident.HashRange{Lo: 0, Hi: ident.HashSpace / 2}
				}
			}
			q.part.sub = &Subscription{match: q.filter.matcher()}
			g.enter(&q.part, q.part.sub.match.keys(), q.owned)
			guests = append(guests, q)
		case 1:
			if len(guests) > 0 {
				i := rnd.IntN(len(guests))
				g.leave(&guests[i].part)
				guests = slices.Delete(guests, i, i+1)
			}
		case 2, 3, 4, 5:
			if len(guests) == 0 {
				continue
			}
			if q := guests[rnd.IntN(len(guests))]; !q.parked {
				q.parked, q.ahead, q.next = true, rnd.IntN(10) == 0, end
				q.part.next.Store(int64(end))
				g.park(&q.part, q.ahead)
			}
		case 6:
			if rnd.IntN(5) == 0 {
				from := stand{end, epoch}
				compare(g.everyone(from, spare), func(*guest) bool { return true }, from)
			}
		default:
			k := &block{base: end, next: end, epoch: epoch}
			var batch []string
			for range 1 + rnd.IntN(3) {
				record := ""
				if rnd.IntN(4) > 0 {
					record = key()
				}
				batch = append(batch, record)
				k.keys = append(k.keys, record...)
				k.marks = append(k.marks, mark{key: uint32(len(k.keys)), delta: uint32(k.next - k.base)})
				k.next++
			}
			from := stand{end, epoch}
			compare(g.wanting(k, from, spare), func(q *guest) bool { return slices.ContainsFunc(batch, q.wants) }, from)
			end = k.next
		}
		for _, q := range guests {
			if g.holds(&q.part) != q.parked {
				t.Fatalf("%+v is parked: %v", q.filter, q.parked)
			}
		}
	}
	if taken < 1000 {
		t.Fatalf("%d woken exercise too little", taken)
	}
	for _, q := range guests {
		g.leave(&q.part)
	}
	if left := fmt.Sprint(len(g.keys), len(g.prefixes), len(g.lengths), len(g.seats), g.choosy, len(g.all.parked), len(g.ahead.parked)); left != "0 0 0 0 0 0 0" {
		t.Fatalf("left when all have gone: %s", left)
	}
}
