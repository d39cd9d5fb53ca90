package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"tidewire/e2e/client"
	"tidewire/e2e/harness"
	"tidewire/internal/testkit/check"
)

// specimen is a data folder that a real process left, and what it had acknowledged.
type specimen struct {
	name  string
	img   image
	truth truth
	// loose says that the process was killed right after the last
	// acknowledgement. If only the very end of the journal is harmed then,
	// nobody can tell that from a write that was never synced: the last record
	// may be missing without a word.
	loose bool
	api   []string // topics
}

const corruptTopics = 3

// makeSpecimen runs a node, keeps records of all kinds and ends it.
func makeSpecimen(t *testing.T, name string, end func(n *harness.Node, commits float64)) *specimen {
	t.Helper()
	n := harness.Start(t, harness.Options{})
	api := client.New(n.URL)
	rec := check.NewRecorder()
	var topics []string
	for i := range corruptTopics {
		topics = append(topics, fmt.Sprintf("harmed-%d", i))
		api.CreateTopic(t, topics[i], `"partitions":3`)
		for _, w := range newWriters(n, rec, topics[i], 3, 6, 40) {
			for range 5 + i {
				w.mustPut(t)
			}
		}
		for k := range 4 {
			api.Must(t, 201, "POST", "/topics/"+topics[i], "text/plain", fmt.Sprintf("keyed-%d-%d", i, k), "Idempotency-Key", strconv.Itoa(k))
		}
	}
	// A partition with three batches, and idle from then on; the last of them is
	// the last thing the node did.
	topics = append(topics, "three")
	api.CreateTopic(t, "three", "")
	var commits float64 // before the last record
	for i := range 3 {
		commits = n.Metric("broker_journal_fsync_seconds_count")
		api.Must(t, 201, "POST", "/topics/three", "text/plain", fmt.Sprintf("three-%d", i))
	}
	s := &specimen{name: name, api: topics}
	s.truth = truthOf(t, api, topics...)
	end(n, commits)
	s.img = takeImage(t, n.Dir())
	return s
}

func specimens(t *testing.T) []*specimen {
	t.Helper()
	atOnce := makeSpecimen(t, "killed", func(n *harness.Node, _ float64) { n.Kill() })
	atOnce.loose = true
	idle := makeSpecimen(t, "killed when idle", func(n *harness.Node, commits float64) {
		// Once idle, the journal covers its last frame with one more commit, and
		// the tails go to their segments; after that nothing moves.
		last, since := commits, time.Now()
		harness.Await(t, 60*time.Second, "the journal to be idle", func() bool {
			if now := n.Metric("broker_journal_fsync_seconds_count"); now != last {
				last, since = now, time.Now()
			}
			return last >= commits+2 && time.Since(since) > 1200*time.Millisecond && n.Metric("broker_unflushed_bytes") == 0
		})
		n.Kill()
	})
	stopped := makeSpecimen(t, "stopped", func(n *harness.Node, _ float64) {
		if err := n.Stop(); err != nil {
			t.Fatal(err)
		}
	})
	return []*specimen{atOnce, idle, stopped}
}

// harm is one thing done to a folder.
type harm struct {
	what string
	img  image
	// cache says that only what can be rebuilt is harmed: nothing may be
	// missing and nothing needs to be reported.
	cache bool
	// end says that the last record alone was harmed, at the end of the journal.
	end bool
}

// stride goes over a span of bytes: every one of them, or about so many where
// there is no time for all.
func stride(span, about int64) int64 {
	if harness.Soak() {
		return 1
	}
	return max(1, span/about)
}

