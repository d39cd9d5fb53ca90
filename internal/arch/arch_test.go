package arch

import (
	"os"
	"testing"
)

func house(t *testing.T) *Tree {
	t.Helper()
	tree, err := Load(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	if len(tree.Files) < 20 {
		t.Fatalf("only %d files found: this is not the module", len(tree.Files))
	}
	return tree
}

func TestTheHouseKeepsItsRules(t *testing.T) {
	tree := house(t)
	for _, rule := range Rules() {
		t.Run(rule.Name, func(t *testing.T) {
			bad := rule.Check(tree)
			for _, f := range bad {
				t.Errorf("%s: %s", f.Where, f.What)
			}
			if len(bad) > 0 {
				t.Log("why: " + rule.Reason)
			}
		})
	}
}

func TestSizesAreReported(t *testing.T) {
	for _, f := range house(t).Long() {
		t.Logf("%s has %d lines", f.Path, f.Lines)
	}
}
