package record

// Fate says what becomes of an entry where a batch is made of another.
type Fate uint8

const (
	// Drop leaves the entry out.
	Drop Fate = iota
	// Keep takes it over as it is.
	Keep
	// UseUp keeps a void in its place: the producer's number without the
	// record. Of an entry without a number it leaves nothing.
	UseUp
)

// Filter makes a batch of the entries of b, each with its fate by its number in
// b. The result has no place yet; it is nil when nothing is left.
func (b Batch) Filter(fate func(i int) Fate) (Batch, error) {
	return b.Rewrite(func(i int, _ *Entry) Fate { return fate(i) })
}

// Rewrite is Filter for who changes entries on the way, which are valid until
// their fate is said.
func (b Batch) Rewrite(fate func(i int, e *Entry) Fate) (Batch, error) {
	var out Builder
	it := b.Entries()
	for i := 0; it.Next(); i++ {
		e := it.Entry()
		switch f := fate(i, e); {
		case f == Keep && !e.Void:
			out.Add(&e.Record)
		case f != Drop && !e.Producer.IsZero():
			out.Void(e.Producer, e.Sequence)
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