// harms lists everything that is done to a specimen.
func (s *specimen) harms(t *testing.T) (all []harm) {
	t.Helper()
	random := rand.New(rand.NewPCG(7, uint64(len(s.name))))
	bit := func() byte { return 1 << random.IntN(8) }
	add := func(what string, img image) { all = append(all, harm{what: what, img: img}) }

	journal, frames := s.img.journalFrames(t)
	last, end := frames[max(0, len(frames)-3)], frames[len(frames)-1]
	if s.loose { // no mark follows the last batch
		last = frames[len(frames)-2]
	}
	for k := last; k <= end; k += stride(end-last, 15) {
		add(fmt.Sprintf("journal cut at %d", k), s.img.cut(journal, k))
		all = append(all, harm{what: fmt.Sprintf("journal zero from %d", k), img: s.img.zeros(journal, k), end: true})
	}
	for k := last; k < end; k += stride(end-last, 40) {
		all = append(all, harm{what: fmt.Sprintf("journal bit at %d", k), img: s.img.flip(journal, k, bit()), end: k >= frames[len(frames)-2]})
	}
	for k := int64(4096); k < last; k += stride(last, 40) {
		add(fmt.Sprintf("journal bit at %d", k), s.img.flip(journal, k, bit()))
	}
	for k := int64(0); k < 64; k += stride(64, 8) {
		add(fmt.Sprintf("journal head bit at %d", k), s.img.flip(journal, k, bit()))
	}
	add("the journal folder deleted", s.img.withoutFolder("journal"))
	for _, name := range s.img.names(".journal") {
		add(name+" deleted", s.img.without(name))
		add(name+" garbage", s.img.with(name, garbageFile(random, s.img[name])))
		add(name+" empty", s.img.cut(name, 0))
	}

	for i, name := range s.img.names(".log") {
		bounds := s.img.batches(t, name)
		if len(bounds) < 2 || i >= 4 && len(bounds) != 4 && !harness.Soak() {
			continue // enough of their kind
		}
		size := bounds[len(bounds)-1]
		if len(bounds) == 4 { // three batches
			for k := int64(0); k < size; k += stride(size, 40) {
				add(fmt.Sprintf("%s byte at %d", name, k), s.img.flip(name, k, 0xff))
			}
			for k := bounds[2]; k < size; k += stride(size-bounds[2], 25) {
				add(fmt.Sprintf("%s bit at %d", name, k), s.img.flip(name, k, bit()))
			}
		}
		for k := bounds[len(bounds)-2]; k < size; k += stride(size-bounds[len(bounds)-2], 8) {
			add(fmt.Sprintf("%s cut at %d", name, k), s.img.cut(name, k))
		}
		add(name+" deleted", s.img.without(name))
	}

	for _, suffix := range []string{".index", ".producers"} {
		for i, name := range s.img.names(suffix) {
			if i >= 6 && !harness.Soak() {
				break
			}
			all = append(all,
				harm{what: name + " deleted", img: s.img.without(name), cache: true},
				harm{what: name + " empty", img: s.img.cut(name, 0), cache: true},
				harm{what: name + " cut", img: s.img.cut(name, s.img[name].size/2), cache: true},
				harm{what: name + " garbage", img: s.img.with(name, garbageFile(random, s.img[name])), cache: true})
		}
	}
	add("storage.json deleted", s.img.without("storage.json"))
	add("storage.json empty", s.img.cut("storage.json", 0))
	for k := int64(0); k < s.img["storage.json"].size; k += stride(s.img["storage.json"].size, 12) {
		add(fmt.Sprintf("storage.json bit at %d", k), s.img.flip("storage.json", k, bit()))
	}
	return all
}

func garbageFile(random *rand.Rand, f imageFile) imageFile {
	data := make([]byte, min(f.size, 64<<10))
	for i := range data {
		data[i] = byte(random.Uint32())
	}
	return imageFile{data, f.size}
}

