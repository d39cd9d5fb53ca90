package main

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"tidewire": main, "coarsened": coarsened, "foreground": foreground})
}

// foreground is tidewire in a process group of its own, as a shell at a terminal starts it.
func foreground() {
	if err := syscall.Setpgid(0, 0); err != nil {
		panic(err)
	}
	main()
}

// TestScripts runs testdata/script: each is a session at a shell, beside a
// server of its own that TIDEWIRE_SERVER names.
//
//	trouble CALL WHAT...   the next calls get into these troubles, one each, and no others
//	called 'METHOD PATH' N the server was called so N times
//	bearer TOKEN           the last call showed this token
//	joined TOPIC/GROUP     waits until somebody has joined the group
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			f := newFake()
			env.Defer(f.CloseClientConnections)
			env.Values["fake"] = f
			env.Setenv("TIDEWIRE_SERVER", f.URL)
			// Under the race detector every process sleeps a second at its end.
			env.Setenv("GORACE", "atexit_sleep_ms=0")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"trouble": func(ts *testscript.TestScript, _ bool, args []string) {
				f := ts.Value("fake").(*fake)
				f.mu.Lock()
				defer f.mu.Unlock()
				f.trouble[args[0]] = args[1:]
			},
			"called": func(ts *testscript.TestScript, _ bool, args []string) {
				f := ts.Value("fake").(*fake)
				f.mu.Lock()
				defer f.mu.Unlock()
				n := 0
				for _, c := range f.calls {
					if c == args[0] {
						n++
					}
				}
				if want, err := strconv.Atoi(args[1]); err != nil || n != want {
					ts.Fatalf("%s was called %d times, want %s:\n%s", args[0], n, args[1], strings.Join(f.calls, "\n"))
				}
			},
			"bearer": func(ts *testscript.TestScript, _ bool, args []string) {
				f := ts.Value("fake").(*fake)
				f.mu.Lock()
				defer f.mu.Unlock()
				want := "" // no token
				if len(args) > 0 {
					want = "Bearer " + args[0]
				}
				if f.bearer != want {
					ts.Fatalf("the last call had %q", f.bearer)
				}
			},
			"joined": func(ts *testscript.TestScript, _ bool, args []string) {
				f, patience := ts.Value("fake").(*fake), time.After(30*time.Second)
				for {
					select {
					case who := <-f.joins:
						if who == args[0] {
							return
						}
					case <-patience:
						ts.Fatalf("nobody joined %s", args[0])
					}
				}
			},
			"lines": func(ts *testscript.TestScript, _ bool, args []string) {
				want, err := strconv.Atoi(args[1])
				ts.Check(err)
				if got := strings.Count(ts.ReadFile(args[0]), "\n"); got != want {
					ts.Fatalf("%s has %d lines, want %d:\n%s", args[0], got, want, ts.ReadFile(args[0]))
				}
			},
		},
		UpdateScripts: os.Getenv("UPDATE_SCRIPTS") != "",
	})
}
