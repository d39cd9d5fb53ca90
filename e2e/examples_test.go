package e2e_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"tidewire/e2e/harness"
	"tidewire/internal/testkit/chromium"
)

// example is one that runs, as its make target runs it.
type example struct {
	t    *testing.T
	page string // the page's address

	mu  sync.Mutex
	pid int // of its node
}

// startExample runs an example until the test ends.
func startExample(t *testing.T, name string) *example {
	t.Helper()
	root := harness.Root(t)
	if _, err := os.Stat(filepath.Join(root, "sdk-js", "node_modules", "esbuild")); err != nil {
		t.Fatalf("examples need the SDK's tools, which make e2e installs: %v", err)
	}
	cmd := exec.Command("node", "examples/run.mjs", name, "--data", t.TempDir())
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "TEST_TIDEWIRE_BIN="+harness.Binary(t))
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	x := &example{t: t}
	opened := make(chan string, 1)
	var reading sync.WaitGroup
	reading.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if page, ok := strings.CutPrefix(lines.Text(), "open "); ok {
				opened <- page
			}
			if _, pid, ok := strings.Cut(lines.Text(), " pid "); ok {
				n, _ := strconv.Atoi(pid) // 0 is nobody
				x.mu.Lock()
				x.pid = n
				x.mu.Unlock()
			}
		}
		_, _ = io.Copy(io.Discard, out) // until it ends
	})
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended already
		reading.Wait()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the example ends with %v", err)
		}
	})
	select {
	case x.page = <-opened:
	case <-time.After(patience):
		t.Fatal("the example does not say where its page is")
	}
	return x
}

// kill ends the example's node with SIGKILL; another one follows.
func (x *example) kill() {
	x.t.Helper()
	if err := syscall.Kill(x.node(), syscall.SIGKILL); err != nil {
		x.t.Fatal(err)
	}
}

func (x *example) node() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.pid
}

func noExceptions(t *testing.T, pages ...*chromium.Tab) {
	t.Helper()
	for _, p := range pages {
		if bad := p.Exceptions(); len(bad) > 0 {
			t.Errorf("the page's script failed: %s", bad)
		}
	}
}

func TestExampleChat(t *testing.T) {
	t.Parallel() // most of it is waiting
	b := chromium.Start(t)
	ann, bob, eve := b.Tab(), b.Tab(), b.Tab()
	x := startExample(t, "chat")
	said := func(lines ...string) string {
		return `[...document.querySelectorAll("#lines .kept")].map((l) => l.textContent).join("|") === ` + chromium.Quote(strings.Join(lines, "|"))
	}
	say := func(p *chromium.Tab, who, what string) {
		p.Fill("who", who)
		p.Fill("what", what)
		p.Submit("say")
	}
	ann.Open(x.page + "/")
	bob.Open(x.page + "/")
	eve.Open(x.page + "/#elsewhere")
	say(ann, "ann", "hello")
	bob.Until(said("annhello"))
	say(bob, "bob", "<b>hi</b>")
	ann.Until(said("annhello", "bob<b>hi</b>"))

	// What is said while the node is away is kept once it is back.
	x.kill()
	ann.Until(`document.getElementById("state").dataset.state === "reconnecting"`)
	say(ann, "ann", "still there?")
	ann.Until(`document.querySelectorAll("#lines .kept, #lines .sending").length === 3`)
	all := said("annhello", "bob<b>hi</b>", "annstill there?")
	ann.Until(all)
	bob.Until(all)

	// Another room is another key.
	say(eve, "eve", "alone")
	eve.Until(said("evealone"))
	eve.Fill("where", "lobby")
	eve.Submit("enter")
	eve.Until(all)
	noExceptions(t, ann, bob, eve)
}

func TestExampleVehicles(t *testing.T) {
	t.Parallel() // most of it is waiting
	page := chromium.Start(t).Tab()
	x := startExample(t, "vehicles")
	page.Open(x.page + "/")
	page.Until(`document.querySelectorAll("#map [data-name]").length === 24`)
	count := func() int {
		n, err := strconv.Atoi(strings.Trim(page.Eval(`document.getElementById("count").textContent`), `"`))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	moved := func() {
		t.Helper()
		page.Eval(`window.before = document.querySelector("#map [data-name]").style.transform, 0`)
		page.Until(fmt.Sprintf(`document.querySelector("#map [data-name]").style.transform !== before && +document.getElementById("count").textContent > %d`, count()+100))
	}
	moved()
	x.kill()
	page.Until(`document.getElementById("state").dataset.state === "reconnecting"`)
	moved()
	if got := page.Text("missing"); got != "0" {
		t.Errorf("%s positions are missing", got)
	}
	noExceptions(t, page)
}

func TestExampleQueue(t *testing.T) {
	t.Parallel() // most of it is waiting
	b := chromium.Start(t)
	page, other := b.Tab(), b.Tab()
	x := startExample(t, "queue")
	page.Open(x.page + "/")
	for range 4 {
		page.Click("hire")
	}
	page.Click("order")
	page.Until(`document.querySelectorAll("#wall .painted").length >= 10`)
	page.Eval(`document.querySelector("#painters button").click()`) // in the middle of a tile
	page.Until(`document.querySelectorAll("#wall .painted").length >= 30`)
	x.kill()
	page.Until(`document.querySelectorAll("#wall .painted").length === 95 && document.querySelectorAll("#wall .damp").length === 1`)
	if got := page.Eval(`new Set([...document.querySelectorAll("#wall .painted")].map((t) => t.style.getPropertyValue("--by"))).size`); got < "2" {
		t.Errorf("%s painters painted the wall", got)
	}
	// Another page sees the same wall, for it is in the log.
	other.Open(strings.Trim(page.Eval(`location.href`), `"`))
	other.Until(`document.getElementById("done").textContent === "95" && document.getElementById("dead").textContent === "1"`)
	noExceptions(t, page, other)
}
