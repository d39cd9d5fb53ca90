package check

// Check judges a history. The history is not changed.
func (h *History) Check() *Report {
	j := newJudge(h)
	j.contents()
	j.copies()
	j.producerOrder()
	j.timeOrder()
	j.acknowledgements()
	for i := range h.Readers {
		j.reader(&h.Readers[i])
	}
	return j.report
}
