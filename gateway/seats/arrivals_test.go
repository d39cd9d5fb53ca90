package seats

import (
	"net/http/httptest"
	"testing"
	"time"

	"tidewire/internal/fault"
)

func TestAStormIsTakenInAtTheRate(t *testing.T) {
	const rate, clients = 100, 1000
	a, now := newArrivals(rate), time.Now()
	if wait := a.take(now); wait != 0 {
		t.Fatal(wait)
	}
	now = now.Add(time.Minute) // quiet: a second's worth is saved, and no more
	let, told := 0, make([]int, 40)
	for range clients {
		switch wait := a.take(now); {
		case wait == 0:
			let++
		case wait < 0 || wait > 11*time.Second:
			t.Fatalf("one is to wait %s", wait)
		default:
			told[int(wait/time.Second)]++
		}
	}
	if let != rate {
		t.Errorf("%d are let in at once, want %d", let, rate)
	}
	for second, n := range told[:9] { // the first and the last are not full
		if second > 0 && (n < rate*2/3 || n > rate*4/3) {
			t.Errorf("%d are to come back in second %d, want about %d", n, second, rate)
		}
	}
	// Those that come back as told are let in, and nobody is let in beyond the rate.
	let = 0
	for i := range 10 * 4 * rate {
		if a.take(now.Add(time.Duration(i)*time.Second/(4*rate))) == 0 {
			let++
		}
	}
	if let < 10*rate-1 || let > 10*rate+1 {
		t.Errorf("%d are let in within ten seconds, want %d", let, 10*rate)
	}
	none := newArrivals(0)
	for range clients {
		if none.take(now) != 0 {
			t.Fatal("a rate of 0 is a bound")
		}
	}
}

// TestTheRateIsABoundByItself: no other limit has to be on for it.
func TestTheRateIsABoundByItself(t *testing.T) {
	for _, most := range []int{0, 1000} {
		s := New(most, 0, 2, nil)
		var last error
		for range 3 {
			last = s.Admit()
		}
		f := fault.As(last)
		if last == nil || f.Kind != fault.Limit || f.Status() != 503 || f.RetryAfter <= 0 || f.Fields["limit"] != "max_connection_rate" {
			t.Errorf("max_connections %d: %+v", most, f)
		}
		if _, err := s.Take(httptest.NewRequest("GET", "/", nil)); err != nil {
			t.Errorf("one that was admitted finds no seat: %v", err)
		}
	}
}
