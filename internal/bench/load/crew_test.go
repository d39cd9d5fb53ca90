package load

import (
	"net/netip"
	"slices"
	"testing"
)

func TestClientsTakeTurnsAmongTheNodes(t *testing.T) {
	first, second, third := netip.MustParseAddrPort("127.0.0.1:1"), netip.MustParseAddrPort("127.0.0.1:2"), netip.MustParseAddrPort("127.0.0.1:3")
	alone := Target{Addr: first, Host: "box:1", PID: 7, Token: "t"}
	if got := alone.turn(5); got.Addr != first || got.Host != "box:1" {
		t.Errorf("%+v", got)
	}
	many := alone
	many.Beside = []Beside{{second, 8}, {third, 9}}
	var addrs []netip.AddrPort
	for i := range 6 {
		x := many.turn(i)
		if x.Token != "t" || i%3 == 0 && x.Host != "box:1" || i%3 == 1 && x.Host != "127.0.0.1:2" {
			t.Errorf("client %d: %+v", i, x)
		}
		addrs = append(addrs, x.Addr)
	}
	if !slices.Equal(addrs, []netip.AddrPort{first, second, third, first, second, third}) {
		t.Errorf("%v", addrs)
	}
	if got := many.PIDs(); !slices.Equal(got, []int{7, 8, 9}) || (Target{}).PIDs() != nil || !slices.Equal(alone.PIDs(), []int{7}) {
		t.Errorf("%v", got)
	}
}
