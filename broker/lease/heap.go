package lease

// heap keeps slots of the window in order of less. Each record knows its place, so any of
// them is taken out in O(log n).
type heap struct {
	slots []slot
	less  func(a, b *entry) bool
}

func (h *heap) len() int { return len(h.slots) }

// top is the first slot; call it where there is one.
func (h *heap) top() slot { return h.slots[0] }

func (h *heap) push(w *window, s slot) {
	h.slots = append(h.slots, s)
	w.at(s).place = int32(len(h.slots) - 1)
	h.up(w, len(h.slots)-1)
}

func (h *heap) remove(w *window, s slot) {
	i, last := int(w.at(s).place), len(h.slots)-1
	h.swap(w, i, last)
	h.slots = h.slots[:last]
	w.at(s).place = -1
	if i < last {
		h.fix(w, i)
	}
}

// moved puts a slot right whose key has changed.
func (h *heap) moved(w *window, s slot) { h.fix(w, int(w.at(s).place)) }

func (h *heap) fix(w *window, i int) {
	if !h.down(w, i) {
		h.up(w, i)
	}
}

func (h *heap) up(w *window, i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !h.less(w.at(h.slots[i]), w.at(h.slots[parent])) {
			return
		}
		h.swap(w, i, parent)
		i = parent
	}
}

func (h *heap) down(w *window, i int) bool {
	begun := i
	for {
		child := 2*i + 1
		if child >= len(h.slots) {
			break
		}
		if right := child + 1; right < len(h.slots) && h.less(w.at(h.slots[right]), w.at(h.slots[child])) {
			child = right
		}
		if !h.less(w.at(h.slots[child]), w.at(h.slots[i])) {
			break
		}
		h.swap(w, i, child)
		i = child
	}
	return i > begun
}

func (h *heap) swap(w *window, i, j int) {
	h.slots[i], h.slots[j] = h.slots[j], h.slots[i]
	w.at(h.slots[i]).place, w.at(h.slots[j]).place = int32(i), int32(j)
}

func byOffset(a, b *entry) bool { return a.offset < b.offset }

func byTime(a, b *entry) bool {
	return a.until < b.until || a.until == b.until && a.offset < b.offset
}
