package plan_test

import (
	"slices"
	"strings"
	"testing"

	"tidewire/bench/internal/plan"
)

func TestThePlanIsWhole(t *testing.T) {
	cases := map[string]plan.Case{}
	for _, s := range plan.All() {
		for _, c := range s.Cases {
			if _, twice := cases[c.Name]; twice {
				t.Errorf("two cases are named %s", c.Name)
			}
			cases[c.Name] = c
			if len(c.Systems) == 0 || c.Kind == "" || c.Title == "" || c.Partitions == 0 {
				t.Errorf("%s lacks something: %+v", c.Name, c)
			}
			if !strings.HasPrefix(string(c.Systems[0]), "tidewire") {
				t.Errorf("%s: rows are compared with %s", c.Name, c.Systems[0])
			}
		}
		for _, x := range s.Systems() {
			if x.Guarantee() == "" {
				t.Errorf("nothing says what %s guarantees", x)
			}
		}
	}
	for _, b := range plan.Bars() {
		for _, of := range []plan.Of{b.Ours, b.Theirs} {
			if of.Case == "" {
				continue
			}
			if c, ok := cases[of.Case]; !ok || !slices.Contains(c.Systems, of.System) {
				t.Errorf("the bar %q is about %s on %s, which is not measured", b.Title, of.Case, of.System)
			}
		}
	}
}

func TestTheWholeTakesNoLongerThanItMay(t *testing.T) {
	total := 0.0
	for _, s := range plan.All() {
		total += s.Seconds(3)
	}
	if total > 25*60 {
		t.Errorf("three repetitions take %.0f s, and may take 25 minutes", total)
	}
}

func TestSystemsTakeTheirTurnsForthAndBack(t *testing.T) {
	all := []plan.System{plan.Tidewire, plan.NATSAlways, plan.RedisAlways}
	if got := plan.Order(all, 0); !slices.Equal(got, all) {
		t.Errorf("the first turn is %v", got)
	}
	if got := plan.Order(all, 1); !slices.Equal(got, []plan.System{plan.RedisAlways, plan.NATSAlways, plan.Tidewire}) {
		t.Errorf("the second turn is %v", got)
	}
	if all[0] != plan.Tidewire {
		t.Error("the plan itself was turned round")
	}
}

func TestSelectingLeavesWhatWasNamed(t *testing.T) {
	some, err := plan.Select(plan.All(), "fanout,publish", []string{"publish-128-1", "fanout-1000-8"}, []string{"tidewire", "nats-core"})
	if err != nil {
		t.Fatal(err)
	}
	if names := plan.Names(some); !slices.Equal(names, []string{"fanout", "publish"}) {
		t.Errorf("got %v", names)
	}
	if c := some[0].Cases; len(c) != 1 || !slices.Equal(c[0].Systems, []plan.System{plan.Tidewire, plan.NATSCore}) {
		t.Errorf("got %+v", c)
	}
	for _, bad := range []string{"nothing", "publish,"} {
		if _, err := plan.Select(plan.All(), bad, nil, nil); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	if _, err := plan.Select(plan.All(), "publish", []string{"fanout-1000-8"}, nil); err == nil {
		t.Error("a plan of nothing is taken")
	}
}

func TestASmokeRunIsSmallAndLeavesThePlan(t *testing.T) {
	all := plan.All()
	for _, s := range plan.Smoke(all) {
		for _, c := range s.Cases {
			if c.Subscribers > 100 || c.Records > 10_000 || c.Duration.Seconds() > 1 {
				t.Errorf("%s is still %+v", c.Name, c)
			}
		}
	}
	if all[3].Cases[0].Subscribers != 1000 {
		t.Error("the plan itself became small")
	}
}
