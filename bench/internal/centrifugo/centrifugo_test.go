package centrifugo

import (
	"fmt"
	"slices"
	"testing"

	"tidewire/internal/bench/message"
)

// text is a server's frame.
func text(payload string) []byte {
	return append([]byte{0x81, 126, byte(len(payload) >> 8), byte(len(payload))}, payload...)
}

func TestDeliveriesAreFoundAmongOtherLines(t *testing.T) {
	value := func(n int64) string { s := message.NewStencil(message.Value(60)); return string(s.Append(nil, n)) }
	s := Subscriber("c").(*subscriber)
	var all []int64
	b := text(`{"id":2,"subscribe":{"epoch":"x"}}` + "\n" + `{"push":{"channel":"c","pub":{"data":` + value(7) + `,"offset":1}}}` + "\n" + `{"push":{"channel":"c","pub":{"data":` + value(8) + `,"offset":2}}}`)
	used, err := s.Hear(b, func(n int64) error { all = append(all, n); return nil })
	if err != nil || used != len(b) || !slices.Equal(all, []int64{7, 8}) {
		t.Errorf("got %v of %d bytes of %d, %v", all, used, len(b), err)
	}
	for _, bad := range []string{`{"id":2,"error":{"code":103}}`, `{"push":{"disconnect":{"code":3008}}}`} {
		if _, err := s.Hear(text(bad), nil); err == nil {
			t.Errorf("%s is taken for nothing", bad)
		}
	}
}

type answers struct{ kept []int }

func (a *answers) Answered(slot, _, _ int, _ error) error {
	a.kept = append(a.kept, slot)
	return nil
}

func TestAnswersFindTheirPublish(t *testing.T) {
	a, p := &answers{}, &publisher{}
	p.each = p.take
	if _, err := p.Read(text(fmt.Sprintf(`{"id":1%06d,"publish":{}}`, 42)+"\n"+`{"id":1,"connect":{}}`), a); err != nil {
		t.Logf("a line that is no publish: %v", err)
	}
	if !slices.Equal(a.kept, []int{42}) {
		t.Errorf("kept %v", a.kept)
	}
}
