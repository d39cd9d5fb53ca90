package budget

import (
	"context"
	"sync"
	"time"

	"tidewire/gateway/queue"
	"tidewire/internal/fault"
)

// DefaultBytes is the budget of a node: room for the largest record in the
// longest way to write it, or for a hundred polls of the usual size.
const DefaultBytes = 128 << 20

// Budget is a number of bytes that shares hold parts of. It is safe for
// concurrent use.
type Budget struct {
	most int64

	mu    sync.Mutex
	held  int64
	queue *queue.Queue
}

// New makes a budget of so many bytes.
func New(most int64) *Budget {
	b := &Budget{most: most}
	b.queue = queue.New(&b.mu, b.admit)
	return b
}

// Held is how many bytes all shares hold together.
func (b *Budget) Held() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held
}

// Most is the whole of the budget.
func (b *Budget) Most() int64 { return b.most }

// Share begins a share that holds nothing yet.
func (b *Budget) Share() *Share { return &Share{budget: b} }

// An eighth of the budget is kept for shares of at most a thousandth of it: for
// those who need little while others hold all that they can get.
func (b *Budget) spare() int64 { return b.most / 8 }
func (b *Budget) small() int64 { return b.most / 1024 }

// admitsLocked reports room for one who waits for n bytes. Whatever is larger
// than the whole is let in alone: otherwise it never could be.
func (b *Budget) admitsLocked(n int64) bool { return b.held+n <= b.most-b.spare() || b.held == 0 }

// admit takes n bytes where there is room for them.
func (b *Budget) admit(n int64) bool {
	if !b.admitsLocked(n) {
		return false
	}
	b.held += n
	return true
}

// Share is what one request holds of a budget. It belongs to one goroutine.
type Share struct {
	budget *Budget
	held   int64
}

// Held is how many bytes the share holds.
func (s *Share) Held() int64 { return s.held }

// Try takes n more bytes if that leaves at least as much free as the share then
// holds. So a share can be large while there is much left, and those that are
// small go on when others hold nearly all of it.
func (s *Share) Try(n int64) bool {
	b := s.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	free := b.most - b.held - n
	if s.held+n > b.small() {
		free -= b.spare()
	}
	if s.held+n > free {
		return false
	}
	b.held += n
	s.held += n
	return true
}

// Wait takes n more bytes as soon as they are free, in the order of those who
// wait, unless ctx ends before.
func (s *Share) Wait(ctx context.Context, n int64) error {
	if err := s.budget.queue.Wait(ctx, n); err != nil {
		return err
	}
	s.held += n
	return nil
}

// Need takes n more bytes, at once or within patience; the error is for the
// client.
func (s *Share) Need(ctx context.Context, n int64, patience time.Duration) error {
	if s.Try(n) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if s.Wait(ctx, n) == nil {
		return nil
	}
	return fault.New(fault.Throttled, "the node holds as much as it may (%d bytes) of answers that nobody has read and of bodies that have not arrived whole; read what was asked for, or ask again in a moment", s.budget.most)
}

// Give gives n bytes back.
func (s *Share) Give(n int64) {
	if n == 0 {
		return
	}
	b := s.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if n > s.held {
		panic("budget: a share gives back no more than it holds")
	}
	s.held -= n
	b.held -= n
	b.queue.Admit()
}

// Close gives back all that is left; it may be called again.
func (s *Share) Close() { s.Give(s.held) }
