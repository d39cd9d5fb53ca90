package obs

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestLogsAreTextOrJSONFromTheirLevelOn(t *testing.T) {
	var out bytes.Buffer
	log := NewLogger(&out, slog.LevelInfo, "json")
	log.Debug("hidden")
	log.Info("opened", Topic, "orders", Took, 1500*time.Millisecond)
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatalf("%v in %s", err, out.String())
	}
	if line["topic"] != "orders" || line["took"] != "1.5s" || line["msg"] != "opened" {
		t.Errorf("got %v", line)
	}
	if at, err := time.Parse(time.RFC3339Nano, line["time"].(string)); err != nil || at.Location() != time.UTC {
		t.Errorf("time %v: %v", line["time"], err)
	}
	out.Reset()
	NewLogger(&out, slog.LevelDebug, "text").Debug("seen", Took, time.Second)
	if !strings.Contains(out.String(), "msg=seen took=1s") {
		t.Errorf("got %s", out.String())
	}
}

func TestTheRegistryHoldsBuildProcessAndRuntime(t *testing.T) {
	families, err := NewRegistry(ReadBuild("v1.2.3"), 50).Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, f := range families {
		found[f.GetName()] = f.String()
	}
	if !strings.Contains(found["node_build_info"], "v1.2.3") {
		t.Errorf("node_build_info: %s", found["node_build_info"])
	}
	if c := found["node_connection_ceiling"]; !strings.Contains(c, "value:50") || !strings.Contains(c, "max_connections") {
		t.Errorf("node_connection_ceiling: %s", c)
	}
	for _, name := range []string{"go_goroutines", "process_open_fds"} {
		if found[name] == "" {
			t.Errorf("%s is missing", name)
		}
	}
}

func TestABuildAlwaysHasAVersion(t *testing.T) {
	if v := ReadBuild("").Version; v == "" {
		t.Error("empty")
	}
	text := Build{Version: "v1", Revision: "0123456789abcdef", Modified: true, Go: "go1", Platform: "linux/amd64"}.String()
	if text != "tidewire v1 (0123456789ab, modified) go1 linux/amd64" {
		t.Error(text)
	}
}

func TestDescriptorsAreNeverSharedOutTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := rapid.Uint64Range(leastCeiling, math.MaxUint64).Draw(t, "ceiling")
		d, err := Divide(c)
		if err != nil {
			t.Fatal(err)
		}
		if min(d.Connections, d.LogFiles, d.Other, d.Peers) < 32 || d.LogFiles+d.Other+d.Peers+d.Connections != d.Ceiling || uint64(d.Ceiling) > c {
			t.Fatalf("%d: %+v", c, d)
		}
		if n, err := d.MaxConnections(0); err != nil || n != d.Connections {
			t.Fatalf("all there is: %d, %v", n, err)
		}
		if n, err := d.MaxConnections(d.Connections); err != nil || n != d.Connections {
			t.Fatalf("the ceiling itself: %d, %v", n, err)
		}
		if _, err := d.MaxConnections(d.Connections + 1); err == nil {
			t.Fatalf("one more than the ceiling is taken")
		}
	})
}

func TestTooFewOpenFilesAreRefusedWithTheNumberThatIsNeeded(t *testing.T) {
	for _, few := range []uint64{0, 20, 64, leastCeiling - 1} {
		if _, err := Divide(few); err == nil || !strings.Contains(err.Error(), "256 or more") {
			t.Errorf("%d: %v", few, err)
		}
	}
}

func TestTheRaisedLimitInTheErrorIsEnough(t *testing.T) {
	low, err := Divide(1024)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := low.MaxConnections(50_000); err == nil || !strings.Contains(err.Error(), "51352") {
		t.Fatalf("got %v", err)
	}
	raised, err := Divide(51352)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := raised.MaxConnections(50_000); err != nil {
		t.Errorf("after following the advice: %v", err)
	}
	if d, err := ReadDescriptors(); err != nil || d.Ceiling < 8 {
		t.Errorf("this process: %+v, %v", d, err)
	}
}
