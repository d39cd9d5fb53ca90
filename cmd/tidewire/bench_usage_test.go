package main

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestABenchmarkRefusesFlagsThatCannotWork: what would be left out of account in
// silence is an error of usage, before anything is called.
func TestABenchmarkRefusesFlagsThatCannotWork(t *testing.T) {
	for args, want := range map[string]string{
		"restart --spawn --server http://127.0.0.1:1":          "no flag --server",
		"restart --spawn --topic x":                            "no flag --topic",
		"restart --spawn --server-pid 1":                       "no flag --server-pid",
		"publish --spawn --topic x":                            "--topic: the server that --spawn starts has no topics",
		"publish --topic x --partitions 3":                     "--partitions: --topic names a topic",
		"publish --spawn-arg --max-connections=0":              "--spawn-arg: no server is started",
		"publish --batch 3":                                    "--batch: a request over ws has one record",
		"publish --transport http --batch 3":                   "--batch: a request over http has one record",
		"publish --rate 20000000":                              "20000000 is not between 0 and 10000000",
		"groups --topic x":                                     "--topic: the groups are measured on a topic that holds nothing else",
		"groups --records 10000000 --bytes 1000":               "--records and --bytes: the topic that is made keeps",
		"groups --bytes -64":                                   "--bytes: -64 is not between",
		"requests --topic x":                                   "--topic: whoever else serves it would answer too",
		"requests --requesters 400000 --window 1000":           "--requesters, --window and --bytes: more than",
		"publish --publishers 400000 --window 1000":            "--publishers, --window and --bytes: more than",
		"connections":                                          "the server's memory is what is measured",
		"restart":                                              "let --spawn start one for it",
		"restart --spawn --rate 0":                             "--rate: what comes through a restart",
		"groups --idle-groups 5 --spawn --partitions 2":        "--idle-groups: they are measured on a topic of one partition",
		"groups --idle-groups 5":                               "--idle-groups: the server's memory is what is measured",
		"publish --server http://127.0.0.1:1 --token \"a b\"":  "--token: a token has letters",
		"publish --server http://127.0.0.1:80 --server-pid -7": "--server-pid: no process -7",
	} {
		t.Run(args, func(t *testing.T) {
			var out, errs bytes.Buffer
			line := strings.Fields("bench " + args)
			if i := slices.Index(line, "--token"); i >= 0 {
				line = append(line[:i], "--token", "a b")
			}
			code := execute(line, process{in: os.Stdin, out: &out, err: &errs})
			if code != exitUsage || !strings.Contains(errs.String(), want) {
				t.Errorf("exit code %d: %s, want %q", code, errs.String(), want)
			}
		})
	}
}

func TestTheHistogramOfARestartHasNoHoles(t *testing.T) {
	got := histogram([]int{0, 5, 0, 10, 0, 0, 0, 0, 0, 0, 5}, 20)
	want := []string{
		"   0.0 s      0   0.0 %",
		"   0.1 s      5  25.0 % #########################",
		"   0.2 s      0   0.0 %",
		"   0.3 s     10  50.0 % ##################################################",
		"   0.4 s to 1.0 s: nobody",
		"   1.0 s      5  25.0 % #########################",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := histogram(nil, 0); len(got) != 0 {
		t.Errorf("of nobody: %q", got)
	}
}
