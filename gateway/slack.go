package gateway

import (
	"context"
	"runtime/debug"
	"slices"
	"time"
)

const (
	// slackEvery is how often the node looks whether a storm is over.
	slackEvery = 5 * time.Second
	// slackStorm is how many connections have to come or go for it to be one.
	slackStorm = 1000
	// slackCalm is how many of them between two looks are everyday business.
	slackCalm = 100
)

// slackAgain is how many looks after a storm memory is given back once more. A
// connection's reader gives up the stack that it began with at the first ping
// (session.DefaultPing); and the HTTP server holds a connection over HTTP/2 that
// was cut for as long as an idle one might last (httpapi's idleTime).
var slackAgain = [...]int{7, 30}

// slack is what the runtime holds and does not use. It collects garbage when the
// heap has doubled, and a heap that stands still never has: what ten thousand
// connections took to come, or left when they went, would stay for minutes. So
// once many have come or gone, and no more do, it is told to give it back.
type slack struct {
	turnover func() uint64 // connections that have come or gone, ever
	free     func()

	last  uint64 // at the last look
	given uint64 // when memory was given back last
	looks int    // since then
}

func newSlack(turnover func() uint64) *slack {
	return &slack{turnover: turnover, free: debug.FreeOSMemory}
}

// run looks until ctx ends.
func (s *slack) run(ctx context.Context) error {
	tick := time.NewTicker(slackEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if s.due(s.turnover()) {
				s.free()
			}
		}
	}
}

// due reports whether a storm is over.
func (s *slack) due(turnover uint64) bool {
	calm := turnover-s.last <= slackCalm
	s.last = turnover
	s.looks++
	if calm && turnover-s.given >= slackStorm {
		s.given, s.looks = turnover, 0
		return true
	}
	return s.given > 0 && slices.Contains(slackAgain[:], s.looks)
}
