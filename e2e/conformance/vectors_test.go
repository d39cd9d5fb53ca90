package conformance

import (
	"bytes"
	"encoding/json"
	"maps"
	"math"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"tidewire/e2e/asyncapi"
	"tidewire/gateway/cursor"
	"tidewire/gateway/reply"
	"tidewire/gateway/topology"
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

func read(t *testing.T, name string, into any) {
	t.Helper()
	b, err := Files.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

func cases[C any](t *testing.T, name string) []C {
	t.Helper()
	var v vectors[C]
	read(t, name, &v)
	if len(v.Cases) < 5 || len(v.Description) < 20 {
		t.Fatalf("%s has %d cases, and says of itself %q", name, len(v.Cases), v.Description)
	}
	return v.Cases
}

func TestHashesMapThroughGenerations(t *testing.T) {
	for _, c := range cases[struct {
		Says   string
		Layout struct {
			Generation uint64
			Partitions []struct {
				ID       uint32
				Lo, Hi   uint64
				State    string
				Children []ident.Index
			}
		}
		Owners [][2]*uint32
	}](t, "layouts.json") {
		topic := &cluster.Topic{}
		for _, p := range c.Layout.Partitions {
			topic.Partitions = append(topic.Partitions, cluster.Partition{
				Index: ident.Index(p.ID), Range: ident.HashRange{Lo: p.Lo, Hi: p.Hi}, State: cluster.PartitionState(p.State), Children: p.Children,
			})
		}
		for _, o := range c.Owners {
			switch owner := topology.Owner(topic, *o[0]); {
			case o[1] == nil && owner.State != cluster.Open:
			case o[1] != nil && owner.State == cluster.Open && uint32(owner.Index) == *o[1]:
			default:
				t.Errorf("%s: hash %d goes to partition %d, which is %s", c.Says, *o[0], owner.Index, owner.State)
			}
		}
	}
}

func TestCloseCodesAreThoseOfTheNode(t *testing.T) {
	var v struct {
		Codes  []struct{ Code int }
		Ranges []struct {
			From, To int
			Then     string
		}
	}
	read(t, "close.json", &v)
	var listed []int
	for _, c := range v.Codes {
		if c.Code != 1006 { // no node sends it: it is the lack of one
			listed = append(listed, c.Code)
		}
	}
	if node := document(t).CloseCodes(); !slices.Equal(listed, node) {
		t.Errorf("the vectors have %v, the document %v", listed, node)
	}
	for code, want := range map[int]string{reply.CloseSlowConsumer: "again", reply.CloseUnauthorized: "never", reply.CloseRestart: "again"} {
		for _, r := range v.Ranges {
			if r.From <= code && code <= r.To && r.Then != want {
				t.Errorf("%d: %s", code, r.Then)
			}
		}
	}
}

func document(t *testing.T) *asyncapi.Document {
	t.Helper()
	text, err := os.ReadFile("../../gateway/httpapi/asyncapi.json")
	if err != nil {
		t.Fatal(err)
	}
	d, err := asyncapi.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestBackoffIsFullJitter(t *testing.T) {
	for _, c := range cases[struct {
		Failures int     `json:"failures"`
		Min      float64 `json:"min_ms"`
		Max      float64 `json:"max_ms"`
		Random   float64 `json:"random"`
		Wait     float64 `json:"wait_ms"`
	}](t, "backoff.json") {
		bound := c.Min
		for n := 1; n < c.Failures && bound < c.Max; n++ {
			bound *= 2
		}
		if got := c.Random * min(bound, c.Max); got != c.Wait || c.Random < 0 || c.Random >= 1 {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestDurationsAreThoseOfTheNode(t *testing.T) {
	for _, c := range cases[struct {
		Text string
		MS   float64
	}](t, "durations.json") {
		d, err := time.ParseDuration(c.Text)
		if err != nil || math.Abs(float64(d)/1e6-c.MS) > 1e-6 {
			t.Errorf("%s is %v, %v", c.Text, d, err)
		}
	}
}

// What a frame consists of is told by the document, but for what is of a later version.
func TestFramesAreThoseOfTheDocument(t *testing.T) {
	d := document(t)
	for _, c := range cases[struct {
		Says, Text string
		Frames     []map[string]any
	}](t, "frames.json") {
		later := c.Says == "an op, and a member, of a later version"
		if err := d.FromServer([]byte(c.Text)); (err != nil) != later {
			t.Errorf("%s: %v", c.Says, err)
		}
		var lines []map[string]any
		for _, f := range c.Frames {
			if messages, ok := f["messages"].([]any); ok {
				head := map[string]any{"op": f["op"], "sub": f["sub"], "count": float64(len(messages))}
				lines = append(lines, head)
				for _, m := range messages {
					lines = append(lines, m.(map[string]any))
				}
				continue
			}
			lines = append(lines, f)
		}
		for i, text := range bytes.Split([]byte(c.Text), []byte("\n")) {
			var line map[string]any
			if err := json.Unmarshal(text, &line); err != nil || i >= len(lines) || !reflect.DeepEqual(line, lines[i]) {
				t.Errorf("%s: line %d is %s (%v)", c.Says, i, text, err)
			}
		}
	}
}

func TestCursorsAreThoseOfTheNode(t *testing.T) {
	var v cursorVectors
	read(t, "cursors.json", &v)
	for _, c := range v.Cursors {
		if _, err := cursor.Parse(c.Cursor); err != nil || len(c.Cursor) > cursor.MaxBytes {
			t.Errorf("%s: %v", c.Says, err)
		}
	}
	for _, a := range v.After {
		spelled := map[string]int64{}
		for pair := range strings.SplitSeq(a.Query, ",") {
			partition, offset, _ := strings.Cut(pair, ":")
			n, err := strconv.ParseInt(offset, 10, 64)
			if err != nil {
				t.Errorf("%s: %v", a.Query, err)
			}
			spelled[partition] = n
		}
		if !maps.Equal(spelled, a.Frame) {
			t.Errorf("%v is not %s", a.Frame, a.Query)
		}
	}
}