// fastDir is a folder in memory where there is one: what is tested here is what
// the code makes of bytes.
func fastDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "tidewire-e2e-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// TestHarmedFoldersGiveTheRightPrefixOrAReport harms what real processes left,
// everywhere and one place at a time, and opens it as a node does. Whatever is
// read must be what was acknowledged; what is missing must be reported in words
// that name `tidewire log verify` or the file; a cache is rebuilt.
func TestHarmedFoldersGiveTheRightPrefixOrAReport(t *testing.T) {
	t.Parallel()
	for _, s := range specimens(t) {
		t.Run(strings.ReplaceAll(s.name, " ", "-"), func(t *testing.T) {
			dir := filepath.Join(fastDir(t), "data")
			s.img.write(t, dir)
			whole := recoverFolder(t, dir)
			if lost, wrong := s.truth.compare(whole.logs); lost > 0 || wrong != "" || whole.report != "" {
				t.Fatalf("unharmed: %d lost, %s, %s\n%s", lost, wrong, whole.report, whole.log)
			}
			again := recoverFolder(t, dir)
			if lost, wrong := s.truth.compare(again.logs); lost > 0 || wrong != "" || again.report != "" {
				t.Fatalf("opened twice: %d lost, %s, %s", lost, wrong, again.report)
			}
			// A file that was prepared and holds nothing yet only costs time.
			for _, name := range s.img.names(".journal") {
				if len(s.img[name].data) <= 4096 {
					s.img = s.img.without(name)
				}
			}
			var harms, complete, reported, torn int
			for _, h := range s.harms(t) {
				harms++
				h.img.write(t, dir)
				got := recoverFolder(t, dir)
				lost, wrong := s.truth.compare(got.logs)
				switch {
				case wrong != "":
					t.Errorf("%s: A WRONG RECORD: %s\n%s", h.what, wrong, got.log)
				case h.cache && (lost > 0 || got.report != ""):
					t.Errorf("%s: a cache was harmed: %d lost, %s\n%s", h.what, lost, got.report, got.log)
				case lost == 0:
					complete++
					for p, want := range whole.producers {
						if got.report == "" && got.producers[p] != want {
							t.Errorf("%s: the producers of partition %s are not the same", h.what, p)
						}
					}
				case got.report != "":
					reported++
					if !strings.Contains(got.report, "log verify") && !strings.Contains(got.report, "restore it") {
						t.Errorf("%s: the report does not say what to do: %s", h.what, got.report)
					}
				case lost == 1 && h.end && s.loose:
					torn++
				default:
					t.Errorf("%s: A SILENT LOSS of %d records\n%s", h.what, lost, got.log)
				}
				// What was found once is found again: the first start made nothing worse.
				if harms%10 == 0 || harness.Soak() {
					second := recoverFolder(t, dir)
					if l, w := s.truth.compare(second.logs); l != lost || w != "" {
						t.Errorf("%s: opened again: %d lost, %d before, %s, %s\n%s", h.what, l, lost, w, second.report, second.log)
					}
				}
			}
			t.Logf("%d records; %d harms: %d complete, %d reported, %d the last record torn", s.truth.records(), harms, complete, reported, torn)
		})
	}
}

// TestHarmedFolderUnderARealNode is the same for a few harms with the whole
// binary: the node starts and serves what is right, says what is not, and `log
// verify` finds it.
func TestHarmedFolderUnderARealNode(t *testing.T) {
	t.Parallel()
	s := makeSpecimen(t, "stopped", func(n *harness.Node, _ float64) {
		if err := n.Stop(); err != nil {
			t.Fatal(err)
		}
	})
	log := ""
	for _, name := range s.img.names(".log") {
		if b := s.img.batches(t, name); len(b) == 4 {
			log = name
		}
	}
	if log == "" {
		t.Fatal("no segment with three batches")
	}
	bounds := s.img.batches(t, log)
	journal, frames := s.img.journalFrames(t)
	for _, c := range []struct {
		what    string
		img     image
		harmful bool
	}{
		{"nothing", s.img, false},
		{"one bit of an idle partition's last batch", s.img.flip(log, bounds[2]+70, 4), true},
		{"a segment cut in its last batch", s.img.cut(log, bounds[3]-5), true},
		{"a segment deleted", s.img.without(log), true},
		{"one bit of the journal's checkpoint", s.img.flip(journal, frames[len(frames)-3]+60, 1), true},
		{"every index and producer snapshot deleted", func() image {
			img := s.img
			for _, name := range append(s.img.names(".index"), s.img.names(".producers")...) {
				img = img.without(name)
			}
			return img
		}(), false},
	} {
		t.Run(strings.ReplaceAll(c.what, " ", "-"), func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "data")
			c.img.write(t, dir)
			n := harness.New(t, harness.Options{Dir: dir})
			_, verr, code := n.CLI(t.Context(), nil, "log", "verify", "--data", dir)
			if want := map[bool]int{false: 0, true: 1}[c.harmful]; code != want {
				t.Errorf("log verify: exit code %d, want %d: %s", code, want, verr)
			}
			if err := n.Run(); err != nil {
				if !c.harmful || n.ExitCode() != 1 || !strings.Contains(err.Error(), "log verify --data "+dir) {
					t.Fatalf("the node does not start: %v", err)
				}
				t.Logf("the node refused to start, exit code %d: %.300s", n.ExitCode(), n.Log())
				return
			}
			began, starved := time.Now(), harness.Starved(n)
			lost, refusals := s.readOver(t, n)
			if took := time.Since(began); took > slack(4*time.Second)+starved() {
				t.Errorf("reading took %s: somebody waited for damage to go away", took)
			}
			switch {
			case !c.harmful && (lost > 0 || len(refusals) > 0):
				t.Errorf("%d records are missing: %v", lost, refusals)
			case c.harmful && lost > 0 && len(refusals) == 0:
				t.Errorf("A SILENT LOSS of %d records", lost)
			case c.harmful && lost > 0 && !strings.Contains(n.Log(), "log verify --data "+dir):
				t.Errorf("the log does not name the tool:\n%s", n.Log())
			}
			if lost > 0 {
				s.saysSo(t, n, refusals)
			}
			if strings.Contains(n.Log(), "panic:") {
				t.Errorf("a panic:\n%s", n.Log())
			}
			t.Logf("%d of %d records missing, refused with %v", lost, s.truth.records(), refusals)
		})
	}
}

