package layout_test

import (
	"testing"

	"pgregory.net/rapid"

	"tidewire/coordinator/layout"
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

func TestEveryHashBelongsToExactlyOnePartition(t *testing.T) {
	for n := 1; n <= cluster.MaxPartitions; n++ {
		ranges := layout.Even(n)
		if err := layout.Check(ranges); err != nil {
			t.Fatalf("%d partitions: %v", n, err)
		}
		narrow, wide := ident.HashSpace, uint64(0)
		for _, r := range ranges {
			narrow, wide = min(narrow, r.Hi-r.Lo), max(wide, r.Hi-r.Lo)
		}
		if wide-narrow > 1 {
			t.Fatalf("%d partitions: ranges of %d to %d hashes are not even", n, narrow, wide)
		}
	}
}

func TestKeysFindTheirPartition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ranges := layout.Even(rapid.IntRange(1, cluster.MaxPartitions).Draw(t, "partitions"))
		hash := ident.KeyHash(rapid.String().Draw(t, "key"))
		owners := 0
		for _, r := range ranges {
			if r.Contains(hash) {
				owners++
			}
		}
		if owners != 1 {
			t.Fatalf("hash %d has %d owners", hash, owners)
		}
	})
}

func TestCheckFindsWhatIsWrong(t *testing.T) {
	half := ident.HashSpace / 2
	for name, ranges := range map[string][]ident.HashRange{
		"nothing":       {},
		"gap at start":  {{Lo: 1, Hi: ident.HashSpace}},
		"gap in middle": {{Lo: 0, Hi: half}, {Lo: half + 1, Hi: ident.HashSpace}},
		"gap at end":    {{Lo: 0, Hi: half}},
		"overlap":       {{Lo: 0, Hi: half + 1}, {Lo: half, Hi: ident.HashSpace}},
		"twice":         {{Lo: 0, Hi: ident.HashSpace}, {Lo: 0, Hi: ident.HashSpace}},
		"inside":        {{Lo: 0, Hi: ident.HashSpace}, {Lo: 5, Hi: 6}},
		"empty":         {{Lo: 0, Hi: 0}, {Lo: 0, Hi: ident.HashSpace}},
		"too far":       {{Lo: 0, Hi: ident.HashSpace + 1}},
	} {
		if layout.Check(ranges) == nil {
			t.Errorf("%s: %v passed", name, ranges)
		}
	}
}
