package sim

import (
	"testing"
	"time"
)

func TestMomentsHaveTwoClocks(t *testing.T) {
	a, b := moment(epoch.Add(time.Minute), time.Second), moment(epoch.Add(123456789), 3*time.Second)
	if got := b.Sub(a); got != 2*time.Second {
		t.Errorf("%s went by", got)
	}
	if !a.Before(b) || a.Equal(b) || !a.Add(2*time.Second).Equal(b) || b.Compare(a) != 1 {
		t.Error("they are compared by the wall")
	}
	if b.UnixNano() != epoch.UnixNano()+123456789 || a.Unix() != epoch.Unix()+60 {
		t.Errorf("the walls show %s and %s", a, b)
	}
	if a, b := a.Round(0), b.Round(0); !b.Before(a) || a.Sub(b) != time.Minute-123456789 {
		t.Error("without the second clock they are not compared by the wall")
	}
	if got := a.Add(time.Hour); got.Sub(a) != time.Hour || got.Unix()-a.Unix() != 3600 {
		t.Error("an hour later is not an hour later by both")
	}
}
