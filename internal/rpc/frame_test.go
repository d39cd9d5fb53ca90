package rpc

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"tidewire/internal/fault"
)

// tape is a connection of which only what comes is there.
type tape struct {
	net.Conn
	from io.Reader
}

func (t *tape) Read(b []byte) (int, error) { return t.from.Read(b) }
func (t *tape) Close() error               { return nil }

func framedOf(from io.Reader) *framed {
	return newFramed(context.Background(), &tape{from: from}, NewMetrics(nil))
}

func frameOf(kind byte, body []byte) []byte {
	b := []byte{kind, 0, 0, 0, 0}
	binary.BigEndian.PutUint32(b[1:], uint32(len(body)))
	return append(b, body...)
}

// messages are all that come, copied, and why there are no more.
func messages(f *framed) (out [][]byte, err error) {
	for {
		b, _, err := f.next()
		if err != nil {
			return out, err
		}
		out = append(out, bytes.Clone(b))
	}
}

// trickle gives so many bytes at a time.
type trickle struct {
	from io.Reader
	most int
}

func (t *trickle) Read(b []byte) (int, error) { return t.from.Read(b[:min(len(b), t.most)]) }

func TestMessagesComeAsTheyWereSent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.OneOf(
			rapid.IntRange(0, 200), rapid.IntRange(bufferBytes-2*frameHead, bufferBytes+2*frameHead), rapid.Just(200<<10),
		), 1, 6).Draw(t, "sizes")
		var stream []byte
		var sent [][]byte
		for i, n := range sizes {
			body := bytes.Repeat([]byte{byte(i + 1)}, n)
			sent = append(sent, body)
			stream = append(stream, frameOf(frameMessage, body)...)
			if rapid.Bool().Draw(t, "alive") {
				stream = append(stream, frameOf(frameAlive, nil)...)
			}
		}
		most := rapid.OneOf(rapid.IntRange(1000, 100<<10), rapid.IntRange(4<<20, 64<<20)).Draw(t, "at once")
		f := framedOf(&trickle{bytes.NewReader(stream), most})
		got, err := messages(f)
		if !errors.Is(err, io.EOF) || !slices.EqualFunc(got, sent, bytes.Equal) {
			t.Fatalf("%d of %d messages came, then %v", len(got), len(sent), err)
		}
		if f.ctx.Err() == nil {
			t.Fatal("nothing more comes, and nobody is told")
		}
	})
}

// Bytes that are given are nobody else's, those that are not are used again.
func TestWhatIsGivenStays(t *testing.T) {
	large := bytes.Repeat([]byte("x"), bufferBytes)
	f := framedOf(bytes.NewReader(slices.Concat(frameOf(frameMessage, large), frameOf(frameMessage, bytes.Repeat([]byte("y"), bufferBytes-frameHead)))))
	b, given, err := f.next()
	if err != nil || !given {
		t.Fatal(given, err)
	}
	if _, given, err := f.next(); err != nil || given {
		t.Fatal(given, err)
	}
	if !bytes.Equal(b, large) {
		t.Error("what was given has changed")
	}
}

func TestAStreamThatIsCutShort(t *testing.T) {
	first, second := frameOf(frameMessage, []byte("one")), frameOf(frameMessage, bytes.Repeat([]byte("2"), 70<<10))
	whole := append(slices.Clone(first), second...)
	for _, n := range []int{0, 1, 4, 5, 7, 8, 9, 12, 13, 14, 100, 66 << 10, len(whole) - 1, len(whole)} {
		got, err := messages(framedOf(iotest.HalfReader(bytes.NewReader(whole[:n]))))
		want, clean := 0, n == 0 || n == len(first) || n == len(whole)
		for _, end := range []int{len(first), len(whole)} {
			if n >= end {
				want++
			}
		}
		if len(got) != want || errors.Is(err, io.EOF) != clean || errors.Is(err, io.ErrUnexpectedEOF) == clean {
			t.Errorf("%d bytes: %d messages, then %v", n, len(got), err)
		}
	}
}

