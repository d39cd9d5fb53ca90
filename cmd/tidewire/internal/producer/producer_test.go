package producer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"tidewire/cmd/tidewire/internal/client"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
)

func numbered(n int, keys ...string) []Record {
	var lines []Record
	for i := range n {
		r := Record{Line: i, JSON: fmt.Appendf(nil, "%d\n", i)}
		if len(keys) > 0 {
			r.Key = keys[i%len(keys)]
		}
		lines = append(lines, r)
	}
	return lines
}

func count(outcomes map[int]Outcome, f Fate) (n int) {
	for _, o := range outcomes {
		if o.Fate == f {
			n++
		}
	}
	return n
}

func TestLinesGoWhereTheirKeysHash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		lines := numbered(500, "a", "b", "c", "bus-1", "bus-2", "bus-3", "ü")
		outcomes, err := publish(Config{Sender: s, Layout: layout(7)}, lines)
		if err != nil || count(outcomes, Kept) != 500 {
			t.Fatalf("%d kept, %v", count(outcomes, Kept), err)
		}
		for _, r := range lines {
			o := outcomes[r.Line]
			p := layout(7)[o.Partition]
			if !(ident.HashRange{Lo: p.Lo, Hi: p.Hi}).Contains(ident.KeyHash(r.Key)) {
				t.Errorf("key %s in partition %d", r.Key, o.Partition)
			}
			if got := s.logs[o.Partition][o.Offset]; got != fmt.Sprint(r.Line) {
				t.Errorf("line %d is said to be at %d/%d, there is %s", r.Line, o.Partition, o.Offset, got)
			}
		}
	})
}

func TestEveryLineIsKeptOnceAndInOrderThroughAnyMischief(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 60).Draw(rt, "lines")
		batch := rapid.IntRange(1, 9).Draw(rt, "batch")
		parts := rapid.IntRange(1, 3).Draw(rt, "partitions")
		bad := rapid.SliceOfN(rapid.IntRange(0, n-1), 0, 3).Draw(rt, "bad")
		plan := rapid.SliceOfN(rapid.IntRange(0, 5), 0, 30).Draw(rt, "plan")
		at := rapid.IntRange(0, 9).Draw(rt, "at")
		var fail string
		synctest.Test(t, func(*testing.T) {
			s := newServer()
			s.mischief = func(try int, b client.Batch) mischief {
				if try > len(plan) {
					return mischief{}
				}
				switch plan[try-1] {
				case 1:
					return mischief{before: errRefused}
				case 2:
					return mischief{before: errBroken}
				case 3:
					return mischief{after: errBroken, cut: at % (b.Count + 1)}
				case 4:
					return mischief{moment: at%b.Count + 1}
				case 5:
					return mischief{after: problem(fault.UnknownOutcome)}
				}
				return mischief{}
			}
			lines := numbered(n, "a", "b", "c", "d")
			for _, i := range bad {
				lines[i].JSON = []byte("bad\n")
			}
			outcomes, err := publish(Config{Sender: s, Layout: layout(parts), BatchRecords: batch, Timeout: time.Hour}, lines)
			if err != nil || len(outcomes) != n {
				fail = fmt.Sprintf("%d outcomes, %v", len(outcomes), err)
				return
			}
			kept := 0
			for _, r := range lines {
				o := outcomes[r.Line]
				want := slices.Contains(bad, r.Line)
				if want != (o.Fate == Refused) || (!want && s.logs[o.Partition][o.Offset] != fmt.Sprint(r.Line)) {
					fail = fmt.Sprintf("line %d: %+v", r.Line, o)
					return
				}
				if !want {
					kept++
				}
			}
			for p, log := range s.logs {
				kept -= len(log)
				if !slices.IsSortedFunc(log, func(a, b string) int { return cmp.Or(len(a)-len(b), strings.Compare(a, b)) }) {
					fail = fmt.Sprintf("partition %d is out of order: %v", p, log)
				}
			}
			if kept != 0 {
				fail = fmt.Sprintf("%d lines too few or too many in the logs: %v", kept, s.logs)
			}
		})
		if fail != "" {
			rt.Fatal(fail)
		}
	})
}

func TestAForgottenProducerBeginsANewLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.mischief = func(try int, b client.Batch) mischief { return mischief{forget: try == 3} }
		outcomes, err := publish(Config{Sender: s, Layout: layout(1), BatchRecords: 10}, numbered(50))
		if err != nil || count(outcomes, Kept) != 50 || len(s.logs[0]) != 50 {
			t.Errorf("%d kept, log of %d, %v", count(outcomes, Kept), len(s.logs[0]), err)
		}
	})
}

func TestAForgottenProducerWithAnOpenBatchIsNotGuessedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.mischief = func(try int, b client.Batch) mischief {
			switch try {
			case 3:
				return mischief{after: errBroken}
			case 4:
				return mischief{forget: true}
			}
			return mischief{}
		}
		outcomes, err := publish(Config{Sender: s, Layout: layout(1), BatchRecords: 10}, numbered(30))
		if err == nil || count(outcomes, Kept) != 20 || count(outcomes, Unknown) != 10 {
			t.Errorf("kept %d, unknown %d, %v", count(outcomes, Kept), count(outcomes, Unknown), err)
		}
		if len(s.logs[0]) != 30 {
			t.Errorf("the log has %d", len(s.logs[0]))
		}
	})
}

