package deliver

// Behind is about how many records lie between where the subscription stands and
// the ends of its partitions, whether its filter lets them through or not. Any
// goroutine may ask.
func (s *Subscription) Behind() int64 {
	behind := -s.passed.Load()
	for _, p := range s.parts {
		b, err := s.hub.source.Bounds(s.topic.Ref(p.index))
		if err != nil {
			return 0 // nothing can be read there now, so nobody is behind
		}
		behind += int64(b.HW - p.began)
	}
	return max(0, behind)
}