func TestWhatIsNoFrameEndsAStream(t *testing.T) {
	for name, b := range map[string][]byte{
		"too long":             {frameMessage, 0xff, 0, 0, 0},
		"a kind that is none":  frameOf(0, nil),
		"a kind to come":       frameOf(9, []byte("x")),
		"an alive with a body": frameOf(frameAlive, []byte("x")),
		"opened twice":         frameOf(frameOpen, nil),
		"a long alive":         {frameAlive, 0, 1, 0, 0},
		"a long end":           {frameEnd, 0, 1, 0, 0},
		"an end of garbage":    frameOf(frameEnd, []byte{0xff}),
	} {
		f := framedOf(io.MultiReader(bytes.NewReader(b), iotest.ErrReader(errors.New("read on"))))
		f.most = 1 << 20
		_, _, err := f.next()
		if end := (*ending)(nil); err == nil || err.Error() == "read on" || errors.As(err, &end) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLongBodies(t *testing.T) {
	for _, n := range []int{0, 1, 1<<20 - 1, 1 << 20, 1<<20 + 1, 5 << 20} {
		b, err := readBody(&trickle{bytes.NewReader(make([]byte, n+1)), 300 << 10}, n)
		if err != nil || len(b) != n {
			t.Errorf("%d bytes of %d, %v", len(b), n, err)
		}
	}
}

// Room is made for what comes, not for what is claimed.
func TestAClaimTakesNoMemory(t *testing.T) {
	stream := append([]byte{frameMessage, 0x01, 0x40, 0, 0}, make([]byte, 1000)...) // 20 MiB, of which little comes
	if n := testing.AllocsPerRun(1, func() {
		b, err := readBody(bytes.NewReader(stream), 20<<20)
		if err == nil || cap(b) > 2<<20 {
			t.Errorf("%d bytes of room, %v", cap(b), err)
		}
	}); n > 10 {
		t.Errorf("%v allocations", n)
	}
	if _, err := messages(framedOf(bytes.NewReader(stream))); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
}

func TestAnEndSaysWhy(t *testing.T) {
	for _, sent := range []ending{
		{},
		{problem: fault.New(fault.Fenced, "old").With("epoch", int64(4)), taken: 7},
		{problem: fault.New(fault.LeaderUnavailable, "elsewhere"), refused: true},
	} {
		var e encoder
		sent.encode(&e)
		f := framedOf(bytes.NewReader(slices.Concat(e.frame(frameEnd)...)))
		_, _, err := f.next()
		var got *ending
		if !errors.As(err, &got) || got.refused != sent.refused || got.taken != sent.taken || got.Error() != sent.Error() {
			t.Errorf("%+v became %v", sent, err)
		}
		answer, refused := reply(err)
		if refused != sent.refused || (answer == nil) != (sent.problem == nil) {
			t.Errorf("%+v is the answer %v, refused %v", sent, answer, refused)
		}
		if answer != nil && (answer.Kind != fault.As(sent.problem).Kind || len(answer.Fields) != len(fault.As(sent.problem).Fields)) {
			t.Errorf("%+v", answer)
		}
	}
}

// short takes so many bytes and then breaks.
type short struct {
	tape
	left int
}

func (s *short) Write(b []byte) (int, error) {
	n := min(len(b), s.left)
	s.left -= n
	if n < len(b) {
		return n, errors.New("full")
	}
	return n, nil
}

// After a piece of a frame another one would be read as the rest of it.
func TestNothingFollowsATornFrame(t *testing.T) {
	conn := &short{left: 8}
	f := newFramed(t.Context(), conn, NewMetrics(nil))
	var e encoder
	(&opening{method: "m"}).encode(&e) // 3 bytes
	if err := f.send(frameMessage, &e); err != nil {
		t.Fatal(err)
	}
	if err := f.send(frameMessage, &e); err == nil || f.torn != nil {
		t.Errorf("%v, torn: %v", err, f.torn)
	}
	conn.left = 4
	if err := f.send(frameMessage, &e); err == nil {
		t.Error("it was written")
	}
	conn.left = 100
	if err := f.send(frameMessage, &e); err == nil || conn.left != 100 {
		t.Errorf("%v, and %d bytes followed", err, 100-conn.left)
	}
}

// Whoever writes beside others writes whole frames.
func TestFramesOfManyAreWhole(t *testing.T) {
	near, far := net.Pipe()
	from, to := newFramed(t.Context(), near, NewMetrics(nil)), newFramed(t.Context(), far, NewMetrics(nil))
	var senders sync.WaitGroup
	for i := range 4 {
		senders.Go(func() {
			for range 50 {
				var e encoder
				e.begin()
				e.bytes(1, bytes.Repeat([]byte{byte(i)}, referFrom+i)) // in two pieces
				if err := from.send(frameMessage, &e); err != nil {
					t.Error(err)
				}
				from.alive()
			}
		})
	}
	var closer sync.WaitGroup
	closer.Go(func() { senders.Wait(); from.close() })
	got, err := messages(to)
	if !errors.Is(err, io.EOF) || len(got) != 200 {
		t.Errorf("%d messages, then %v", len(got), err)
	}
	for _, b := range got {
		d := decoder{rest: b}
		if !d.next() || len(d.b) != referFrom+int(d.b[0]) || len(d.rest) != 0 {
			t.Fatal("it is not what was sent")
		}
	}
	closer.Wait()
	to.close()
}

func FuzzFrames(f *testing.F) {
	f.Add(slices.Concat(frameOf(frameMessage, []byte("a")), frameOf(frameAlive, nil), frameOf(frameMessage, bytes.Repeat([]byte("b"), 300))), uint16(7))
	f.Add(frameOf(frameEnd, []byte{0x10, 1}), uint16(1))
	f.Add([]byte{frameMessage, 0, 1, 0xff, 0xff, 1, 2, 3}, uint16(3))
	f.Fuzz(func(t *testing.T, b []byte, most uint16) {
		// However the bytes come, they are the same frames.
		one, why := messages(framedOf(bytes.NewReader(b)))
		other, too := messages(framedOf(&trickle{bytes.NewReader(b), int(most) + 1}))
		if !slices.EqualFunc(one, other, bytes.Equal) || why.Error() != too.Error() {
			t.Fatalf("%d and %v, or %d and %v", len(one), why, len(other), too)
		}
		// What was read is what a plain reader of frames finds.
		rest := b
		for _, m := range one {
			for len(rest) >= frameHead && rest[0] == frameAlive {
				rest = rest[frameHead:]
			}
			if len(rest) < frameHead+len(m) || rest[0] != frameMessage || !bytes.Equal(rest[frameHead:frameHead+len(m)], m) {
				t.Fatal("another message than was sent")
			}
			rest = rest[frameHead+len(m):]
		}
	})
}
