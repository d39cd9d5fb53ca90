package load

import "testing"

func TestAScheduleIsEvenAndAgreesWithItself(t *testing.T) {
	for _, rate := range []float64{0.5, 1, 3, 1000, 7777.7, 1e6} {
		s := newSchedule(12_345, rate)
		if s.due(12_344) != 0 || s.due(12_345) != 1 {
			t.Errorf("rate %g: %d and %d due around the begin, want 0 and 1", rate, s.due(12_344), s.due(12_345))
		}
		for n := int64(1); n < 5000; n += 7 {
			at := s.when(n)
			if got := s.due(at); got != n+1 {
				t.Fatalf("rate %g: %d due at the time of message %d, want %d", rate, got, n, n+1)
			}
			if got := s.due(at - 1); got != n {
				t.Fatalf("rate %g: %d due before the time of message %d", rate, got, n)
			}
		}
	}
}
