package conformance

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"testing"

	"github.com/google/uuid"

	"tidewire/gateway/cursor"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
)

var rewrite = flag.Bool("rewrite", false, "write the vectors that are made from the code")

// Two of the vectors are made from the node's code; make vectors writes them.
func TestGeneratedVectorsAreCurrent(t *testing.T) {
	for name, made := range map[string]any{"codes.json": codes(), "cursors.json": cursors()} {
		var want bytes.Buffer
		e := json.NewEncoder(&want)
		e.SetEscapeHTML(false)
		e.SetIndent("", " ")
		if err := e.Encode(made); err != nil {
			t.Fatal(err)
		}
		if *rewrite {
			if err := os.WriteFile(name, want.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, want.Bytes()) {
			t.Errorf("%s is not what the code says (%v): make vectors", name, err)
		}
	}
}

type vectors[C any] struct {
	Description string `json:"description"`
	Cases       []C    `json:"cases"`
}

type code struct {
	Code      string `json:"code"`
	Status    int    `json:"status"`
	Title     string `json:"title"`
	Retryable bool   `json:"retryable"`
}

func codes() vectors[code] {
	v := vectors[code]{Description: "The code of every error: its status over HTTP, its title, and whether the same call may succeed later without a change. A member \"retryable\":false of an error says that this one will not. A code that is not listed is of a later version: take it for one that is not. Made from the code of the node."}
	for _, k := range fault.Kinds() {
		v.Cases = append(v.Cases, code{k.Code(), k.Status(), k.Title(), k.Retryable()})
	}
	return v
}

type cursorVectors struct {
	Description string `json:"description"`
	Cursors     []struct {
		Says   string `json:"says"`
		Cursor string `json:"cursor"`
	} `json:"cursors"`
	After []after `json:"after"`
}

type after struct {
	Frame map[string]int64 `json:"frame"`
	Query string           `json:"query"`
}

func cursors() cursorVectors {
	v := cursorVectors{Description: "Cursors as a node writes them: opaque, of at most 4096 bytes that need no escaping in a URL, to be kept and given back as they are. And after, the last offset seen of each partition, as frames have it and as queries have it. Made from the code of the node."}
	topic := ident.TopicID(uuid.MustParse("0193b0a6-7c1e-7d0c-8f2a-3a1b2c3d4e5f"))
	for _, c := range []struct {
		says       string
		partitions int
		offset     int64
	}{
		{"an empty topic of one partition", 1, 0},
		{"one partition", 1, 41},
		{"four partitions", 4, 1 << 20},
		{"as many as there may be, far on", 256, 1<<53 - 2},
	} {
		at := cursor.Cursor{Topic: topic, Generation: 1, Range: ident.HashRange{Hi: 1 << 32}}
		for i := range c.partitions {
			at.Places = append(at.Places, cursor.Place{Partition: ident.Index(i), Epoch: 3, Offset: ident.Offset(c.offset)})
		}
		v.Cursors = append(v.Cursors, struct {
			Says   string `json:"says"`
			Cursor string `json:"cursor"`
		}{c.says, at.String()})
	}
	v.After = []after{
		{map[string]int64{"0": 17}, "0:17"},
		{map[string]int64{"0": 17, "1": 20}, "0:17,1:20"},
		{map[string]int64{"3": 0, "255": 1<<53 - 1}, "3:0,255:9007199254740991"},
	}
	return v
}
