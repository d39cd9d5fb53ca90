package deliver

// Behind is about how many records lie between where the subscription stands and
// the ends of its partitions, whether its filter lets them through or not. Any
// goroutine may ask.
func (s *Subscription) Behind() int64 {
	behind := int64(0)
	for i := range s.parts {
		p := &s.parts[i]
		b, err := s.hub.source.Bounds(s.topic.Ref(p.index))
		if err != nil {
			return 0 // nothing can be read there now, so nobody is behind
		}
		behind += max(0, int64(b.HW-p.feed.offset(p)))
	}
	return behind
}
