package metric

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Sum is a counter or gauge, summed over its labels. One that nobody registered is 0.
func Sum(t testing.TB, from prometheus.Gatherer, name string) (sum float64) {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return sum
}
