package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// planted is a fault that somebody could have made: texts of source files and what to
// put in their places. It is built into a test binary of its own, by an overlay; no
// source changes, and production code knows nothing of it.
type planted struct {
	name, rule, breaks string
	edits              []edit
}

type edit struct{ file, old, new string }

// Of the faults that every go test plants, each needs a test binary of its own.
const (
	plantedSeeds = 500
	root         = "../../.."
	verification = root + "/docs/verification.md"
)

var plantedInEveryRun = []string{"acks-before-fsync", "narrow-isr-at-once", "skip-leso"}

func TestEveryPlantedFaultCanBePlanted(t *testing.T) {
	all := plants(t)
	if len(all) < 20 {
		t.Errorf("there are %d planted faults", len(all))
	}
	doc, err := os.ReadFile(verification)
	if err != nil {
		t.Fatal(err)
	}
	var rules []string
	for _, p := range all {
		rules = append(rules, strings.Fields(p.rule)...)
		for _, e := range p.edits {
			if _, err := e.source(); err != nil {
				t.Errorf("%s: %v", p.name, err)
			}
		}
		if row := regexp.MustCompile("(?m)^\\| `" + p.name + "` \\| .* \\| ([0-9]+) \\|$"); !row.Match(doc) {
			t.Errorf("%s: %s has no row with the seed that finds it", p.name, verification)
		}
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z0-9-]+)` \\| [^|]* \\| [^|]* \\| [0-9]+ \\|$").FindAllSubmatch(doc, -1) {
		if !slices.ContainsFunc(all, func(p planted) bool { return p.name == string(m[1]) }) {
			t.Errorf("%s has a row for %s, which is not there", verification, m[1])
		}
	}
	for _, rule := range []string{"A1", "A2", "A3", "A4", "A8", "A11", "A12", "B7", "B9", "C1", "C2", "C3"} {
		if !slices.Contains(rules, rule) {
			t.Errorf("no planted fault breaks rule %s", rule)
		}
	}
}

// TestPlantedFaultsAreFound builds the simulation with a fault in it, and plays seeds
// until one finds it: some faults in every run, all of them, or those that it names, if
// TEST_TIDEWIRE_PLANTED says so.
func TestPlantedFaultsAreFound(t *testing.T) {
	if os.Getenv("TEST_TIDEWIRE_SEARCH") != "" {
		t.Fatal("a search does not plant faults")
	}
	names := plantedInEveryRun
	wanted := os.Getenv("TEST_TIDEWIRE_PLANTED")
	if wanted != "" {
		names = strings.Fields(wanted)
	}
	var table strings.Builder
	for _, p := range plants(t) {
		if wanted != "all" && !slices.Contains(names, p.name) {
			continue
		}
		began := time.Now()
		seed, invariant, err := p.search(t)
		if err != nil {
			t.Errorf("%s (%s): %v", p.name, p.breaks, err)
			continue
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s | %d |\n", p.name, p.rule, p.breaks, seed)
		t.Logf("%s: seed %d, %s (%s)", p.name, seed, invariant, time.Since(began).Round(time.Second))
	}
	t.Logf("\n%s", &table)
}

// TestSearch plays seeds until one breaks something; it is what a binary with a planted
// fault runs.
func TestSearch(t *testing.T) {
	most, ok := number(t, "TEST_TIDEWIRE_SEARCH")
	if !ok {
		most = 1 // and finds nothing, as there is no fault
	}
	var first *Result
	play(0, most, func(r *Result) bool {
		if r.Failure != nil && (first == nil || r.Seed < first.Seed) {
			first = r
		}
		return first == nil
	})
	if first != nil {
		t.Errorf("found: seed %d: %s", first.Seed, first.Failure.Invariant)
	}
}

func plants(t *testing.T) (all []planted) {
	t.Helper()
	files, err := filepath.Glob("testdata/planted/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		p, err := parsePlanted(string(text))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		p.name = strings.TrimSuffix(filepath.Base(name), ".txt")
		all = append(all, p)
	}
	return all
}

// parsePlanted reads "rule: …" and "breaks: …", and then of each file "file: …", and after
// lines of "--- replace", "--- with" and "---" the texts between them.
func parsePlanted(text string) (p planted, err error) {
	for rest := text; strings.TrimSpace(rest) != ""; {
		head, body, ok := strings.Cut(rest, "--- replace\n")
		if !ok {
			return p, fmt.Errorf("nothing is replaced")
		}
		var e edit
		for line := range strings.Lines(head) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			switch key {
			case "rule":
				p.rule = value
			case "breaks":
				p.breaks = value
			case "file":
				e.file = value
			default:
				return p, fmt.Errorf("an unknown line: %s", line)
			}
		}
		var with string
		if e.old, with, ok = strings.Cut(body, "--- with\n"); !ok {
			return p, fmt.Errorf("it is replaced with nothing")
		}
		if e.new, rest, ok = strings.Cut(with, "\n---\n"); !ok {
			return p, fmt.Errorf("it has no end")
		}
		if e.file == "" || slices.ContainsFunc(p.edits, func(o edit) bool { return o.file == e.file }) {
			return p, fmt.Errorf("each text is in a file of its own")
		}
		e.old = strings.TrimSuffix(e.old, "\n")
		p.edits = append(p.edits, e)
	}
	if p.rule == "" || p.breaks == "" || len(p.edits) == 0 {
		return p, fmt.Errorf("rule, breaks and file are needed")
	}
	return p, nil
}

// source is the file with the fault in it.
func (e *edit) source() (string, error) {
	b, err := os.ReadFile(filepath.Join(root, e.file))
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(b), e.old); n != 1 {
		return "", fmt.Errorf("what it replaces stands %d times in %s, not once", n, e.file)
	}
	return strings.Replace(string(b), e.old, e.new, 1), nil
}

// search builds the test binary with the fault, and runs it.
func (p *planted) search(t *testing.T) (seed uint64, invariant string, err error) {
	dir := t.TempDir()
	overlay, binary := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "sim.test")
	replace := map[string]string{}
	for i, e := range p.edits {
		source, err := e.source()
		if err != nil {
			return 0, "", err
		}
		abs, err := filepath.Abs(filepath.Join(root, e.file))
		if err != nil {
			return 0, "", err
		}
		replace[abs] = filepath.Join(dir, fmt.Sprintf("mutant%d.go", i))
		if err := os.WriteFile(replace[abs], []byte(source), 0o600); err != nil {
			return 0, "", err
		}
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return 0, "", err
	}
	if err := os.WriteFile(overlay, list, 0o600); err != nil {
		return 0, "", err
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "go", "test", "-c", "-ldflags=-s -w", "-overlay", overlay, "-o", binary, ".").CombinedOutput(); err != nil {
		return 0, "", fmt.Errorf("build: %w\n%s", err, out)
	}
	cmd := exec.CommandContext(ctx, binary, "-test.run", "^TestSearch$")
	cmd.Env = append(os.Environ(), "TEST_TIDEWIRE_SEARCH="+strconv.Itoa(plantedSeeds))
	out, err := cmd.CombinedOutput()
	m := regexp.MustCompile(`found: seed ([0-9]+): ([a-z-]+)`).FindSubmatch(out)
	if m == nil {
		return 0, "", fmt.Errorf("not found by %d seeds (%v): %s", plantedSeeds, err, bytes.TrimSpace(out))
	}
	seed, err = strconv.ParseUint(string(m[1]), 10, 64)
	return seed, string(m[2]), err
}
