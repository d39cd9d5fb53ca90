//go:build faults

package main

import (
	"strings"

	"tidewire/internal/rpc"
)

// linksVariable names the proxy through which a test leads all connections to other
// nodes. Only binaries built with the tag faults know it; others refuse it as an
// unknown setting.
const linksVariable = "TIDEWIRE_TEST_LINKS"

// linksBetween leads a dialer through the test's proxy, if the variable names one.
func linksBetween(environ []string) (prepare func(*rpc.Dialer), rest []string) {
	prepare = func(*rpc.Dialer) {}
	for _, e := range environ {
		if proxy, ok := strings.CutPrefix(e, linksVariable+"="); ok {
			prepare = func(d *rpc.Dialer) { d.Through(proxy) }
			continue
		}
		rest = append(rest, e)
	}
	return prepare, rest
}