func TestGivingUpSaysWhatIsNotSentAndWhatIsUnknown(t *testing.T) {
	for name, tc := range map[string]struct {
		cause error
		fate  Fate
	}{
		"refused connections keep nothing": {errRefused, Unsent},
		"a broken one may have":            {errBroken, Unknown},
		"draining keeps nothing":           {problem(fault.Draining), Unsent},
		"an internal error may have":       {problem(fault.Internal), Unknown},
		"a proxy's 502 may have":           {&client.Problem{Status: 502, Code: "http-502"}, Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				s.mischief = func(try int, b client.Batch) mischief {
					if try == 1 {
						return mischief{}
					}
					return mischief{before: tc.cause}
				}
				begun := time.Now()
				outcomes, err := publish(Config{Sender: s, Layout: layout(1), BatchRecords: 5, Timeout: 20 * time.Second}, numbered(10))
				if !errors.Is(err, tc.cause) || count(outcomes, Kept) != 5 || count(outcomes, tc.fate) != 5 {
					t.Errorf("%v, %v", outcomes, err)
				}
				if took := time.Since(begun); took > 20*time.Second || took < 15*time.Second {
					t.Errorf("gave up after %s", took)
				}
				if s.tries > 100 { // pauses of 1 s on average, after the first few
					t.Errorf("%d tries in 20 s", s.tries)
				}
			})
		})
	}
}

func TestAProblemOfTheWholeCallIsNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.mischief = func(int, client.Batch) mischief { return mischief{before: problem(fault.TopicNotFound)} }
		outcomes, err := publish(Config{Sender: s, Layout: layout(1)}, numbered(3))
		var p *client.Problem
		if !errors.As(err, &p) || p.Code != "topic-not-found" || count(outcomes, Unsent) != 3 || s.tries != 1 {
			t.Errorf("%v after %d tries, %v", outcomes, s.tries, err)
		}
	})
}

func TestWithoutAcknowledgementNothingIsSentTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.mischief = func(try int, b client.Batch) mischief {
			if b.Producer != "" {
				t.Error("acks=none is unsequenced")
			}
			switch try {
			case 1:
				return mischief{after: errBroken}
			case 2:
				return mischief{before: errRefused}
			}
			return mischief{}
		}
		outcomes, err := publish(Config{Sender: s, Layout: layout(1), BatchRecords: 5, Acks: "none"}, numbered(10))
		if err != nil || count(outcomes, Unknown) != 5 || count(outcomes, Taken) != 5 || len(s.logs[0]) != 10 {
			t.Errorf("%v, %v", outcomes, err)
		}
	})
}

func TestRetryAfterIsHeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.mischief = func(try int, b client.Batch) mischief {
			if try > 1 {
				return mischief{}
			}
			p := problem(fault.Throttled)
			p.RetryAfter = 7 * time.Second
			return mischief{before: p}
		}
		begun := time.Now()
		if _, err := publish(Config{Sender: s, Layout: layout(1)}, numbered(1)); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took < 7*time.Second {
			t.Errorf("sent again after %s", took)
		}
	})
}

func TestLinesDoNotWaitLongForCompanyAndAnInterruptSendsWhatWasTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		got := map[int]Outcome{}
		p, err := New(Config{Sender: s, Topic: "t", Layout: layout(2), Outcome: func(r Record, o Outcome) { got[r.Line] = o }})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		in := make(chan Record)
		go func() {
			in <- numbered(1)[0]
			time.Sleep(time.Second)
			synctest.Wait()
			if len(got) != 1 {
				t.Errorf("a lone line was not sent within a second")
			}
			in <- Record{Line: 1, JSON: []byte("1\n")}
			cancel()
		}()
		if err := p.Run(ctx, in); err != nil || count(got, Kept) != 2 {
			t.Errorf("%v, %v", got, err)
		}
	})
}

func TestRoutingRefusesWhatHasNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nine, one := uint32(9), uint32(1)
		outcomes, err := publish(Config{Sender: newServer(), Layout: layout(2)}, []Record{
			{Line: 0, Partition: &nine, JSON: []byte("0\n")}, {Line: 1, Partition: &one, JSON: []byte("1\n")},
		})
		if err != nil || outcomes[0].Fate != Refused || outcomes[1].Fate != Kept || outcomes[1].Partition != 1 {
			t.Errorf("%v, %v", outcomes, err)
		}
		holes := layout(2)
		holes[0].State = "sealed"
		lines := []Record{{Line: 0, Key: "a", JSON: []byte("0\n")}, {Line: 1, Key: "d", JSON: []byte("1\n")}}
		outcomes, err = publish(Config{Sender: newServer(), Layout: holes}, lines)
		for _, r := range lines {
			want := Kept
			if uint64(ident.KeyHash(r.Key)) < holes[0].Hi {
				want = Refused
			}
			if outcomes[r.Line].Fate != want || err != nil {
				t.Errorf("key %s: %v, %v", r.Key, outcomes[r.Line], err)
			}
		}
		holes[1].State = "sealed"
		if _, err := New(Config{Layout: holes}); err == nil || !strings.Contains(err.Error(), "no open partition") {
			t.Errorf("got %v", err)
		}
	})
}