// saysSo checks that damage is said wherever somebody would miss it: to those
// who read on live and to those who publish, at once, and in the metrics.
func (s *specimen) saysSo(t *testing.T, n *harness.Node, refusals []string) {
	t.Helper()
	damaged := n.Metric("broker_damaged_partitions")
	if damaged == 0 && n.Metric("broker_read_only") == 0 {
		t.Errorf("no metric tells of what was refused with %v", refusals)
	}
	if damaged == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	api := client.New(n.URL)
	for _, topic := range s.api {
		for _, p := range api.Topic(t, topic).Layout.Partitions {
			ans, err := api.Poll(ctx, topic, "partition", strconv.Itoa(p.ID), "offset", strconv.FormatInt(max(p.HW-1, 0), 10))
			if err != nil || ans.Status == 200 {
				continue
			}
			said, err := api.Do(ctx, "POST", "/topics/"+topic+"?partition="+strconv.Itoa(p.ID), "application/json", `1`)
			if problem, perr := said.Problem(); err != nil || perr != nil || problem.Code != "leader-unavailable" || !strings.Contains(problem.Detail, "damaged from offset") ||
				!strings.Contains(string(said.Body), `"retryable":false`) || said.Header.Get("Retry-After") != "60" {
				t.Errorf("publishing to a damaged partition: %s %v %v", said.Body, err, perr)
			}
			for _, query := range []string{"from=earliest", "from=earliest&partition=" + strconv.Itoa(p.ID)} {
				stream, err := client.OpenSSE(ctx, n.URL+"/topics/"+topic+"/events?"+query, "")
				if err != nil {
					t.Fatal(err)
				}
				for {
					e, _, err := stream.NextMessage()
					if err != nil {
						t.Errorf("%s %s: %v before the damage was said", topic, query, err)
						break
					}
					if e.Name == "error" {
						if !strings.Contains(string(e.Data), "damaged from offset") {
							t.Errorf("%s %s: %s", topic, query, e.Data)
						}
						break
					}
				}
				stream.Close()
			}
			return
		}
	}
	t.Error("no partition refuses to be read")
}

// readOver reads everything over HTTP and holds it against the truth.
func (s *specimen) readOver(t *testing.T, n *harness.Node) (lost int, refusals []string) {
	t.Helper()
	api := client.New(n.URL)
	got := 0
	for _, topic := range s.api {
		info := api.Topic(t, topic)
		for _, p := range info.Layout.Partitions {
			want := s.truth.of(t, info.ID, p.ID)
			for next := 0; ; {
				page, err := api.Poll(t.Context(), topic, "partition", strconv.Itoa(p.ID), "offset", strconv.Itoa(next), "limit", "10000")
				if err != nil {
					t.Fatal(err)
				}
				if page.Status != 200 {
					refusals = append(refusals, page.Problem.Code)
					break
				}
				for _, m := range page.Messages {
					if int(m.Offset) != next || next >= len(want) || string(m.Bytes()) != want[next] {
						t.Fatalf("A WRONG RECORD: %s/%d offset %d: %.60q", topic, p.ID, m.Offset, m.Bytes())
					}
					next++
					got++
				}
				if page.End {
					break
				}
			}
		}
	}
	return s.truth.records() - got, refusals
}
