package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"tidewire/internal/record"
	"tidewire/internal/wire"
)

func allLines(t interface{ Fatal(...any) }, in *inputs) (all []line) {
	defer in.close()
	for {
		l, ok, err := in.next()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return all
		}
		all = append(all, l)
	}
}

func TestFilesAreReadLineByLine(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		var names []string
		var want []line
		for f := range rapid.IntRange(1, 3).Draw(t, "files") {
			name := filepath.Join(dir, fmt.Sprint(f))
			names = append(names, name)
			var text strings.Builder
			texts := rapid.SliceOf(rapid.StringMatching(`[a-z\t]{0,20}`)).Draw(t, "lines")
			last := rapid.Bool().Draw(t, "last line ends")
			for i, s := range texts {
				text.WriteString(s)
				if end := rapid.SampledFrom([]string{"\n", "\r\n"}).Draw(t, "end"); i < len(texts)-1 || last {
					text.WriteString(end)
				}
				if i == len(texts)-1 && !last && s == "" {
					continue // nothing after the last end is no line
				}
				want = append(want, line{source: name, number: i + 1, text: []byte(s)})
			}
			if err := os.WriteFile(name, []byte(text.String()), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		in, err := openInputs(nil, names)
		if err != nil {
			t.Fatal(err)
		}
		total := in.bytes
		got := allLines(t, in)
		if len(got) != len(want) || in.done() != total {
			t.Fatalf("%d lines, want %d; %d of %d bytes", len(got), len(want), in.done(), total)
		}
		for i, l := range got {
			if l.source != want[i].source || l.number != want[i].number || !bytes.Equal(l.text, want[i].text) {
				t.Fatalf("line %d: %+v, want %+v", i, l, want[i])
			}
		}
	})
}

func TestALineThatIsTooLongIsPassedOver(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	long := bytes.Repeat([]byte("x"), maxLineBytes+1)
	if err := os.WriteFile(name, slicesJoin("a", string(long), "b", string(long)), 0o600); err != nil {
		t.Fatal(err)
	}
	in, err := openInputs(nil, []string{name})
	if err != nil {
		t.Fatal(err)
	}
	all := allLines(t, in)
	if len(all) != 4 || !all[1].tooLong || string(all[2].text) != "b" || all[2].number != 3 || !all[3].tooLong {
		t.Fatalf("%d lines", len(all))
	}
	if _, err := (encoder{}).encode(all[1]); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("got %v", err)
	}
}

func slicesJoin(lines ...string) []byte { return []byte(strings.Join(lines, "\n")) }

func TestAWrongFileStopsBeforeAnythingIsRead(t *testing.T) {
	dir := t.TempDir()
	_, err := openInputs(nil, []string{"missing-1", dir, "missing-2"})
	if err == nil || exitCode(err) != exitUsage {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{"missing-1", "missing-2", "is a folder"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}
}

// TestTheServerReadsWhatTheLineSaid holds the encoder against the server's own
// reading of a line.
func TestTheServerReadsWhatTheLineSaid(t *testing.T) {
	value := rapid.OneOf(
		rapid.StringMatching(`\{"k": ?"[a-zü]{0,5}", ?"n":[0-9]{1,3}\}`),
		rapid.StringMatching(`[ -~]{1,30}`),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 1, 30), func(b []byte) string { return string(b) }),
	)
	rapid.Check(t, func(t *rapid.T) {
		text := []byte(value.Draw(t, "text"))
		f := publishFlags{
			key:         rapid.SampledFrom([]string{"", "ann", "ü \"quoted\""}).Draw(t, "key"),
			contentType: rapid.SampledFrom([]string{"", "text/plain", "application/x-thing"}).Draw(t, "type"),
			headers:     rapid.SampledFrom([][]string{nil, {"a=1", "B=x=y"}}).Draw(t, "headers"),
		}
		enc, err := newEncoder(f)
		if err != nil {
			t.Fatal(err)
		}
		rec, err := enc.encode(line{number: 3, text: text})
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Count(rec.JSON, []byte("\n")) != 1 || rec.JSON[len(rec.JSON)-1] != '\n' {
			t.Fatalf("not one line: %q", rec.JSON)
		}
		p, err := wire.ParseLine(rec.JSON[:len(rec.JSON)-1])
		if err != nil {
			t.Fatalf("refused: %v\n%s", err, rec.JSON)
		}
		want := f.contentType
		if want == "" {
			want = wire.GuessContentType(text)
		}
		got := p.Record
		wantValue := text
		if want == record.JSON {
			wantValue = bytes.TrimSpace(text)
		}
		if string(got.Key) != f.key || got.ContentType != want || len(got.Headers) != len(f.headers) || !bytes.Equal(got.Value, wantValue) {
			t.Fatalf("the server reads key %q type %q headers %v value %q of %s", got.Key, got.ContentType, got.Headers, got.Value, rec.JSON)
		}
	})
}

func TestHeadersAreCheckedTogether(t *testing.T) {
	_, err := newEncoder(publishFlags{headers: []string{"none", "Tidewire-X=1", "a=1", "A=2"}})
	if err == nil || strings.Count(err.Error(), "--header:") != 3 {
		t.Errorf("got %v", err)
	}
}

func TestTheKeyOfAFieldIsAlwaysAKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`\{("k": ?("[a-zü\\\\nu0]{0,6}"|null|true|-?1e5|\{\}|\[1\]),?){0,2}\}|\[\]|"k"|`).Draw(t, "text")
		key, err := keyOf([]byte(text), "k")
		if err == nil && (key == "" || !utf8.ValidString(key) || len(key) > wire.MaxKeyBytes) {
			t.Fatalf("key %q of %s", key, text)
		}
	})
	for text, want := range map[string]string{`{"k":"a\u00fc"}`: "aü", `{"k": 1e5}`: "1e5", `{"k":true}`: "true", `{"k":0}`: "0"} {
		if key, err := keyOf([]byte(text), "k"); key != want || err != nil {
			t.Errorf("%s: %q, %v", text, key, err)
		}
	}
}
