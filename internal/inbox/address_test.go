package inbox

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tidewire/internal/ident"
)

func drawAddress(t *rapid.T) Address {
	bytes := func(name string, to []byte) {
		copy(to, rapid.SliceOfN(rapid.Byte(), len(to), len(to)).Draw(t, name))
	}
	var a Address
	bytes("topic", a.Topic[:])
	bytes("node", a.Node[:])
	bytes("process", a.Process[:])
	bytes("token", a.Token[:])
	if a.Lasting = rapid.Bool().Draw(t, "lasting"); a.Lasting {
		a.Life = ident.BrokerEpoch(rapid.Uint64().Draw(t, "life"))
		a.Partition = ident.Index(rapid.Uint32().Draw(t, "partition"))
		a.Timeout = time.Duration(rapid.Int64Range(1, int64(MaxTimeout/time.Millisecond)).Draw(t, "ms")) * time.Millisecond
	}
	return a
}

func TestAnAddressIsReadAsItWasWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := drawAddress(t)
		s := a.String()
		back, err := Parse(s)
		if err != nil || back != a || len(s) > MaxText {
			t.Fatalf("%q: %+v, %v", s, back, err)
		}
		if strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._~-") != "" {
			t.Fatalf("%q has other letters than an inbox may have", s)
		}
		// Another letter is another inbox, or none.
		i := rapid.IntRange(0, len(s)-1).Draw(t, "at")
		c := rapid.SampledFrom([]byte("Aa0-_ \n=+/.~")).Draw(t, "letter")
		if other := s[:i] + string(c) + s[i+1:]; other != s {
			if b, err := Parse(other); err == nil && b == a {
				t.Fatalf("%q is taken for %q", other, s)
			}
		}
	})
}

func TestWhatIsNoAddress(t *testing.T) {
	a := Address{Lasting: true, Timeout: time.Second}
	good := a.String()
	a.Timeout = MaxTimeout + time.Millisecond
	long := a.String()
	for _, s := range []string{"", "x", good[1:], good + "A", good[:len(good)-1], good + "=", good + "\n", "\n" + good, "C" + good[1:], long, strings.Repeat("A", 76), strings.Repeat("~", 76), strings.Repeat("A", 1<<20)} {
		if b, err := Parse(s); err == nil {
			t.Errorf("%.100q is %+v", s, b)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("")
	for _, a := range []Address{{}, {Lasting: true, Partition: 7, Timeout: time.Second}} {
		f.Add(a.String())
	}
	f.Fuzz(func(t *testing.T, s string) {
		if a, err := Parse(s); err == nil && a.String() != s {
			t.Errorf("%q was read as %q", s, a.String())
		}
	})
}
