package sim

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// seedsOfEveryRun are played by every go test.
const seedsOfEveryRun = 200

// TestSimulation plays seeds: TEST_TIDEWIRE_SIM_SEEDS of them from TEST_TIDEWIRE_SIM_FROM on,
// or one alone, the one that TEST_TIDEWIRE_SEED names.
func TestSimulation(t *testing.T) {
	if seed, ok := number(t, "TEST_TIDEWIRE_SEED"); ok {
		if r := Run(seed); r.Failure != nil {
			report(t, r)
		}
		return
	}
	seeds, _ := number(t, "TEST_TIDEWIRE_SIM_SEEDS")
	seeds = max(seeds, seedsOfEveryRun)
	from, _ := number(t, "TEST_TIDEWIRE_SIM_FROM")
	reached := Reached{}
	var steps, sum uint64
	records, failed := 0, 0
	play(from, seeds, func(r *Result) bool {
		reached.Add(r.Reached)
		steps += r.Steps
		sum += r.Sum * (2*r.Seed + 1)
		records += r.Records
		if r.Failure != nil {
			if failed++; failed <= 3 {
				report(t, r)
			} else {
				t.Errorf("seed %d: %s", r.Seed, firstLine(r.Failure.Error()))
			}
		}
		return failed < 20
	})
	t.Logf("%d seeds from %d on, %d steps, %d records committed, sum of all traces %016x\n%s", seeds, from, steps, records, sum, reached)
	for _, state := range states {
		if reached[state] == 0 {
			t.Errorf("nothing was found out about this, for no run came to it: %s", state)
		}
	}
}

// states are what the seeds of every run have to come to.
var states = []string{
	"ISR below min_insync", "ISR change declined", "ISR change of unknown outcome", "ISR grows", "ISR shrinks",
	"acknowledgement refused as stale", "batch sent again", "bit flipped", "broker without its records activated", "change lost with a leading coordinator",
	"change that came twice", "change that outlived its leading coordinator", "clock set", "clock set under a running process", "committed records lost by an unclean election",
	"commit of unknown outcome", "coordinator led anew", "damage found",
	"damaged leader without others in sync followed by who had all that could be read", "damaged log replaced", "durability changed", "elected from the ELR", "failed sync", "failover", "feed moved to another coordinator",
	"fenced by the coordinator", "folder wiped", "follower gives a silent stream up", "group clamped",
	"killed with unsynced entries in the page cache", "late word of a follower", "leader after none", "letter in the dead-letter topic", "letter sent again", "log of a deleted topic swept",
	"leader gives a silent stream up", "leader of the past", "lease that is newer than the feed", "log begun anew at the leader's start",
	"log damaged while its broker joins an ISR", "log start moved",
	"log truncated", "member calls through another gateway", "member falls silent", "member finds its life over", "member lets go of a partition", "min_insync changed", "move completed",
	"older copy of a folder restored", "older state refused", "orders that came during a cut", "partition without a leader", "producers of lost records forgotten",
	"purge", "purge of a leader of the past", "purged record refused by a later leader", "purge of lost records cut back",
	"push of a leader of the past", "push with a flipped bit", "read from a follower", "record before another one named as not acknowledged with it", "reader behind the log start", "records leased in an answer that was lost", "record lost that only its leader had",
	"refused: disk full", "refused: not enough replicas", "repeat answered with its original", "replica moved away", "replica moved away and back unheard",
	"replica moved away and back unseen by its leader", "replica that nobody else can stand in for, after another boot", "session over", "settled with a deaf broker", "settled with a leader cut off from its followers",
	"settled without one broker",
	"stream of another life refused", "takeover by a member of the ELR (C3)", "topic deleted and created again", "two failovers within a round trip",
	"unclean election", "unknown outcome of a publish", "unsynced entries lost with the power",
}

// A seed is worth nothing if it does not say everything.
func TestASeedIsPlayedTheSameEachTime(t *testing.T) {
	for seed := range uint64(10) {
		a, b := Run(seed), Run(seed)
		if a.Sum != b.Sum || a.Steps != b.Steps || a.Records != b.Records {
			t.Errorf("seed %d: %d steps, then %d", seed, a.Steps, b.Steps)
		}
	}
}

// Seeds that found this world wrong, and no mechanism of the product.
func TestSeedsThatTheWorldWasWrongAbout(t *testing.T) {
	for seed, what := range map[uint64]string{
		3975:  "two truths with more batches and fewer before the start of a log that was begun anew",
		42719: "a log's start that had not reached its disk when an unclean election chose it",
		43049: "the next topic was placed on the broker that stayed away for good",
		43579: "a folder that was lost twice could not be brought back as it was first",
		44066: "a broker acted on nothing new, and was to take over in time, in a world that was healed",
		45673: "as 43049, after a blackout",
		46300: "an epoch that was not noted on the disk yet was told the coordinator",
		49422: "the activation of the life before made a lost folder good",
		72981: "a clamp came again, after a purge of what had come since",
		79114: "a leader whose log's start had moved died before what it leased had come",
		74318: "the only other replica was well, and cut off from the coordinators",
	} {
		if r := Run(seed); r.Failure != nil {
			t.Errorf("seed %d (%s): %v", seed, what, r.Failure)
		}
	}
}

// Seeds that found mechanisms of the product wrong.
func TestSeedsThatTheProductWasWrongAbout(t *testing.T) {
	for seed, what := range map[uint64]string{
		71662: "a lease that was extended was taken back with the answer that it came in",
		78143: "a leader was heard before its disk had forgotten the producers of lost records",
	} {
		if r := Run(seed); r.Failure != nil {
			t.Errorf("seed %d (%s): %v", seed, what, r.Failure)
		}
	}
}

// play runs so many seeds on all processors, and hands over the results one at a time until
// that is enough. A world is small and throws much away, so the collector runs rarely.
func play(from, seeds uint64, took func(*Result) (more bool)) {
	defer debug.SetGCPercent(debug.SetGCPercent(1000))
	var (
		all  sync.WaitGroup
		mu   sync.Mutex
		next = from
		over bool
	)
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for {
				mu.Lock()
				seed := next
				next++
				enough := over || seed >= from+seeds
				mu.Unlock()
				if enough {
					return
				}
				r := Run(seed)
				mu.Lock()
				over = !took(r) || over // an earlier seed may be under way yet
				mu.Unlock()
			}
		})
	}
	all.Wait()
}

// report says what broke, after which faults, and how to see it again.
func report(t *testing.T, r *Result) {
	t.Helper()
	small := Shrink(r, 200)
	var b strings.Builder
	for _, f := range small.Faults {
		fmt.Fprintln(&b, f)
	}
	t.Errorf("seed %d: %v\n\nof its %d faults these are enough:\n%s\nand then: %v\nits end:\n%s\nagain: TEST_TIDEWIRE_SEED=%d go test -run TestSimulation ./internal/testkit/sim",
		r.Seed, r.Failure, len(r.Faults), &b, small.Failure, small.Trace, r.Seed)
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

func number(t *testing.T, name string) (uint64, bool) {
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
