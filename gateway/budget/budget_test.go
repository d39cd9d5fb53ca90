package budget_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"tidewire/gateway/budget"
)

func TestWhoeverHoldsMuchGetsNoMoreFirst(t *testing.T) {
	b := budget.New(8000)
	large := b.Share()
	for large.Try(100) {
	}
	if large.Held() != 3500 { // half of what is not kept for the small
		t.Fatalf("one alone holds %d of 8000", large.Held())
	}
	var many []*budget.Share
	for range 100 {
		s := b.Share()
		for s.Try(20) {
		}
		many = append(many, s)
	}
	for range 100 { // and those who need little
		s := b.Share()
		if !s.Try(5) {
			t.Fatalf("no room for little where %d of 8000 are held", b.Held())
		}
		many = append(many, s)
	}
	for _, s := range many {
		s.Close()
		s.Close()
	}
	if b.Held() != 3500 {
		t.Fatalf("%d held", b.Held())
	}
}

func TestWaitingEndsWithRoomOrTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget.New(100)
		full, s := b.Share(), b.Share()
		if err := full.Wait(t.Context(), 100); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Wait(ctx, 10); !errors.Is(err, context.DeadlineExceeded) || s.Held() != 0 {
			t.Fatalf("%v, %d held", err, s.Held())
		}
		time.AfterFunc(time.Second, func() { full.Give(30) })
		began := time.Now()
		if err := s.Wait(t.Context(), 10); err != nil || time.Since(began) != time.Second || b.Held() != 80 {
			t.Fatalf("%v after %v, %d held", err, time.Since(began), b.Held())
		}
		full.Close()
		s.Close()
		if err := s.Wait(t.Context(), 1000); err != nil { // larger than the whole, and alone
			t.Fatal(err)
		}
	})
}

// Whatever shares do, the budget is the sum of them and is not passed.
func TestTheBudgetIsTheSumOfItsShares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := budget.New(100)
		shares := []*budget.Share{b.Share(), b.Share(), b.Share()}
		for range 30 {
			s := shares[rapid.IntRange(0, 2).Draw(t, "share")]
			n := rapid.Int64Range(0, 60).Draw(t, "n")
			if rapid.Bool().Draw(t, "take") {
				s.Try(n)
			} else {
				s.Give(min(n, s.Held()))
			}
			if sum := shares[0].Held() + shares[1].Held() + shares[2].Held(); sum != b.Held() || sum > 100 {
				t.Fatalf("%d held, %d in shares", b.Held(), sum)
			}
		}
	})
}
