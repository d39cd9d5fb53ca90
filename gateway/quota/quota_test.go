package quota

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tidewire/gateway/access"
	"tidewire/internal/fault"
)

func TestAClientHasItsRateAndNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(10)
		took := func(client string) (n int) {
			for q.Take(client) == nil {
				n++
			}
			return n
		}
		if n := took("ann"); n != 10 {
			t.Errorf("%d at once", n)
		}
		if n := took("bob"); n != 10 {
			t.Errorf("%d of another", n)
		}
		err := q.Take("ann")
		if f := fault.As(err); f.Kind != fault.Throttled || f.RetryAfter != 100*time.Millisecond || f.Fields["limit"] != "max_publish_rate" {
			t.Errorf("%+v", f)
		}
		time.Sleep(300 * time.Millisecond)
		if n := took("ann"); n != 3 {
			t.Errorf("%d after 300 ms", n)
		}
		time.Sleep(time.Hour)
		if n := took("ann"); n != 10 {
			t.Errorf("%d after a rest", n)
		}
	})
}

func TestWhoWaitsGetsItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(100)
		began := time.Now()
		var all sync.WaitGroup
		for range 4 { // connections of one client share its rate
			all.Go(func() {
				for range 100 {
					if err := q.Wait(t.Context(), "ann"); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		if took := time.Since(began); took < 2900*time.Millisecond || took > 3100*time.Millisecond {
			t.Errorf("400 records took %s", took)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := q.Wait(ctx, "ann"); !fault.Is(err, fault.Throttled) {
			t.Errorf("%v", err)
		}
		// More wait than can have their turn in time.
		slow := New(1)
		var late sync.WaitGroup
		refused := make(chan error, 20)
		for range 20 {
			late.Go(func() { refused <- slow.Wait(t.Context(), "ann") })
		}
		late.Wait()
		close(refused)
		n := 0
		for err := range refused {
			if err != nil {
				n++
			}
		}
		if n < 10 || n > 16 {
			t.Errorf("%d of 20 were refused", n)
		}
	})
}

func TestASlowRateLetsOneThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(1)
		for range 3 {
			if err := q.Take("ann"); err != nil {
				t.Fatal(err)
			}
			if err := q.Take("ann"); err == nil {
				t.Fatal("two at once")
			}
			time.Sleep(time.Second)
		}
		if none := New(0); none.Take("ann") != nil || none.Wait(t.Context(), "ann") != nil {
			t.Error("no bound is one")
		}
	})
}

func TestQuietClientsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(10)
		for i := range 100_000 {
			_ = q.Take(fmt.Sprint(i))
			time.Sleep(time.Millisecond)
		}
		if n := len(q.due); n > 2*fewClients {
			t.Errorf("%d are remembered", n)
		}
	})
}

func TestWhoAClientIs(t *testing.T) {
	for want, got := range map[string]string{
		"address 1.2.3.4": Client(access.Everyone(), "1.2.3.4:5"),
		"address ::1":     Client(&access.Grant{}, "[::1]:5"),
		"address x":       Client(nil, "x"),
		"principal ann":   Client(&access.Grant{Principal: "ann"}, "1.2.3.4:5"),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
