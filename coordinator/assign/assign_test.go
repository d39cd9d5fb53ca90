package assign_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"tidewire/coordinator/assign"
)

// check says what is wrong with an answer, whatever there was before.
func check(of []assign.Partition, members, to []string) string {
	has := map[string]int{}
	for i, m := range to {
		if len(members) == 0 && m == "" {
			continue
		}
		if !slices.Contains(members, m) {
			return fmt.Sprintf("partition %d goes to %q", i, m)
		}
		has[m]++
	}
	for _, m := range members {
		if low := len(of) / len(members); has[m] < low || has[m] > (len(of)+len(members)-1)/len(members) {
			return fmt.Sprintf("%s has %d of %d partitions among %d members", m, has[m], len(of), len(members))
		}
	}
	return ""
}

func moves(of []assign.Partition, members, to []string) (n int) {
	for i, p := range of {
		if slices.Contains(members, p.Owner) && to[i] != p.Owner {
			n++
		}
	}
	return n
}

// fewest tries everything: how many partitions have to leave their owners.
func fewest(of []assign.Partition, members []string) int {
	best := len(of) + 1
	to := make([]string, len(of))
	var try func(i int)
	try = func(i int) {
		if i == len(of) {
			if check(of, members, to) == "" {
				best = min(best, moves(of, members, to))
			}
			return
		}
		for _, m := range members {
			to[i] = m
			try(i + 1)
		}
	}
	try(0)
	return best
}

func draw(t *rapid.T, partitions, members int) ([]assign.Partition, []string) {
	var all []string
	for i := range rapid.IntRange(0, members).Draw(t, "members") {
		all = append(all, fmt.Sprintf("m%03d", i))
	}
	who := append(slices.Clone(all), "", "gone") // owners need not be members any more
	of := make([]assign.Partition, rapid.IntRange(1, partitions).Draw(t, "partitions"))
	for i := range of {
		of[i].Owner = rapid.SampledFrom(who).Draw(t, "owner")
		if rapid.IntRange(0, 3).Draw(t, "moves") == 0 {
			of[i].Next = rapid.SampledFrom(who).Draw(t, "next")
		}
	}
	return of, all
}

func TestNothingMovesThatNeedNot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		of, members := draw(t, 6, 4)
		to := assign.Spread(of, members)
		if wrong := check(of, members, to); wrong != "" {
			t.Fatal(wrong)
		}
		if len(members) == 0 {
			return
		}
		if got, want := moves(of, members, to), fewest(of, members); got != want {
			t.Fatalf("%v among %v gives %v: %d moves, %d would do", of, members, to, got, want)
		}
	})
}

func TestEveryPartitionHasAnOwnerAndMembersAreEven(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		of, members := draw(t, 256, 40)
		to := assign.Spread(of, members)
		if wrong := check(of, members, to); wrong != "" {
			t.Fatal(wrong)
		}
		if again := assign.Spread(of, members); !slices.Equal(again, to) {
			t.Fatalf("%v, then %v", to, again)
		}
		// What is under way comes to its end: nobody asked changes their mind meanwhile.
		for i := range of {
			if of[i].Next = to[i]; !slices.Contains(members, of[i].Owner) || of[i].Owner == to[i] {
				of[i] = assign.Partition{Owner: to[i]}
			}
		}
		for i := range of {
			of[i] = assign.Partition{Owner: to[i]}
			if again := assign.Spread(of, members); !slices.Equal(again, to) {
				t.Fatalf("with partition %d handed over: %v, then %v", i, to, again)
			}
		}
	})
}

// Members come and go one by one: only what has to moves.
func TestOneMoreMemberTakesItsShareAlone(t *testing.T) {
	for _, partitions := range []int{1, 9, 10, 64, 256} {
		var members []string
		of := make([]assign.Partition, partitions)
		for n := range 12 {
			members = append(members, fmt.Sprintf("m%02d", n))
			to := assign.Spread(of, members)
			if got, most := moves(of, members, to), partitions/(n+1); n > 0 && got > most {
				t.Errorf("member %d of %d partitions: %d moves", n+1, partitions, got)
			}
			for i := range of {
				if to[i] != of[i].Owner && of[i].Owner != "" && to[i] != members[n] {
					t.Errorf("member %d of %d partitions: %d goes from %s to %s", n+1, partitions, i, of[i].Owner, to[i])
				}
				of[i].Owner = to[i]
			}
		}
		for n := 12; n > 1; n-- {
			members = slices.Delete(members, 0, 1)
			to := assign.Spread(of, members)
			if got := moves(of, members, to); got != 0 {
				t.Errorf("%d of %d members of %d partitions stay, and %d partitions leave them", n-1, n, partitions, got)
			}
			for i := range of {
				of[i].Owner = to[i]
			}
		}
	}
}

func BenchmarkSpread(b *testing.B) {
	var members []string
	for i := range 1000 {
		members = append(members, fmt.Sprintf("m%04d", i))
	}
	of := make([]assign.Partition, 256)
	for i, m := range assign.Spread(of, members[:900]) {
		of[i].Owner = m
	}
	for b.Loop() {
		assign.Spread(of, members)
	}
}
