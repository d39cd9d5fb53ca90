package redis

import (
	"slices"
	"strings"
	"testing"

	"tidewire/internal/bench/load"
	"tidewire/internal/bench/message"
)

func TestAnswersAreTakenWhole(t *testing.T) {
	for _, answer := range []string{"+OK\r\n", "-ERR no\r\n", ":3\r\n", "$-1\r\n", "*-1\r\n", "$3\r\na\r\n\r\n", "*2\r\n*2\r\n$1\r\na\r\n:4\r\n*0\r\n"} {
		for n := range len(answer) {
			if _, whole := skip([]byte(answer[:n])); whole {
				t.Errorf("%q is taken for whole", answer[:n])
			}
		}
		if size, whole := skip([]byte(answer + "+more\r\n")); !whole || size != len(answer) {
			t.Errorf("%q: size %d, whole %v", answer, size, whole)
		}
	}
}

type answers struct{ kept, refused []int }

func (a *answers) Answered(slot, kept, _ int, _ error) error {
	if kept > 0 {
		a.kept = append(a.kept, slot)
	} else {
		a.refused = append(a.refused, slot)
	}
	return nil
}

func TestAnswersComeInTheOrderOfCommands(t *testing.T) {
	p := Publisher(load.Records{Topic: "s", Bytes: message.MinBytes}).(*publisher)
	b := p.Append(nil, 3, 0)
	b = p.Append(b, 1, 1)
	p.Append(b, 2, 2)
	if want := "*5\r\n$4\r\nXADD\r\n$1\r\ns\r\n$1\r\n*\r\n$1\r\nd\r\n"; !strings.HasPrefix(string(b), want) {
		t.Errorf("a command is %q", b)
	}
	a := &answers{}
	text := []byte("$3\r\n1-0\r\n-ERR no\r\n$3\r\n1-")
	used, err := p.Read(text, a)
	if err != nil || !slices.Equal(a.kept, []int{3}) || !slices.Equal(a.refused, []int{1}) {
		t.Fatalf("kept %v, refused %v, %v", a.kept, a.refused, err)
	}
	if _, err := p.Read(append(text[used:], "1\r\n"...), a); err != nil || !slices.Equal(a.kept, []int{3, 2}) {
		t.Errorf("kept %v, %v", a.kept, err)
	}
	if _, err := p.Read([]byte("+OK\r\n"), a); err == nil {
		t.Error("an answer to nothing is taken")
	}
}

func TestTheValuesOfAnAnswer(t *testing.T) {
	var all []string
	err := bulks([]byte("*1\r\n*2\r\n$3\r\n1-0\r\n*2\r\n$1\r\nd\r\n$5\r\nvalue\r\n"), func(s []byte) error {
		all = append(all, string(s))
		return nil
	})
	if err != nil || !slices.Equal(all, []string{"1-0", "d", "value"}) {
		t.Errorf("got %v, %v", all, err)
	}
}
