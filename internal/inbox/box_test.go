package inbox

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tidewire/internal/ident"
)

// twin is a box that looks at everything each time.
type twin struct {
	bounds  Bounds
	entries map[Token]*twinEntry
}

type twinEntry struct {
	of       ident.Partition
	until    time.Time // zero: not held
	callers  map[*Caller]time.Time
	answered bool
	kept     *Reply
}

func (w *twin) bytes() (n int64) {
	for _, e := range w.entries {
		if e.kept != nil {
			n += e.kept.held()
		}
	}
	return n
}

func (w *twin) callers() (n int) {
	for _, e := range w.entries {
		n += len(e.callers)
	}
	return n
}

func (w *twin) sweep() {
	for t, e := range w.entries {
		if len(e.callers) == 0 && e.until.IsZero() {
			delete(w.entries, t)
		}
	}
}

// The box does what its twin does, whatever comes in whatever order, and in the end there
// is nothing left.
func TestABoxEqualsItsTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(1000, 0)
		bounds := Bounds{Entries: rapid.IntRange(1, 6).Draw(t, "entries"), Bytes: int64(rapid.IntRange(0, 4*(replyBytes+2)).Draw(t, "bytes"))}
		b, w := NewBox(bounds), &twin{bounds, map[Token]*twinEntry{}}
		var all []*Caller
		later := func() time.Time { return now.Add(time.Duration(rapid.IntRange(-1, 6).Draw(t, "for"))) }
		same := func(got, want []*Caller) {
			t.Helper()
			if len(got) != len(want) {
				t.Fatalf("%d callers, want %d", len(got), len(want))
			}
			for _, c := range got {
				if !slices.Contains(want, c) {
					t.Fatal("another caller")
				}
			}
		}
		drop := func(token Token) (out []*Caller) {
			if e := w.entries[token]; e != nil {
				for c := range e.callers {
					out = append(out, c)
				}
				delete(w.entries, token)
			}
			return out
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			token := Token{byte(rapid.IntRange(0, 7).Draw(t, "token"))}
			of := ident.Partition{Index: ident.Index(token[0] % 2)}
			e := w.entries[token]
			switch rapid.SampledFrom([]string{"hold", "wait", "wait", "put", "put", "leave", "expire", "drop", "dropof"}).Draw(t, "what") {
			case "hold":
				until := later()
				ok := b.Hold(token, of, until)
				if want := e != nil || len(w.entries) < bounds.Entries; ok != want {
					t.Fatalf("hold: %v", ok)
				}
				if ok {
					if e == nil {
						e = &twinEntry{callers: map[*Caller]time.Time{}}
						w.entries[token] = e
					}
					if e.of = of; e.until.IsZero() || until.Before(e.until) {
						e.until = until
					}
				}
			case "wait":
				c := &Caller{Token: token, Until: later()}
				r, got := b.Wait(c)
				var want Waited
				switch {
				case e != nil && e.kept != nil:
					want = Here
				case e != nil && e.answered:
					want = Spent
				case e == nil && len(w.entries) >= bounds.Entries || w.callers() >= bounds.Entries:
					want = Crowded
				default:
					if e == nil {
						e = &twinEntry{callers: map[*Caller]time.Time{}}
						w.entries[token] = e
					}
					e.callers[c] = c.Until
					all = append(all, c)
				}
				if got != want || (got == Here) != (r != nil) || r != nil && string(r.Value) != string(e.kept.Value) {
					t.Fatalf("wait: %v, want %v", got, want)
				}
			case "put":
				r := &Reply{Value: []byte{token[0], byte(rapid.IntRange(0, 255).Draw(t, "value"))}}
				callers, got := b.Put(token, r)
				want := Taken
				var told []*Caller
				switch {
				case e == nil || e.answered:
					want = Gone
				case e.until.IsZero():
					told = drop(token)
				case w.bytes()+r.held() > bounds.Bytes && len(e.callers) == 0:
					want = Full
				default:
					if w.bytes()+r.held() <= bounds.Bytes {
						e.kept = r.Clone()
					}
					for c := range e.callers {
						told = append(told, c)
					}
					e.answered = true
					clear(e.callers)
				}
				if got != want {
					t.Fatalf("put: %v, want %v", got, want)
				}
				same(callers, told)
				r.Value[1] ^= 0xff // it was only lent
			case "leave":
				if len(all) > 0 {
					c := rapid.SampledFrom(all).Draw(t, "who")
					b.Leave(c)
					if e := w.entries[c.Token]; e != nil {
						delete(e.callers, c)
					}
				}
			case "drop":
				same(b.Drop(token), drop(token))
			case "dropof":
				var want []*Caller
				for other, e := range w.entries {
					if e.of == of {
						want = append(want, drop(other)...)
					}
				}
				same(b.DropOf(of), want)
			case "expire":
				now = now.Add(time.Duration(rapid.IntRange(0, 4).Draw(t, "on")))
				late, ended := b.Expire(now)
				var want []*Caller
				var over []Token
				for other, e := range w.entries {
					for c, until := range e.callers {
						if !until.After(now) {
							want = append(want, c)
							delete(e.callers, c)
						}
					}
					if !e.until.IsZero() && !e.until.After(now) {
						want = append(want, drop(other)...)
						over = append(over, other)
					}
				}
				same(late, want)
				for _, token := range ended {
					if !slices.Contains(over, token) {
						t.Fatal("another entry ended")
					}
				}
				if len(ended) != len(over) {
					t.Fatalf("%d ended, want %d", len(ended), len(over))
				}
			}
			w.sweep()
			if b.Entries() != len(w.entries) || b.Bytes() != w.bytes() || b.Callers() != w.callers() {
				t.Fatalf("%d entries, %d B, %d callers; want %d, %d, %d", b.Entries(), b.Bytes(), b.Callers(), len(w.entries), w.bytes(), w.callers())
			}
			first := time.Time{}
			note := func(at time.Time) {
				if !at.IsZero() && (first.IsZero() || at.Before(first)) {
					first = at
				}
			}
			for _, e := range w.entries {
				note(e.until)
				for _, until := range e.callers {
					note(until)
				}
			}
			if next, ok := b.Next(); ok == first.IsZero() || !next.Equal(first) {
				t.Fatalf("next at %v, want %v", next, first)
			}
		}
		b.Clear()
		if _, ok := b.Next(); ok || b.Entries() != 0 || b.Bytes() != 0 || b.Callers() != 0 {
			t.Fatal("something is left")
		}
	})
}

func BenchmarkARequestAndItsReply(b *testing.B) {
	box, reply, until := NewBox(Bounds{Entries: 10}), &Reply{}, time.Now().Add(time.Hour)
	b.ReportAllocs()
	for b.Loop() {
		c := &Caller{Until: until}
		box.Wait(c)
		if got, _ := box.Put(c.Token, reply); len(got) != 1 {
			b.Fatal(got)
		}
	}
}
