// Package brief reads what `tidewire bench` prints and sets the processor time of a
// message beside the floor of the same run. It is pure.
package brief

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Path is one way of a message through the node, and how it is measured.
type Path struct {
	Name string
	Args []string // of tidewire bench
	Beat string   // the floor that it is set beside, as the benchmark names it
}

// Paths are the main ones.
func Paths() []Path {
	bench := func(args string) []string {
		return append(strings.Fields(args), "--spawn", "--runs", "2", "--duration", "1500ms", "--warmup", "500ms")
	}
	const echo, fan = "websocket echo", "bare websocket fan-out"
	return []Path{
		{"publish, 256 connections", bench("publish --publishers 256"), echo},
		{"publish, 1 connection, 1,000 in flight", bench("publish --publishers 1 --window 1000"), echo},
		{"replicate, 3 nodes, 256 connections", bench("publish --nodes 3 --publishers 256"), echo},
		{"fan-out to 10,000, 1 in flight", bench("fanout --subscribers 10000"), fan},
		{"fan-out to 10,000, 8 in flight", bench("fanout --subscribers 10000 --in-flight 8"), fan},
		{"request and reply, 64 requesters", bench("requests --requesters 64 --responders 4"), echo},
	}
}

// Cost is a path's processor time a message, in µs: the node's, and the floor's server's.
type Cost struct {
	Path        string
	Node, Floor float64
}

// Ratio is how many times the floor a message costs.
func (c Cost) Ratio() float64 { return c.Node / c.Floor }

type line struct {
	Kind, Floor string
	Best        bool
	Server      *struct {
		CPU float64 `json:"cpu_us"`
	}
}

// Read reads the output of one benchmark.
func Read(p Path, from io.Reader) (Cost, error) {
	c := Cost{Path: p.Name}
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var l line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return c, fmt.Errorf("%s: %.200s: %w", p.Name, lines.Bytes(), err)
		}
		switch {
		case l.Server == nil:
		case l.Kind == "floor" && l.Floor == p.Beat:
			c.Floor = l.Server.CPU
		case l.Kind == "run" && l.Best:
			c.Node = l.Server.CPU
		}
	}
	if err := lines.Err(); err != nil {
		return c, err
	}
	if c.Node <= 0 || c.Floor <= 0 {
		return c, errors.New(p.Name + ": the benchmark did not say what a message or its floor costs")
	}
	return c, nil
}

// Table is the costs for people.
func Table(all []Cost) string {
	var b strings.Builder
	b.WriteString("| path | node, µs a message | floor, µs | ratio |\n|---|---|---|---|\n")
	for _, c := range all {
		fmt.Fprintf(&b, "| %s | %.2f | %.2f | %.2f |\n", c.Path, c.Node, c.Floor, c.Ratio())
	}
	return b.String()
}
