package deliver

// Behind is about how many records lie between where the subscription stands and
// the ends of its partitions, whether its filter lets them through or not. Any
// goroutine may ask.
func (s *Subscription) Behind() int64 {
	behind := int64(0)
	for i := range s.parts {
		p := &s.parts[i]
		behind += max(0, p.feed.hw.Load()-int64(p.feed.offset(p)))
	}
	return behind
}
