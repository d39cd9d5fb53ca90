package record

// Filter makes a batch of the entries of b that keep picks, by their number in
// b. The result has no place yet; it is nil when nothing is kept.
func (b Batch) Filter(keep func(i int) bool) (Batch, error) {
	var out Builder
	it := b.Entries()
	for i := 0; it.Next(); i++ {
		if !keep(i) {
			continue
		}
		e := it.Entry()
		if e.Void {
			out.Void(e.Producer, e.Sequence)
		} else {
			out.Add(&e.Record)
		}
	}
	if err := it.Err(); err != nil {
		return nil, err
	}
	if out.Len() == 0 {
		return nil, nil
	}
	return out.Seal(), nil
}
