package pulse

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/testkit/activity"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// coordinator takes signs of life in.
type coordinator struct {
	mu   sync.Mutex
	told []string // a call each: who, and how long ago
	over map[string]bool
	err  error
}

func (c *coordinator) touch(_ context.Context, signs []cluster.SignOfLife) (lost cluster.Lost, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return lost, c.err
	}
	var told []string
	for i, s := range signs {
		told = append(told, fmt.Sprintf("%s %s", s.Member, s.Ago))
		if c.over[s.Member] {
			lost.Lives = append(lost.Lives, i)
		}
	}
	slices.Sort(told)
	c.told = append(c.told, strings.Join(told, ", "))
	return lost, nil
}

func (c *coordinator) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

func (c *coordinator) heard() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := strings.Join(c.told, "; ")
	c.told = nil
	return s
}

func life(member string) cluster.MemberLife {
	return cluster.MemberLife{Group: ident.GroupID{1}, Member: member, Epoch: 1}
}

func TestSignsOfLifeAreToldTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &coordinator{}
		p := New(c.touch)
		activity.Start(t, p.Run)
		p.Hear(life("a"))
		time.Sleep(100 * time.Millisecond)
		p.Hear(life("a"))
		p.Hear(life("b"))
		time.Sleep(400 * time.Millisecond)
		synctest.Wait()
		if got := c.heard(); got != "a 400ms, b 400ms" {
			t.Error(got)
		}
		time.Sleep(5 * time.Second)
		if got := c.heard(); got != "" {
			t.Errorf("nobody was heard since, and it tells %s", got)
		}
	})
}

func TestWhoAsksIsAnsweredAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &coordinator{over: map[string]bool{"b": true}}
		p := New(c.touch)
		activity.Start(t, p.Run)
		p.Hear(life("c")) // has time
		began := time.Now()
		errs := map[string]error{}
		var mu sync.Mutex
		var asking sync.WaitGroup
		for _, member := range []string{"a", "b", "a"} {
			asking.Go(func() {
				err := p.Ask(t.Context(), life(member))
				mu.Lock()
				defer mu.Unlock()
				errs[member] = errors.Join(errs[member], err)
			})
		}
		asking.Wait()
		if took := time.Since(began); took != gather || errs["a"] != nil || !fault.Is(errs["b"], fault.Fenced) {
			t.Errorf("%v after %s", errs, took)
		}
		if got := c.heard(); got != "a 3ms, b 3ms" {
			t.Error(got)
		}
	})
}

func TestWhileNoCoordinatorAnswersNobodyGetsYounger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &coordinator{err: fault.New(fault.CoordinatorUnavailable, "none")}
		p := New(c.touch)
		activity.Start(t, p.Run)
		p.Hear(life("a"))
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if err := p.Ask(ctx, life("b")); !fault.Is(err, fault.CoordinatorUnavailable) || !strings.Contains(err.Error(), "none") {
			t.Error(err)
		}
		answered := make(chan error, 1)
		var asking sync.WaitGroup
		asking.Go(func() { answered <- p.Ask(t.Context(), life("c")) })
		time.Sleep(time.Second)
		c.fail(nil)
		asking.Wait()
		if err := <-answered; err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		got := c.heard()
		for _, want := range []string{"a 3", "b 3", "c 1."} {
			if !strings.Contains(got, want) {
				t.Errorf("%q is not in %s", want, got)
			}
		}
	})
}

func TestManySignsAreToldInParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &coordinator{}
		p := New(c.touch)
		activity.Start(t, p.Run)
		for i := range 2*mostSigns + 1 {
			p.Hear(life(fmt.Sprint(i)))
		}
		time.Sleep(tellEvery)
		synctest.Wait()
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.told) != 3 || strings.Count(c.told[2], ",") != 0 {
			t.Errorf("%d calls", len(c.told))
		}
	})
}
