package main

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"
)

// command is one in a document, and what it prints there.
var command = regexp.MustCompile("(?s)```sh\n(tidewire capacity --from cmd/.*?)```\n\n```text\n(.*?)```\n")

// Every output in docs/capacity.md is what its command prints; with UPDATE_SCRIPTS it
// becomes that.
func TestCapacityIsWhatTheDocumentSays(t *testing.T) {
	t.Chdir("../..")
	const name = "docs/capacity.md"
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	cases := 0
	is := command.ReplaceAllStringFunc(string(text), func(block string) string {
		cases++
		m := command.FindStringSubmatch(block)
		args := strings.Fields(strings.ReplaceAll(m[1], "\\\n", " "))[1:]
		var out, problems bytes.Buffer
		if code := execute(args, process{out: &out, err: &problems}); code != exitOK {
			t.Fatalf("%v: exit code %d: %s", args, code, &problems)
		}
		if out.String() != m[2] {
			t.Logf("%v prints\n%s", args, &out)
		}
		return strings.Replace(block, "```text\n"+m[2]+"```", "```text\n"+out.String()+"```", 1)
	})
	if cases != 3 {
		t.Errorf("%d cases are worked through", cases)
	}
	switch {
	case is == string(text):
	case os.Getenv("UPDATE_SCRIPTS") != "":
		if err := os.WriteFile(name, []byte(is), 0o666); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s does not say what the commands print; look at it, and at UPDATE_SCRIPTS=1 go test -run %s ./cmd/tidewire", name, t.Name())
	}
}
