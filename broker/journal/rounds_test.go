package journal

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tidewire/internal/testkit/faultfs"
)

// diary is what a journal says of its rounds, and its waiters beside it.
type diary struct {
	mu   sync.Mutex
	said []string
}

func (d *diary) note(what string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.said = append(d.said, what)
}

func (d *diary) Taken(bytes int) { d.note(fmt.Sprintf("taken %d", bytes)) }
func (d *diary) Told()           { d.note("told") }

// What is queued while a commit is under way is taken after it, all at once; who says while
// waiters are told that there is something is followed by Told, once for all of them.
func TestRoundsAreHeardOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faulty := faultfs.Wrap(faultfs.New(0))
		cfg := config(faulty)
		newDisk(t, cfg)
		j := start(t, cfg)
		unheard := fn(func(Position, error) {
			if j.Telling() {
				t.Error("nobody hears of what is being told, and somebody would count on it")
			}
		})
		if err := j.Append(Entry{Type: entryTest, Payload: []byte("unheard"), Durable: unheard}); err != nil || j.Waiting() {
			t.Errorf("waiting: %t, and nobody hears: %v", j.Waiting(), err)
		}
		synctest.Wait()
		d := &diary{}
		j.Hear(d)
		if err := j.put("first"); err != nil { // the file is there from now on
			t.Fatal(err)
		}
		synctest.Wait()
		d.said = nil
		faulty.Strike(faultfs.Rule{Op: faultfs.OpSync, Match: "*.journal", Delay: time.Minute})
		put := func(name string) {
			t.Helper()
			waiter := fn(func(_ Position, err error) {
				if err != nil || !j.Telling() {
					t.Errorf("%s: %v, telling: %t", name, err, j.Telling())
				}
				d.note(name)
			})
			if err := j.Append(Entry{Type: entryTest, Payload: []byte(name), Durable: waiter}); err != nil {
				t.Fatal(err)
			}
		}
		put("a")
		synctest.Wait() // it is being synced
		if j.Waiting() {
			t.Error("what is being written waits no more")
		}
		put("b")
		put("c")
		if !j.Waiting() {
			t.Error("what is queued behind a commit waits")
		}
		j.close(t)
		if j.Waiting() || j.Telling() {
			t.Errorf("waiting: %t, telling: %t, after all is done", j.Waiting(), j.Telling())
		}
		if want := []string{"taken 9", "a", "told", "taken 18", "b", "c", "told"}; !slices.Equal(d.said, want) {
			t.Errorf("said: %q, not %q", d.said, want)
		}
	})
}
