package boot

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestANodeFoundsAClusterAloneOnlyWhereItKnowsOfNoOther(t *testing.T) {
	for name, c := range map[string]struct {
		args   []string
		expect int
		join   []string
	}{
		"alone":                       {nil, 1, nil},
		"one of three, the first":     {[]string{"--bootstrap-expect=3"}, 3, nil},
		"joining":                     {[]string{"--join=10.0.0.1:7402"}, 0, []string{"10.0.0.1:7402"}},
		"one of three, with seeds":    {[]string{"--bootstrap-expect=3", "--join= a:7402 ,b:7402,a:7402,[::1]:7402"}, 3, []string{"a:7402", "b:7402", "[::1]:7402"}},
		"no coordinator":              {[]string{"--roles=broker", "--join=a:7402"}, 0, []string{"a:7402"}},
		"asked to be a cluster alone": {[]string{"--join=a:7402", "--bootstrap-expect=1"}, 1, []string{"a:7402"}},
	} {
		got, err := load(t, c.args, nil, "")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got.BootstrapExpect != c.expect || !slices.Equal(got.Join, c.join) {
			t.Errorf("%s: expects %d, joins %v", name, got.BootstrapExpect, got.Join)
		}
		for _, e := range got.Effective() {
			if e.Name == "bootstrap_expect" && e.Value != string(rune('0'+c.expect)) {
				t.Errorf("%s: shown as %s", name, e.Value)
			}
		}
	}
}

func TestANodeHasAnyOfTheRoles(t *testing.T) {
	for text, want := range map[string][]string{
		"gateway": {Gateway}, "coordinator, broker": {Broker, Coordinator}, "broker,broker": {Broker},
		"coordinator,gateway": {Gateway, Coordinator}, "broker,coordinator,gateway": {Gateway, Broker, Coordinator},
	} {
		c, err := load(t, []string{"--join=a:7402", "--roles=" + text}, nil, "")
		if err != nil || !slices.Equal(c.Roles, want) {
			t.Errorf("%s: %v %v", text, c.Roles, err)
		}
		for _, r := range []string{Gateway, Broker, Coordinator} {
			if c.Has(r) != slices.Contains(want, r) {
				t.Errorf("%s: has %s: %t", text, r, c.Has(r))
			}
		}
	}
}

func TestSettingsOfAClusterThatCannotWorkAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want []string
	}{
		"no role":                      {[]string{"--roles=,"}, []string{"--roles: a node has one role at least"}},
		"another role":                 {[]string{"--roles=gateway,brokr"}, []string{`--roles: "brokr" is no role`}},
		"a seed without a port":        {[]string{"--join=a:7402,b"}, []string{`--join: "b" is no gossip address`}},
		"a seed that is everything":    {[]string{"--join=:7402"}, []string{`--join: ":7402" cannot be dialled`}},
		"a seed with any port":         {[]string{"--join=a:0"}, []string{`--join: "a:0" cannot be dialled`}},
		"too many seeds":               {[]string{"--join=" + manySeeds()}, []string{"--join: 65 addresses are more than 64"}},
		"nobody":                       {[]string{"--bootstrap-expect=0"}, []string{"--bootstrap-expect: 0 is not between 1 and 15"}},
		"a crowd":                      {[]string{"--bootstrap-expect=16"}, []string{"--bootstrap-expect: 16 is not between 1 and 15"}},
		"no number":                    {[]string{"--bootstrap-expect=three"}, []string{`--bootstrap-expect: "three" is no number of coordinators`}},
		"a broker alone":               {[]string{"--roles=broker"}, []string{"join: a node that is no coordinator"}},
		"a founder without the role":   {[]string{"--roles=gateway,broker", "--bootstrap-expect=3"}, []string{"bootstrap_expect: coordinators found a cluster, and the roles of this node, gateway,broker", "join:"}},
		"a lease shorter than a vote":  {[]string{"--broker-lease=400ms"}, []string{"--broker-lease: 400ms is not between 500ms and 1m"}},
		"no lag":                       {[]string{"--replica-lag=0s"}, []string{"--replica-lag: 0s is not between 100ms and 1m"}},
		"replaced before it is dead":   {[]string{"--replica-replace=3s"}, []string{"replica_replace: 3s is less than twice 2s"}},
		"replaced before it has lived": {[]string{"--replica-replace=30s", "--replica-lag=20s"}, []string{"replica_replace: 30s is less than twice 20s"}},
		"scrub by the hour":            {[]string{"--scrub-rate=1h"}, []string{`--scrub-rate: "1h" is no size`}},
		"scrub without an end":         {[]string{"--scrub-every=0s"}, []string{"--scrub-every: 0s is not between 1s and 2160h"}},
	} {
		_, err := load(t, c.args, nil, "")
		if err == nil {
			t.Errorf("%s: taken", name)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: the error lacks %q:\n%v", name, want, err)
			}
		}
	}
}

func TestSettingsOfAClusterComeFromAFileToo(t *testing.T) {
	c, err := load(t, nil, []string{"TIDEWIRE_BROKER_LEASE=4s"}, "join: [a:7402, b:7402]\nroles: [broker]\nreplica_lag: 3s\nreplica_replace: 1h\nscrub_rate: 0\n")
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Join) != 2 || c.ReplicaLag != 3*time.Second || c.BrokerLease != 4*time.Second || c.ReplicaReplace != time.Hour || c.ScrubRate != 0 || c.BootstrapExpect != 0 {
		t.Errorf("%+v", c)
	}
}

func manySeeds() string {
	var all []string
	for i := range mostSeeds + 1 {
		all = append(all, "10.0.0."+string(rune('0'+i/10))+string(rune('0'+i%10))+":7402")
	}
	return strings.Join(all, ",")
}
