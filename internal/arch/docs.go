package arch

import (
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// docRoots are the folders of the top level that a document may name a path in.
var docRoots = []string{".ci", "broker", "cmd", "coordinator", "docs", "e2e", "examples", "gateway", "internal", "sdk-js", "web"}

var (
	span     = regexp.MustCompile("`([^`\n]+)`")
	pathLike = regexp.MustCompile(`^[A-Za-z0-9_.{},/-]+$`)
	testLike = regexp.MustCompile(`^(Test|Fuzz|Benchmark)[A-Z][A-Za-z0-9]*$`)
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	metric   = regexp.MustCompile("`((?:gateway|broker|coordinator|node)_[a-z_]+)`")
	makeLike = regexp.MustCompile(`\bmake ([a-z][a-z0-9-]*)`)
	target   = regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):`)
)

// prose is a document without its fenced blocks, and those blocks.
func prose(text string) (plain, fenced string) {
	var p, f strings.Builder
	inside := false
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(strings.TrimSpace(line), "```"):
			inside = !inside
		case inside:
			f.WriteString(line)
		default:
			p.WriteString(line)
		}
	}
	return p.String(), f.String()
}

// namedPaths lists the files and folders of the repository that a document
// names in backticks; a list in braces is written out.
func namedPaths(text string) []string {
	plain, _ := prose(text)
	var all []string
	for _, m := range span.FindAllStringSubmatch(plain, -1) {
		word := strings.TrimSuffix(strings.TrimSuffix(m[1], "/..."), "/")
		first, _, nested := strings.Cut(word, "/")
		if !pathLike.MatchString(word) || !slices.Contains(docRoots, first) {
			continue
		}
		if nested || strings.HasSuffix(m[1], "/") { // one word alone is more often a word
			all = append(all, braces(word)...)
		}
	}
	return all
}

func braces(word string) []string {
	open, end := strings.Index(word, "{"), strings.Index(word, "}")
	if open < 0 || end < open {
		return []string{word}
	}
	var all []string
	for part := range strings.SplitSeq(word[open+1:end], ",") {
		all = append(all, braces(word[:open]+part+word[end+1:])...)
	}
	return all
}

// namedTests lists the test functions that a document names in backticks.
func namedTests(text string) []string {
	plain, _ := prose(text)
	var all []string
	for _, m := range span.FindAllStringSubmatch(plain, -1) {
		if testLike.MatchString(m[1]) {
			all = append(all, m[1])
		}
	}
	return all
}

// links lists the places in the repository that a document links to.
func links(name, text string) []string {
	plain, _ := prose(text)
	var all []string
	for _, m := range link.FindAllStringSubmatch(plain, -1) {
		to, _, _ := strings.Cut(m[1], "#")
		if to == "" || strings.Contains(to, ":") {
			continue
		}
		all = append(all, path.Join(path.Dir(name), to))
	}
	return all
}

// makeTargets lists the targets of the Makefile that a document names.
func makeTargets(text string) []string {
	plain, fenced := prose(text)
	var all []string
	for _, m := range span.FindAllStringSubmatch(plain, -1) {
		fenced += "\n" + m[1]
	}
	for _, m := range makeLike.FindAllStringSubmatch(fenced, -1) {
		all = append(all, m[1])
	}
	return all
}

// documents reads every Markdown file of the top level, of docs and of the examples.
func documents(fsys fs.FS) (map[string]string, error) {
	all := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "examples/*.md", "examples/*/*.md"} {
		names, err := fs.Glob(fsys, pattern)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			text, err := fs.ReadFile(fsys, name)
			if err != nil {
				return nil, err
			}
			all[name] = string(text)
		}
	}
	return all, nil
}
