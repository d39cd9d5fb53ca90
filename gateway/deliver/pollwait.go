package deliver

import (
	"context"
	"reflect"
	"time"

	"tidewire/internal/sleep"
)

// wait waits until one of the partitions has more; false when the time is over
// or the client has gone. An error of a partition ends the wait too: the next
// pass says what it is.
func (p *poll) wait(ctx context.Context, deadline time.Time) bool {
	t := time.NewTimer(time.Until(deadline))
	defer t.Stop()
	cases := make([]reflect.SelectCase, 0, 2+len(p.places))
	add := func(ch any) {
		cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(ch)})
	}
	add(t.C)
	add(ctx.Done())
	for i := range p.places {
		place := &p.places[i]
		if place.stuck != nil {
			continue
		}
		more, err := p.hub.source.Wait(p.start.Topic.Ref(place.Partition), place.Offset)
		if err != nil {
			return sleep.For(ctx, firstPause) && time.Now().Before(deadline)
		}
		add(more)
	}
	chosen, _, _ := reflect.Select(cases)
	return chosen > 1
}
