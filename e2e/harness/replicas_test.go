package harness

import (
	"strings"
	"testing"

	"tidewire/internal/ident"
	"tidewire/internal/record"
)

// replica has a batch of one record for each value, from an offset on.
func replica(dir string, start ident.Offset, values ...string) Replica {
	r := Replica{Dir: dir, Start: start, End: start}
	for _, v := range values {
		var build record.Builder
		build.Add(&record.Record{Value: []byte(v), ContentType: "text/plain"})
		b := build.Seal()
		b.Assign(record.Place{Base: r.End, Epoch: 1})
		r.Batches = append(r.Batches, b)
		r.End++
	}
	return r
}

func TestReplicasAreComparedByteByByte(t *testing.T) {
	whole := replica("a", 0, "0", "1", "2", "3")
	for name, c := range map[string]struct {
		other Replica
		want  string
	}{
		"the same":                      {replica("b", 0, "0", "1", "2", "3"), ""},
		"retention was here first":      {replica("b", 2, "2", "3"), ""},
		"all of it is gone":             {replica("b", 4), ""},
		"a byte differs":                {replica("b", 0, "0", "1", "X", "3"), "batch 2 differs"},
		"a byte differs, later start":   {replica("b", 2, "X", "3"), "batch 0 differs"},
		"the end is missing":            {replica("b", 0, "0", "1", "2"), "ends at 4"},
		"the end is there, not a batch": {Replica{Dir: "b", End: 4, Batches: whole.Batches[:3]}, "has 4 batches"},
	} {
		err := sameLog(whole, c.other)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
